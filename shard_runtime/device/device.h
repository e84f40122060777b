/*
 * Where tensors live and in which order work on them is done. One vtable a kind of device. A stream is an
 * ordered queue; work on two streams is ordered by events alone. The cpu device executes at once, in program
 * order, so that every stream is up to date when a call returns; code written against this header waits and
 * records as if it were not, because on other devices it is not.
 *
 * Thread: every call on the thread that opened the device.
 */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/dtype.h>
#include <fsdp/status.h>

struct device;
struct device_stream;
struct device_event;

enum device_copy { DEVICE_COPY_TO, DEVICE_COPY_FROM, DEVICE_COPY_WITHIN };

struct device_ops {
    const char *name; /* as in a job file: "cpu" */
    enum fsdp_status (*open)(struct device *device, int local_rank, struct fsdp_err *err);
    void (*close)(struct device *device);

    /** `size_bytes` of device memory aligned to at least 4096, touched once; 0 gives NULL. */
    enum fsdp_status (*alloc)(struct device *device, size_t size_bytes, void **out, struct fsdp_err *err);
    void (*free)(struct device *device, void *memory, size_t size_bytes);

    enum fsdp_status (*stream_create)(struct device *device, struct device_stream **out,
                                      struct fsdp_err *err);
    void (*stream_destroy)(struct device_stream *stream);
    enum fsdp_status (*event_create)(struct device *device, struct device_event **out, struct fsdp_err *err);
    void (*event_destroy)(struct device_event *event);

    /** Mark the point that `stream` has reached; replaces what `event` marked before. */
    void (*record)(struct device_event *event, struct device_stream *stream);
    /** Work queued on `stream` from now on starts after `event`'s mark; one never recorded is no wait. */
    void (*wait)(struct device_stream *stream, struct device_event *event);
    /** Block the caller until everything queued on `stream` is done; reports what failed meanwhile. */
    enum fsdp_status (*synchronize)(struct device_stream *stream, struct fsdp_err *err);

    void (*copy)(struct device_stream *stream, void *to, const void *from, size_t size_bytes,
                 enum device_copy kind);
    void (*fill_zero)(struct device_stream *stream, void *to, size_t size_bytes);

    /**
     * to[i] = (accumulate ? to[i] : 0) + scale * from[i] for `n_elems` elements of float32 or bfloat16 in device
     * memory, computed in float32 and rounded once, to nearest even. `to` may be `from` where both have one dtype.
     */
    void (*cast)(struct device_stream *stream, void *to, enum fsdp_dtype to_dtype, const void *from,
                 enum fsdp_dtype from_dtype, size_t n_elems, float scale, bool accumulate);
};

struct device {
    const struct device_ops *ops;
    int local_rank;
    void *state; /* the back end's own */
};

/** Open the back end called `name` ("cpu", "auto"); "cuda" needs its plug-in. *device is the caller's
 * storage. */
enum fsdp_status device_open(struct device *device, const char *name, int local_rank, struct fsdp_err *err);
void device_close(struct device *device);

extern const struct device_ops device_cpu_ops;

#endif
