/*
 * The back end `plain`, which needs no library. Products are computed as in the reference. All other
 * operations are as fast as in `onednn`, and use threads.
 */
#include <stdio.h>
#include <stdlib.h>

#include "shard_runtime/numerics/ref.h"
#include "shard_runtime/numerics/rows.h"

static enum fsdp_status plain_open(struct numerics *numerics, struct fsdp_err *err)
{
    enum fsdp_status status;
    struct rows *rows = malloc(sizeof *rows);

    if (rows == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "numerics plain: no memory for its state");
    status = rows_init(rows, err);
    if (status != FSDP_OK) {
        free(rows);
        return status;
    }
    numerics->state = rows;
    return FSDP_OK;
}

static void plain_close(struct numerics *numerics)
{
    free(numerics->state);
}

static void plain_describe(const struct numerics *numerics, char *buffer, size_t size)
{
    const struct rows *rows = numerics->state;

    (void)snprintf(buffer, size, "(rows %s)", rows->kernels->isa);
}

const struct numerics_ops numerics_plain_ops = { .name = "plain",
                                                 .open = plain_open,
                                                 .close = plain_close,
                                                 .describe = plain_describe,
                                                 .matmul_create = ref_matmul_create,
                                                 .matmul_destroy = ref_matmul_destroy,
                                                 .matmul_run = ref_matmul_run,
                                                 ROWS_SLOTS };
