/*
 * What the back ends of the plug-in share: the device behind a struct device, its streams, and how every CUDA call is
 * checked.
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

/** Gives memory back to the allocator it came from, noting what fails. */
typedef void (*cuda_release_fn)(struct cuda_device *device, void *memory);

struct cuda_range {
    const char *begin, *end;
    cuda_release_fn release; /* NULL: cudaFree() */
};

struct cuda_device {
    int index;                  /* of the devices that this process sees */
    int rank;                   /* of the world, for messages; -1: not known */
    char name[CUDA_NAME_BYTES]; /* "NVIDIA H100 80GB HBM3" */
    char pci[DEVICE_ID_BYTES];
    int major, minor, n_processors; /* compute capability; multiprocessors */
    struct fsdp_err
        broken; /* status other than FSDP_OK: the first failure of a call that returns none; sticky, and
                             * told in place of later ones: after a fault on a GPU every call fails */
    bool stuck; /* what is queued was waited for after a failure, in vain */
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
 * Make `memory`, from another allocator than cudaMalloc(), the device's own: zeroed, known by its address, counted, and given
 * back by `release` when it is freed as any. After a failure it was given back.
 */
enum fsdp_status cuda_adopt(struct device *device, void *memory, size_t size_bytes, cuda_release_fn release,
                            struct fsdp_err *err);

/** The rank of the world that this process is, for messages; -1: not known. */
int cuda_own_rank(void);
/** ", rank 1, device 0 (NVIDIA H100 80GB HBM3)", for the end of a message. */
const char *cuda_who(const struct cuda_device *device, char *buffer, size_t size);

/** The name in a call's text: "cudaFree" of "cudaFree(memory)", "kernel_add" of "(cudaError_t)kernel_add(...)". */
const char *cuda_call_name(const char *call, int *length);

/**
 * FSDP_OK, or FSDP_ERR_NOMEM or FSDP_ERR_DEVICE with the words: the call, what CUDA says, file and line, rank and device; those of
 * the first failure where one is kept. `device` may be NULL.
 */
enum fsdp_status cuda_status(const struct cuda_device *device, cudaError_t error, const char *call,
                             const char *file, int line, struct fsdp_err *err);
/** The same for a call in the middle of a stream: kept, unless there is one before it, until synchronize() reports it. */
void cuda_note(struct cuda_device *device, cudaError_t error, const char *call, const char *file, int line);

/** Keep a failure that has its words already. */
void cuda_keep(struct cuda_device *device, const struct fsdp_err *err);

#define CUDA_TRY(device, call, err) cuda_status((device), (call), #call, __FILE__, __LINE__, (err))
#define CUDA_NOTE(device, call)     cuda_note((device), (call), #call, __FILE__, __LINE__)

#endif
