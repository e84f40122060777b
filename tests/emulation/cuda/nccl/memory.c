/* Memory of the library's own, and registration. */
#include <stdio.h>

#include "tests/emulation/cuda/nccl/standin.h"

#ifdef NCCL_STANDIN_OLD
typedef int nothing_of_this_is_in_an_old_one;
#else

enum { MAX_OWN_MEMORY = 64 };

/* Of no communicator: known apart from cudaMalloc's by being given back here. */
static void *own_memory[MAX_OWN_MEMORY];

EXPORT enum nccl_result ncclMemAlloc(void **out, size_t size_bytes)
{
    int own = 0;

    *out = NULL;
    TOLD();
    while (own < MAX_OWN_MEMORY && own_memory[own] != NULL)
        own++;
    if (own == MAX_OWN_MEMORY || getenv("NCCL_STANDIN_SMALL") != NULL ||
        emulated_alloc(out, size_bytes) != cudaSuccess)
        return NCCL_UNHANDLED_CUDA_ERROR;
    own_memory[own] = *out;
    return NCCL_SUCCESS;
}

EXPORT enum nccl_result ncclMemFree(void *memory)
{
    const enum nccl_result told = standin_told(__func__);

    if (emulated_is_lost())
        return told;
    for (int own = 0; own < MAX_OWN_MEMORY; own++)
        if (own_memory[own] == memory) {
            own_memory[own] = NULL;
            return emulated_free(memory) == cudaSuccess ? told : NCCL_UNHANDLED_CUDA_ERROR;
        }
    return NCCL_INVALID_ARGUMENT;
}

static bool is_own_memory(const void *memory)
{
    for (int own = 0; own < MAX_OWN_MEMORY; own++)
        if (own_memory[own] == memory)
            return true;
    return false;
}

EXPORT enum nccl_result ncclCommRegister(struct nccl_communicator *comm, void *memory, size_t size_bytes,
                                         void **handle)
{
    char words[64];

    *handle = NULL;
    TOLD();
    if (!emulated_is_device(memory) || !emulated_is_device((char *)memory + size_bytes - 1))
        return NCCL_INVALID_ARGUMENT;
    if (getenv("NCCL_STANDIN_SMALL") != NULL)
        return NCCL_SYSTEM_ERROR;
    snprintf(words, sizeof words, "%zu bytes of %s", size_bytes,
             is_own_memory(memory) ? "its own" : "cudaMalloc's");
    standin_record(comm, "CommRegister", words);
    comm->n_registered++;
    *handle = memory;
    return standin_answer(comm);
}

EXPORT enum nccl_result ncclCommDeregister(struct nccl_communicator *comm, void *handle)
{
    const enum nccl_result told = standin_told(__func__);

    if (handle == NULL || comm->n_registered == 0 || !emulated_is_device(handle))
        return NCCL_INVALID_ARGUMENT;
    comm->n_registered--;
    standin_record(comm, "CommDeregister", "");
    return told;
}

#endif
