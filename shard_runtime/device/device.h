/*
 * Where tensors are stored and in which order work on them is done. There is one vtable for each kind of
 * device.
 *
 * A stream is an ordered queue of work. Only events order the work of two streams. The cpu device runs work
 * at once, so that every stream is up to date when a call returns. On other devices it is not. So code that
 * uses this header records events and waits for them even where the cpu would not need it.
 *
 * Thread: every call on the thread that opened the device.
 */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/dtype.h>
#include <fsdp/status.h>

struct device;
struct device_stream;
struct device_event;

/*
 * Host to device, device to host, or within the device. The host's buffer is borrowed until the stream has
 * passed the copy.
 */
enum device_copy { DEVICE_COPY_TO, DEVICE_COPY_FROM, DEVICE_COPY_WITHIN };

/** One copy of a list, within device memory. */
struct device_cast {
    void *to;
    const void *from; /* NULL: zeros */
    size_t n_elems;
    enum fsdp_dtype to_dtype, from_dtype;
};

/**
 * One of a list of float32 tensors that are rounded to bfloat16 by random draws. rng_philox(key, step, n)
 * gives four words, which are eight halves: the lower half of a word comes before its upper one. The draw of
 * from[i] is half number (first + i) % 8 of n = (first + i) / 8.
 */
struct device_rounding {
    uint16_t *to;
    const float *from;
    size_t n_elems;
    uint64_t key, first;
};

/**
 * Returns an error if waiting is pointless, for example because a rank has ended. synchronize() calls it
 * every few milliseconds while it waits, so it must not block.
 */
typedef enum fsdp_status (*device_watch_fn)(void *user, struct fsdp_err *err);

/*
 * Failures after a device was opened are FSDP_ERR_DEVICE, or FSDP_ERR_NOMEM if it has no memory left. The
 * first one sticks: synchronize() returns it from then on.
 */
enum { DEVICE_ID_BYTES = 64 };

struct device_ops {
    const char *name;   /* as in a job file: "cpu" */
    bool allocs_zeroed; /* alloc() and alloc_host() return zeros; false: any bytes */
    enum fsdp_status (*open)(struct device *device, int local_rank, struct fsdp_err *err);
    void (*close)(struct device *device);

    /** Allocates `size_bytes` of device memory, aligned to at least 4096. 0 bytes give NULL. */
    enum fsdp_status (*alloc)(struct device *device, size_t size_bytes, void **out, struct fsdp_err *err);
    void (*free)(struct device *device, void *memory, size_t size_bytes);

    /** Makes a stream. `urgent`: its work runs before that of other streams if both could run. */
    enum fsdp_status (*stream_create)(struct device *device, struct device_stream **out, bool urgent,
                                      struct fsdp_err *err);
    void (*stream_destroy)(struct device_stream *stream);
    enum fsdp_status (*event_create)(struct device *device, struct device_event **out, struct fsdp_err *err);
    void (*event_destroy)(struct device_event *event);

    /** Marks the work queued on `stream` so far, in place of what `event` marked before. */
    void (*record)(struct device_event *event, struct device_stream *stream);
    /**
     * Work that is queued on `stream` from now on starts after what `event` marks. An event that was never
     * recorded delays nothing.
     */
    void (*wait)(struct device_stream *stream, struct device_event *event);
    /** Blocks until everything queued on `stream` is done. Returns the device's first failure. */
    enum fsdp_status (*synchronize)(struct device_stream *stream, struct fsdp_err *err);

    void (*copy)(struct device_stream *stream, void *to, const void *from, size_t size_bytes,
                 enum device_copy kind);
    void (*fill_zero)(struct device_stream *stream, void *to, size_t size_bytes);

    /**
     * to[i] = (accumulate ? to[i] : 0) + scale * from[i] for `n_elems` elements of float32 or bfloat16 in
     * device memory, computed in float32 and rounded once, to nearest even. `to` may be `from` where both
     * have one dtype.
     */
    void (*cast)(struct device_stream *stream, void *to, enum fsdp_dtype to_dtype, const void *from,
                 enum fsdp_dtype from_dtype, size_t n_elems, float scale, bool accumulate);
    /**
     * Optional; NULL: device_cast_list() makes them one by one. cast() of each with one scale, or fill_zero()
     * (not with accumulate), as one piece of work where they fit. No `to` overlaps another's `to` or `from`.
     * The list is read before the call returns.
     */
    void (*cast_list)(struct device_stream *stream, const struct device_cast *casts, size_t n_casts,
                      float scale, bool accumulate);

    /**
     * Rounds each tensor of the list stochastically to bfloat16 (core/bf16.h). The rules about overlaps and
     * the lifetime of the list are those of cast_list(). Every device gives the same bits.
     */
    void (*round_list)(struct device_stream *stream, const struct device_rounding *roundings,
                       size_t n_roundings, uint64_t step);

    /*
     * Tensors in float8 e4m3. The scale of a tensor follows from the largest size in it (core/e4m3.h). *amax
     * is in device memory. The same bits on every device.
     */

    /** *amax = max(*amax, |from[i]|); numbers that are not finite count as infinity. */
    void (*amax)(struct device_stream *stream, float *amax, const float *from, size_t n_elems);
    /** to[i] = e4m3(from[i] / scale), to nearest even, clamped; of float32 or bfloat16. */
    void (*encode)(struct device_stream *stream, uint8_t *to, const void *from, enum fsdp_dtype from_dtype,
                   size_t n_elems, const float *amax);
    /**
     * to[i] = from[i] * scale, rounded once to float32 or bfloat16; NaN throughout where *amax is not finite.
     */
    void (*decode)(struct device_stream *stream, void *to, enum fsdp_dtype to_dtype, const uint8_t *from,
                   size_t n_elems, const float *amax);
    /**
     * Optional; NULL: every device of this kind can. Returns FSDP_ERR_UNSUPPORTED, with the device's name, if
     * the device is too old for float8.
     */
    enum fsdp_status (*check_float8)(const struct device *device, struct fsdp_err *err);

    /*
     * The slots below must all be filled for a device whose memory is not the host's. All are NULL if host
     * and device memory are one.
     */

    /** Returns whether the address is in the device's memory. */
    bool (*owns)(const struct device *device, const void *memory);
    /**
     * Allocates page-locked host memory, which the device copies from and to directly. 0 bytes give
     * NULL.
     */
    enum fsdp_status (*alloc_host)(struct device *device, size_t size_bytes, void **out,
                                   struct fsdp_err *err);
    void (*free_host)(struct device *device, void *memory, size_t size_bytes);
    /**
     * Returns whether the stream has done what `event` marks; true for an event that marks nothing. Never
     * blocks.
     */
    bool (*passed)(struct device_event *event);
    /** Sets what synchronize() calls while it waits, and whose failure it returns. NULL: nothing. */
    void (*set_watch)(struct device *device, device_watch_fn watch, void *user);
    /** Writes what identifies this device among those of the host. Ranks with the same id share a device. */
    void (*identify)(const struct device *device, char id[DEVICE_ID_BYTES]);
    /** Writes the device's name and the version of its driver, for manifests and --version. */
    void (*describe)(const struct device *device, char *buffer, size_t size);
    /** Returns the bytes of device memory that this process has allocated now, and the most it ever had. */
    void (*usage)(const struct device *device, size_t *now_bytes, size_t *most_bytes);
    /** Returns the nanoseconds that synchronize() has waited so far. */
    uint64_t (*waited_ns)(const struct device *device);

    /* Timers, used if the device is `timed`. NULL: the device has none. */

    /** Called when a step begins. All spans of earlier steps have been waited for. */
    void (*begin_step)(struct device *device);
    /**
     * What is queued on `stream` until end_span() is `name`, which moves `size_bytes`. Spans do not overlap;
     * the name is copied.
     */
    void (*begin_span)(struct device_stream *stream, const char *name, uint64_t size_bytes);
    void (*end_span)(struct device_stream *stream);
};

struct device {
    const struct device_ops *ops;
    int local_rank;
    bool timed;  /* the device wants calls of begin_step(), begin_span() and end_span() */
    void *state; /* the back end's own */
};

struct plugin;

struct device_config {
    const char *name; /* "cpu", "cuda" or "auto": cuda where its plug-in opens, else cpu */
    int local_rank, local_world_size;
    /* receives the plug-in that the device is from; NULL for the cpu device. This pointer may be NULL */
    const struct plugin **plugin;
    /*
     * Why "auto" took the cpu although there may be a GPU. "" if there is no GPU, or if it was taken. This
     * pointer may be NULL.
     */
    struct fsdp_err *refusal;
};

/**
 * Opens a device in *device, the caller's storage, which is empty after an error.
 *   FSDP_ERR_UNSUPPORTED  cuda was asked for, and there is no driver, no plug-in, or it refused
 *   FSDP_ERR_DEVICE       cuda was asked for, is there, and a call failed
 *   FSDP_ERR_CONFIG       no such device
 */
enum fsdp_status device_open(struct device *device, const struct device_config *config, struct fsdp_err *err);
void device_close(struct device *device);

/** Makes all copies of a list, as device_ops.cast_list says, on any device. */
void device_cast_list(struct device *device, struct device_stream *stream, const struct device_cast *casts,
                      size_t n_casts, float scale, bool accumulate);

/** Returns whether the device has memory of its own, apart from the host's. */
static inline bool device_is_separate(const struct device *device)
{
    return device->ops->owns != NULL;
}

extern const struct device_ops device_cpu_ops;

#endif
