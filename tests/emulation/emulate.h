/*
 * A GPU's execution model on one host thread. A grid's blocks run one after the other. A block's threads are
 * fibers that run until they need each other. Nothing of it is in the product.
 *
 * A kernel that relies on an order that the model does not promise is caught in one of three ways. The
 * schedules (forward, reverse, seeded) change which thread and block runs first. Shared memory is filled with
 * bytes ff (NaN, -1) before every block. It has exactly the requested size, so the address sanitizer sees an
 * access beyond it. If not all threads concerned reach a barrier or shuffle at the same line, the program
 * ends with SIGABRT and one line on stderr:
 *   emulation: kernel NAME block (0,0,0) thread 3: WHAT
 */
#ifndef EMULATION_EMULATE_H
#define EMULATION_EMULATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum emulate_order { EMULATE_FORWARD, EMULATE_REVERSE, EMULATE_SEEDED };

/**
 * The order of blocks and threads from now on. Forward and reverse let a warp go on as long as it can before
 * the next one moves. Seeded lets all threads take turns in an order that `seed` draws again each time.
 */
void emulate_schedule(enum emulate_order order, uint64_t seed);

struct emulate_size {
    unsigned x, y, z;
};

/** Where the running thread stands; NULL between launches. */
struct emulate_place {
    struct emulate_size thread, block, block_size, grid_size;
};
extern const struct emulate_place *emulate_place;

enum {
    EMULATE_WARP = 32,
    EMULATE_SLOT_BYTES = 64, /* what a lane may show its warp at once */
    EMULATE_MAX_THREADS = 1024,
    EMULATE_MAX_SHARED_BYTES = 163 * 1024, /* what a block of sm_80 may ask for */
    EMULATE_MAX_ARGUMENT_BYTES = 32764,    /* of CUDA 12.1 and later, on sm_70 and later */
};

/**
 * Run `body(argument)` once for each thread of the grid; done when it returns. A grid, block or size that no
 * sm_80 would take ends the program, as a divergence does. Returns 0, as cudaLaunchKernel does.
 */
int emulate_launch(const char *kernel, struct emulate_size grid, struct emulate_size block,
                   size_t shared_bytes, size_t argument_bytes, void (*body)(const void *argument),
                   const void *argument);

/**
 * Who keeps launches of `kernel` for later, a copy of `call` (size_bytes) each, to be launched in the order
 * of their stream. NULL: they are done at once.
 */
struct CUstream_st;
typedef int (*emulate_queue_fn)(const char *kernel, struct CUstream_st *stream,
                                int (*launch)(const void *call), const void *call, size_t size_bytes);
extern emulate_queue_fn emulate_queue;

/** What a block may ask for; EMULATE_MAX_SHARED_BYTES unless a test says less. */
extern size_t emulate_max_shared_bytes;

/** How many kernels have been launched so far, and how many switches of threads that took. */
uint64_t emulate_launches(void);
uint64_t emulate_switches(void);

/**
 * Bytes of device memory that kernels have read and written so far. Only accesses through load_pack(),
 * store_pack(), load_group() and store_group() count (number.h, walk.h); shared memory does not.
 */
struct emulate_traffic {
    uint64_t read_bytes, written_bytes;
};
struct emulate_traffic emulate_moved(void);

/* Called by the running thread */

/** The block's dynamic shared memory. */
void *emulate_shared(void);
/** Count an access to device memory. */
void emulate_access(size_t read_bytes, size_t written_bytes);
/**
 * When an asynchronous copy is carried out. At once: that harms a reader of what it overwrites. Or when it is
 * waited for: that harms a reader that does not wait. Forward and odd seeds: at once.
 */
bool emulate_copies_at_once(void);
void emulate_barrier(const char *file, int line);
/**
 * Show `size` bytes to the warp and wait for all its lanes. The slot of lane i is at i * EMULATE_SLOT_BYTES
 * from what is returned, and stays until this lane's next call.
 */
const unsigned char *emulate_warp(const void *data, size_t size, const char *file, int line);

#ifdef __cplusplus
}
#endif

#endif
