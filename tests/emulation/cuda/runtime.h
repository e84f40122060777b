/*
 * The emulated device, in addition to CUDA's names: for what stands in for kernels and libraries.
 *
 * Only queued work may touch device memory. The host has no access to its pages, and dies of a signal where
 * it reads or writes them. Queued work runs late, when somebody waits for it, and in a seeded order of the
 * streams, so that a wait that is missing shows. FSDP_EMULATED_ORDER: "late" runs nothing but what is waited
 * for, "early" all else first, a number seeds an order. FSDP_EMULATED_DEVICES: how many devices there are
 * (1); FSDP_EMULATED_MEMORY: bytes of each.
 */
#ifndef EMULATED_RUNTIME_H
#define EMULATED_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Work for a stream, with device memory open while it runs. False: it cannot be done yet, and is to be asked
 * again.
 */
typedef bool (*emulated_work_fn)(void *closure);

/** Queue `work` on a copy of `closure` (size_bytes). */
cudaError_t emulated_queue(cudaStream_t stream, emulated_work_fn work, const void *closure,
                           size_t size_bytes);

/**
 * Count one more of `what`: a kernel by its name without template arguments, "copy" within, to or from the
 * device, "fill", "product", "product with sums", "product with gelu". FSDP_EMULATED_TALLY names a file to
 * which a process that ends adds a line "what count" for each. Bytes are counted too: "KERNEL read" and
 * "KERNEL written" (emulate_moved()); and "ld N read" and "ld N written" for the matrices of products whose
 * leading dimension is N, each read or written once.
 */
void emulated_tally(const char *what);
void emulated_tally_add(const char *what, uint64_t n);
uint64_t emulated_tally_of(const char *what);

/** cudaMalloc() and cudaFree() that are no calls of the caller's. */
cudaError_t emulated_alloc(void **out, size_t size_bytes);
cudaError_t emulated_free(void *memory);

/** The device that this process has set, among FSDP_EMULATED_DEVICES. */
int emulated_device(void);

/** Is it the device's memory? */
bool emulated_is_device(const void *memory);

#ifdef __cplusplus
}
#endif

#endif
