/*
 * What a process asked of the emulated device, in its order: FSDP_EMULATED_TRACE names a file, to which its
 * rank is added. A line a call: "copy in|out|within STREAM BYTES locked|paged", "work STREAM", "wait STREAM",
 * "alloc BYTES" and "free BYTES" of device memory. Streams are numbered as they were made.
 */
#ifndef EMULATED_TRACE_H
#define EMULATED_TRACE_H

#ifdef __cplusplus
extern "C" {
#endif

/** Writes a line of the trace where one is wanted. */
void emulated_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));

#ifdef __cplusplus
}
#endif

#endif
