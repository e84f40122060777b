/*
 * Memory that NCCL moves without copies of its own: it comes from NCCL's allocator, and is registered with
 * each communicator that uses it. Both came with 2.19. They make collectives faster and are never required.
 * If the library lacks them or refuses, or FSDP_NCCL_REGISTER=0 says so, memory comes from cudaMalloc() and
 * is not registered. NCCL_LOCAL_REGISTER=0 is the library's own switch.
 */
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/cuda/nccl_impl.h"
#include "shard_runtime/cuda/state.h"

static bool is_wanted(void)
{
    const char *text = getenv("FSDP_NCCL_REGISTER");

    return text == NULL || strcmp(text, "0") != 0;
}

/*
 * Wait before unmapping, because NCCL's free does not wait as cudaFree() does, and queued work may use the
 * memory.
 */
static void release(struct cuda_device *device, void *memory)
{
    struct fsdp_err err = { 0 };
    enum nccl_result result;

    CUDA_NOTE(device, cudaDeviceSynchronize());
    result = nccl.MemFree(memory);
    if (result == NCCL_SUCCESS)
        return;
    (void)nccl_call_failed(device, result, "ncclMemFree", __FILE__, __LINE__, &err);
    cuda_keep(device, &err);
}

enum fsdp_status nccl_alloc_memory(struct device *device, size_t size_bytes, void **out, struct fsdp_err *err)
{
    void *memory = NULL;
    enum fsdp_status status;

    *out = NULL;
    if (size_bytes == 0 || !is_wanted() || nccl.MemAlloc == NULL || nccl.MemFree == NULL ||
        nccl.CommRegister == NULL || nccl.CommDeregister == NULL)
        return device->ops->alloc(device, size_bytes, out, err);
    if (nccl.MemAlloc(&memory, size_bytes) != NCCL_SUCCESS)
        /* NCCL could not allocate: alloc() tries without NCCL, and reports a lack of memory */
        return device->ops->alloc(device, size_bytes, out, err);
    status = cuda_adopt(device, memory, size_bytes, release, err);
    if (status == FSDP_OK)
        *out = memory;
    return status;
}

/*
 * Register memory. A refusal is no failure; only a dead peer, or a communicator that is broken anyway, is
 * reported.
 */
enum fsdp_status nccl_register_memory(struct device_group *group, void *memory, size_t size_bytes,
                                      void **handle, struct fsdp_err *err)
{
    enum nccl_result result;

    *handle = NULL;
    if (group->comm == NULL)
        return nccl_failed(group, err);
    if (size_bytes == 0 || !is_wanted() || nccl.CommRegister == NULL || nccl.CommDeregister == NULL)
        return FSDP_OK;
    result = nccl.CommRegister(group->comm, memory, size_bytes, handle);
    if (result == NCCL_IN_PROGRESS)
        return nccl_finish(group, result, "ncclCommRegister", __FILE__, __LINE__, err);
    if (result != NCCL_SUCCESS)
        *handle = NULL;
    return FSDP_OK;
}

void nccl_unregister_memory(struct device_group *group, void *handle)
{
    if (group->comm != NULL && handle != NULL)
        IGNORED(ncclCommDeregister, nccl.CommDeregister(group->comm, handle));
}
