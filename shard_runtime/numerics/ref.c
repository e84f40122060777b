#include "shard_runtime/numerics/ref.h"

static enum fsdp_status ref_open(struct numerics *numerics, struct fsdp_err *err)
{
    (void)err;
    numerics->threads = 1; /* always one, whatever was asked for: this number goes into the manifest */
    return FSDP_OK;
}

static void ref_close(struct numerics *numerics)
{
    (void)numerics;
}

static size_t ref_norm_scratch(struct numerics *numerics, enum fsdp_dtype dtype, size_t rows, size_t cols)
{
    (void)numerics, (void)dtype, (void)rows, (void)cols;
    return 0;
}

#define REF_SLOT(operation) .operation = ref_##operation,

const struct numerics_ops numerics_ref_ops = { .name = "ref",
                                               .open = ref_open,
                                               .close = ref_close,
                                               .matmul_create = ref_matmul_create,
                                               .matmul_destroy = ref_matmul_destroy,
                                               .matmul_run = ref_matmul_run,
                                               .attention_create = ref_attention_create,
                                               .attention_destroy = ref_attention_destroy,
                                               .attention_forward = ref_attention_forward,
                                               .attention_backward = ref_attention_backward,
                                               .norm_scratch = ref_norm_scratch,
                                               NUMERICS_OPERATIONS(REF_SLOT) };
