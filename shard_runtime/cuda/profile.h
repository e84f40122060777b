/*
 * FSDP_CUDA_PROFILE: what the engine calls a span, and each kernel and product in it, between two CUDA
 * events. Times are read when the next step begins, which waits for nothing: a step ends with a wait of the
 * engine's. The table goes to stderr.
 *
 *   FSDP_CUDA_PROFILE=1   at the end of the run
 *   FSDP_CUDA_PROFILE=N   after N steps, and no timers from then on
 *
 * The first step, in which libraries load their code, is left out where there are more. Without the variable
 * nothing is made, and each call here reads one pointer.
 */
#ifndef CUDA_PROFILE_H
#define CUDA_PROFILE_H

#include "shard_runtime/cuda/profile_table.h"
#include "shard_runtime/cuda/state.h"

/** Timers where they are asked for: the device is then `timed`. FSDP_ERR_CONFIG: the variable is no number;
 * FSDP_ERR_NOMEM. */
enum fsdp_status profile_open(struct device *device, struct fsdp_err *err);
/** Prints the table, if it was not printed. The device's streams are gone: all work is done. */
void profile_close(struct cuda_device *state);

/* device_ops.begin_step and the two of spans. */
void profile_begin_step(struct device *device);
void profile_begin_span(struct device_stream *stream, const char *name, uint64_t size_bytes);
void profile_end_span(struct device_stream *stream);

/* Is something timed now, so that a part of it can be? `stream` NULL: on the span's own. */
bool profile_is_on(const struct cuda_device *state, const struct device_stream *stream);
/** A part of the span that is open begins, on its stream. No parts within parts. */
void profile_begin_part(struct cuda_device *state, const char *name, enum profile_unit unit, double amount,
                        const char *way);
/** It ends; `queued` false: it came to nothing, and is no call. */
void profile_end_part(struct cuda_device *state, bool queued);

/** CUDA_NOTE of a launch or another call, with its text, as a part of the span that is open. */
#define PROFILED_AS(device, stream, call, text)                                                              \
    do {                                                                                                     \
        const bool profiled_ = profile_is_on((device), (stream));                                            \
        if (profiled_)                                                                                       \
            profile_begin_part((device), (text), PROFILE_NOTHING, 0, NULL);                                  \
        cuda_note((device), (call), (text), __FILE__, __LINE__);                                             \
        if (profiled_)                                                                                       \
            profile_end_part((device), true);                                                                \
    } while (0)
#define PROFILED(device, stream, call) PROFILED_AS((device), (stream), (call), #call)

#endif
