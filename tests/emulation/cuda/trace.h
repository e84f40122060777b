/*
 * What a process asked of the emulated device, in its order: FSDP_EMULATED_TRACE names a file, to which its rank is added. A
 * line a call: "copy in|out|within STREAM BYTES locked|paged", "work STREAM", "wait STREAM", "alloc BYTES" and "free BYTES" of
 * device memory. Streams are numbered as they were made.
 */
#ifndef EMULATED_TRACE_H
#define EMULATED_TRACE_H

#include <stdbool.h>
#include <stddef.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/** `locked`: the host's side of it is page-locked. */
void emulated_trace_copy(int stream, enum cudaMemcpyKind kind, size_t size_bytes, bool locked);
void emulated_trace_work(int stream);
void emulated_trace_memory(const char *what, size_t size_bytes);
/** The host waits for a stream, or asks whether it is done. */
void emulated_trace_wait(int stream);

#ifdef __cplusplus
}
#endif

#endif
