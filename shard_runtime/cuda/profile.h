/*
 * FSDP_CUDA_PROFILE: times each span that the engine names, and each kernel and product in it, with two CUDA
 * events. The times of a step are read when the next one begins; that waits for nothing, as a step ends with
 * a wait. The table goes to stderr.
 *   FSDP_CUDA_PROFILE=1   at the end of the run
 *   FSDP_CUDA_PROFILE=N   after N steps; from then on nothing is timed
 * The first step is left out if there are more, because libraries load their code in it. Without the variable
 * nothing is allocated, and each function here reads one pointer.
 */
#ifndef CUDA_PROFILE_H
#define CUDA_PROFILE_H

#include "shard_runtime/cuda/profile_table.h"
#include "shard_runtime/cuda/state.h"

/**
 * Make timers if they are asked for; the device is then `timed`. FSDP_ERR_CONFIG: the variable is no number.
 * FSDP_ERR_NOMEM: no memory.
 */
enum fsdp_status profile_open(struct device *device, struct fsdp_err *err);
/**
 * Print the table, unless it was printed. The device's streams are destroyed already, so all work is done.
 */
void profile_close(struct cuda_device *state);

/* Slots of device_ops: see device/device.h. */
void profile_begin_step(struct device *device);
void profile_begin_span(struct device_stream *stream, const char *name, uint64_t size_bytes);
void profile_end_span(struct device_stream *stream);

/*
 * Returns true if a span that is timed is open on `stream`, and no part of it is open. NULL: a span on any
 * stream counts. Only after true may the caller call profile_begin_part().
 */
bool profile_is_on(const struct cuda_device *state, const struct device_stream *stream);
/** Begin a part of the open span, on its stream. Parts do not nest. */
void profile_begin_part(struct cuda_device *state, const char *name, enum profile_unit unit, double amount,
                        const char *way);
/** End the part that was begun. `queued` false: the call failed, and the part does not count. */
void profile_end_part(struct cuda_device *state, bool queued);

/** CUDA_NOTE of a launch or another call, timed under its text as a part of the open span. */
#define PROFILED(device, stream, call, text)                                                                 \
    do {                                                                                                     \
        const bool profiled_ = profile_is_on((device), (stream));                                            \
        if (profiled_)                                                                                       \
            profile_begin_part((device), (text), PROFILE_NOTHING, 0, NULL);                                  \
        cuda_note((device), (call), (text), __FILE__, __LINE__);                                             \
        if (profiled_)                                                                                       \
            profile_end_part((device), true);                                                                \
    } while (0)

#endif
