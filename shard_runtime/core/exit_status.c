#include "shard_runtime/core/exit_status.h"

static const int statuses[FSDP_STATUS_COUNT] = {
    [FSDP_OK] = 0,
    [FSDP_ERR_ARG] = FSDP_EXIT_BUG,
    [FSDP_ERR_NOMEM] = FSDP_EXIT_IO, /* a lack of memory counts as an I/O failure, as a full disk does */
    [FSDP_ERR_IO] = FSDP_EXIT_IO,
    [FSDP_ERR_NOT_FOUND] = FSDP_EXIT_INPUT,
    [FSDP_ERR_FORMAT] = FSDP_EXIT_INPUT,
    [FSDP_ERR_MISMATCH] = FSDP_EXIT_INPUT,
    [FSDP_ERR_CONFIG] = FSDP_EXIT_CONFIG,
    [FSDP_ERR_UNSUPPORTED] = FSDP_EXIT_CONFIG,
    [FSDP_ERR_PEER] = FSDP_EXIT_PEER,
    [FSDP_ERR_BUSY] = FSDP_EXIT_CONFIG,
    [FSDP_ERR_DEVICE] = FSDP_EXIT_DEVICE,
    [FSDP_ERR_NOT_FINITE] = FSDP_EXIT_DIVERGED,
};

int exit_status_of(enum fsdp_status status)
{
    return (unsigned)status < FSDP_STATUS_COUNT ? statuses[status] : FSDP_EXIT_BUG;
}

int exit_status_of_request(enum fsdp_status status)
{
    return status == FSDP_ERR_CONFIG ? FSDP_EXIT_USAGE : exit_status_of(status);
}
