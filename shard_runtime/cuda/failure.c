/*
 * Failures of CUDA calls in words. A call that returns a status fails with them. A call that returns none
 * keeps the first failure in the device, where the next wait reports it. After a fault on a GPU every later
 * call fails too, and the first one is the cause.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/cuda/state.h"

int cuda_own_rank(void)
{
    const char *text = getenv("RANK");

    return text != NULL ? (int)strtol(text, NULL, 10) : -1;
}

const char *cuda_who(const struct cuda_device *device, char *buffer, size_t size)
{
    const int rank = device != NULL ? device->rank : cuda_own_rank();
    int n = rank >= 0 ? snprintf(buffer, size, ", rank %d", rank) : 0;

    if (n == 0)
        buffer[0] = '\0';
    if (device != NULL && n < (int)size)
        snprintf(buffer + n, size - (size_t)n, ", device %d (%s)", device->index, device->name);
    return buffer;
}

const char *cuda_call_name(const char *call, int *length)
{
    if (call[0] == '(') /* skip a cast in front of the call */
        call += strcspn(call, ")") + 1;
    *length = (int)strcspn(call, "(");
    return call;
}

enum fsdp_status cuda_fail(const struct cuda_device *device, enum fsdp_status status, const char *call,
                           const char *words, const char *file, int line, struct fsdp_err *err)
{
    char who[CUDA_NAME_BYTES + 64];
    int length;

    call = cuda_call_name(call, &length);
    if (device != NULL && cuda_sticky(device, err) != FSDP_OK)
        return device->broken.status;
    return fsdp_fail(err, status, "%.*s: %s at %s:%d%s", length, call, words, file, line,
                     cuda_who(device, who, sizeof who));
}

enum fsdp_status cuda_status(const struct cuda_device *device, cudaError_t error, const char *call,
                             const char *file, int line, struct fsdp_err *err)
{
    char words[200];

    if (error == cudaSuccess)
        return FSDP_OK;
    snprintf(words, sizeof words, "%s (%s)", cudaGetErrorString(error), cudaGetErrorName(error));
    return cuda_fail(device, error == cudaErrorMemoryAllocation ? FSDP_ERR_NOMEM : FSDP_ERR_DEVICE, call,
                     words, file, line, err);
}

void cuda_keep(struct cuda_device *device, const struct fsdp_err *err)
{
    if (device->broken.status == FSDP_OK)
        device->broken = *err;
}

void cuda_note(struct cuda_device *device, cudaError_t error, const char *call, const char *file, int line)
{
    struct fsdp_err err = { 0 };

    if (cuda_status(device, error, call, file, line, &err) != FSDP_OK)
        cuda_keep(device, &err);
}

enum fsdp_status cuda_sticky(const struct cuda_device *state, struct fsdp_err *err)
{
    return state->broken.status == FSDP_OK
               ? FSDP_OK
               : fsdp_fail(err, state->broken.status, "%s", state->broken.message);
}
