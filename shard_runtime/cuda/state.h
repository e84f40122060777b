/*
 * Shared by the files of the plug-in: the device inside a struct device, its streams, and the checks of every
 * CUDA call.
 *   device.c    opening, streams, events, waiting, copies and casts
 *   memory.c    allocations; owns the list of them and its counts
 *   failure.c   failures in words; owns `broken`
 */
#ifndef CUDA_STATE_H
#define CUDA_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#include "shard_runtime/cuda/ignored.h"
#include "shard_runtime/device/device.h"

enum { CUDA_NAME_BYTES = 96, CUDA_MAX_ALLOCATIONS = 4096, CUDA_MAX_STREAMS = 64 };

struct cuda_device;
struct profile;

/* Give memory back to the allocator that it came from, and keep a failure. */
typedef void (*cuda_release_fn)(struct cuda_device *device, void *memory);

struct cuda_range {
    const char *begin, *end;
    cuda_release_fn release; /* NULL: cudaFree() */
};

struct cuda_device {
    int index;                  /* among the devices that this process sees */
    int rank;                   /* rank in the world, for messages; -1: not known */
    char name[CUDA_NAME_BYTES]; /* "NVIDIA H100 80GB HBM3" */
    char pci[DEVICE_ID_BYTES];
    int major, minor, n_processors; /* compute capability; number of multiprocessors */
    size_t shared_bytes;            /* the most shared memory that a block may ask for */
    /*
     * status other than FSDP_OK: the first failure of a call that returns none. It is reported in place
     * of later ones
     */
    struct fsdp_err broken;
    bool stuck; /* queued work was waited for after a failure, and was never done */
    struct cuda_range *allocations;
    size_t n_allocations;
    size_t now_bytes, most_bytes;
    struct device_stream *streams[CUDA_MAX_STREAMS];
    int n_streams;
    uint64_t waited_ns;
    struct profile *profile; /* NULL: nothing is timed */
    device_watch_fn watch;
    void *watch_user;
};

struct device_stream {
    struct device *device;
    cudaStream_t cuda;
};

static inline struct cuda_device *cuda_state(const struct device *device)
{
    return device->state;
}

/**
 * Makes `memory`, which came from another allocator than cudaMalloc(), known to the device: it is zeroed,
 * counted and found by its address, and cuda_free() returns it by `release`. After a failure it has been
 * returned.
 */
enum fsdp_status cuda_adopt(struct device *device, void *memory, size_t size_bytes, cuda_release_fn release,
                            struct fsdp_err *err);

/** The rank of this process in the world, for messages; -1: not known. */
int cuda_own_rank(void);
/**
 * Write ", rank 1, device 0 (NVIDIA H100 80GB HBM3)" to `buffer`, for the end of a message, and return it.
 * `device` may be NULL.
 */
const char *cuda_who(const struct cuda_device *device, char *buffer, size_t size);

/**
 * Find the function's name in the text of a call: "cudaFree" in "cudaFree(memory)", "kernel_add" in
 * "(cudaError_t)kernel_add(...)". Returns where it begins, and its length.
 */
const char *cuda_call_name(const char *call, int *length);

/**
 * Fail with `status`. The words name the call, what its library says of it, file and line, rank and device.
 * If a failure is kept, its status and words are given instead. `device` may be NULL.
 */
enum fsdp_status cuda_fail(const struct cuda_device *device, enum fsdp_status status, const char *call,
                           const char *words, const char *file, int line, struct fsdp_err *err);
/**
 * Turn a CUDA error into a status: FSDP_OK, FSDP_ERR_NOMEM or FSDP_ERR_DEVICE, with the words of cuda_fail().
 */
enum fsdp_status cuda_status(const struct cuda_device *device, cudaError_t error, const char *call,
                             const char *file, int line, struct fsdp_err *err);
/**
 * Like cuda_status(), for a call that returns no status: the failure is kept until synchronize() reports it,
 * unless one is kept already.
 */
void cuda_note(struct cuda_device *device, cudaError_t error, const char *call, const char *file, int line);

/** Keeps a failure that already has its message, unless one is kept. */
void cuda_keep(struct cuda_device *device, const struct fsdp_err *err);

/** Returns the failure that is kept; FSDP_OK: there is none. */
enum fsdp_status cuda_sticky(const struct cuda_device *device, struct fsdp_err *err);

/** Wait for all streams while looking for dead peers, before memory is freed. A failure is kept. */
void cuda_drain(struct cuda_device *device);

/* Slots of device_ops in memory.c: see device/device.h. */
enum fsdp_status cuda_alloc(struct device *device, size_t size_bytes, void **out, struct fsdp_err *err);
void cuda_free(struct device *device, void *memory, size_t size_bytes);
bool cuda_owns(const struct device *device, const void *memory);
enum fsdp_status cuda_alloc_host(struct device *device, size_t size_bytes, void **out, struct fsdp_err *err);
void cuda_free_host(struct device *device, void *memory, size_t size_bytes);
void cuda_usage(const struct device *device, size_t *now_bytes, size_t *most_bytes);

/** CUDA_TRY: a call whose status the caller returns. CUDA_NOTE: one in a function without a status. */
#define CUDA_TRY(device, call, err) cuda_status((device), (call), #call, __FILE__, __LINE__, (err))
#define CUDA_NOTE(device, call)     cuda_note((device), (call), #call, __FILE__, __LINE__)

#endif
