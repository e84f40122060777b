/*
 * Counts the global memory that emulated kernels move, as a GPU's first-level cache would be asked for it
 * with nothing in it. Each load or store of a warp moves the 32-byte sectors that its lanes touch, each
 * sector once. A second load of the same bytes counts again.
 *
 * The kernels are compiled with -fsanitize=thread, which makes g++ call a function before every load and
 * store. Those functions are here; the sanitizer itself is not linked. Loads that the compiler keeps in a
 * register are not counted, as on the GPU. The n-th time that a lane reaches an instruction belongs to the
 * n-th time of its warp.
 */
#ifndef EMULATION_TRAFFIC_H
#define EMULATION_TRAFFIC_H

#include <stddef.h>
#include <stdint.h>

struct traffic {
    uint64_t loaded_bytes, stored_bytes;
    uint64_t accesses; /* loads and stores of whole warps */
};

/** Count accesses to the size_bytes bytes at `memory` from now on; all other memory is not the device's. */
void traffic_begin(const void *memory, size_t size_bytes);

/** Returns what was moved since the last call, or since traffic_begin(). */
struct traffic traffic_take(void);

#endif
