/*
 * Memory of the cuda device: allocations, each known by its addresses and counted, and page-locked memory of
 * the host. All device memory is zero at first. Before memory is freed, all streams are waited for.
 */
#include <string.h>

#include "shard_runtime/cuda/state.h"

/* Free memory by the function that belongs to it. */
static void give_back(void *memory, cuda_release_fn release, struct cuda_device *state)
{
    if (release != NULL)
        release(state, memory);
    else
        CUDA_NOTE(state, cudaFree(memory));
}

enum fsdp_status cuda_adopt(struct device *device, void *memory, size_t size_bytes, cuda_release_fn release,
                            struct fsdp_err *err)
{
    struct cuda_device *state = cuda_state(device);
    enum fsdp_status status =
        state->n_allocations < CUDA_MAX_ALLOCATIONS
            ? CUDA_TRY(state, cudaMemset(memory, 0, size_bytes), err)
            : fsdp_fail(err, FSDP_ERR_NOMEM, "device cuda: more than %d allocations", CUDA_MAX_ALLOCATIONS);

    /*
     * The fill runs on the default stream, and our streams do not wait for that one. Waiting for the device
     * waits for all streams, so look for dead peers before.
     */
    cuda_drain(state);
    if (status == FSDP_OK)
        status = CUDA_TRY(state, cudaDeviceSynchronize(), err);
    if (status != FSDP_OK) {
        give_back(memory, release, state);
        return status;
    }
    state->allocations[state->n_allocations++] =
        (struct cuda_range){ memory, (char *)memory + size_bytes, release };
    state->now_bytes += size_bytes;
    if (state->now_bytes > state->most_bytes)
        state->most_bytes = state->now_bytes;
    return FSDP_OK;
}

enum fsdp_status cuda_alloc(struct device *device, size_t size_bytes, void **out, struct fsdp_err *err)
{
    struct cuda_device *state = cuda_state(device);
    void *memory = NULL;
    enum fsdp_status status;

    *out = NULL;
    if (size_bytes == 0)
        return FSDP_OK;
    status = CUDA_TRY(state, cudaMalloc(&memory, size_bytes), err);
    if (status == FSDP_OK)
        status = cuda_adopt(device, memory, size_bytes, NULL, err);
    if (status != FSDP_OK) {
        fsdp_wrap(err, "allocating %zu bytes, with %zu in use", size_bytes, state->now_bytes);
        return status;
    }
    *out = memory;
    return FSDP_OK;
}

void cuda_free(struct device *device, void *memory, size_t size_bytes)
{
    struct cuda_device *state = cuda_state(device);

    if (memory != NULL)
        cuda_drain(state);
    for (size_t i = 0; memory != NULL && i < state->n_allocations; i++) {
        const struct cuda_range range = state->allocations[i];

        if (range.begin != memory)
            continue;
        state->allocations[i] = state->allocations[--state->n_allocations];
        state->now_bytes -= size_bytes;
        give_back(memory, range.release, state);
        return;
    }
}

bool cuda_owns(const struct device *device, const void *memory)
{
    const struct cuda_device *state = cuda_state(device);
    const char *at = memory;

    for (size_t i = 0; i < state->n_allocations; i++)
        if (at >= state->allocations[i].begin && at < state->allocations[i].end)
            return true;
    return false;
}

enum fsdp_status cuda_alloc_host(struct device *device, size_t size_bytes, void **out, struct fsdp_err *err)
{
    enum fsdp_status status;

    *out = NULL;
    if (size_bytes == 0)
        return FSDP_OK;
    status = CUDA_TRY(cuda_state(device), cudaHostAlloc(out, size_bytes, cudaHostAllocDefault), err);
    if (status == FSDP_OK)
        memset(*out, 0, size_bytes);
    return status;
}

void cuda_free_host(struct device *device, void *memory, size_t size_bytes)
{
    (void)size_bytes;
    if (memory == NULL)
        return;
    cuda_drain(cuda_state(device));
    CUDA_NOTE(cuda_state(device), cudaFreeHost(memory));
}

void cuda_usage(const struct device *device, size_t *now_bytes, size_t *most_bytes)
{
    *now_bytes = cuda_state(device)->now_bytes;
    *most_bytes = cuda_state(device)->most_bytes;
}
