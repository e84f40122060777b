#include "shard_runtime/numerics/cuda_plan.h"

#include <stdlib.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/numerics/cuda_plan_attention.h"
#include "shard_runtime/numerics/cuda_shapes.h"
#include "shard_runtime/numerics/matmul_desc.h"

struct matmul {
    struct matmul_desc desc;
};

struct fused_attention {
    struct fused_attention_desc desc;
};

static enum fsdp_status open_row(struct numerics *numerics, struct fsdp_err *err)
{
    (void)err;
    numerics->bf16_products = true;
    return FSDP_OK;
}

static void close_row(struct numerics *numerics)
{
    (void)numerics;
}

/* A product's scratch is cuBLASLt's workspace, which is not carved from the plan's arena. */
static enum fsdp_status create_matmul(struct numerics *numerics, const struct matmul_desc *desc,
                                      struct matmul **out, size_t *scratch_bytes, struct fsdp_err *err)
{
    struct matmul_desc alone = *desc;

    (void)numerics;
    *out = NULL;
    *scratch_bytes = 0;
    alone.beside = MATMUL_NOTHING;
    OK_OR_RETURN(matmul_desc_check(&alone, err));
    if (desc->beside != MATMUL_NOTHING && !cuda_takes_beside(desc))
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "matmul: such a product writes no second result");
    *out = malloc(sizeof **out);
    if (*out == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "planning a product: out of memory");
    (*out)->desc = *desc;
    return FSDP_OK;
}

/* Only that it is there decides anything. */
static enum fsdp_status run_beside(struct matmul *matmul, struct device_stream *stream, const void *a,
                                   const void *b, const void *bias, void *beside, void *c, void *scratch,
                                   struct fsdp_err *err)
{
    (void)matmul, (void)stream, (void)a, (void)b, (void)bias, (void)beside, (void)c, (void)scratch;
    return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "a plan computes nothing");
}

static void destroy_matmul(struct matmul *matmul)
{
    free(matmul);
}

static enum fsdp_status create_attention(struct numerics *numerics, const struct fused_attention_desc *desc,
                                         struct fused_attention **out, size_t *forward_scratch,
                                         size_t *backward_scratch, struct fsdp_err *err)
{
    enum cuda_attention choice;
    enum fsdp_status status = cuda_attention_choice(&choice, err);

    (void)numerics;
    *out = NULL;
    if (status != FSDP_OK)
        return status;
    *out = malloc(sizeof **out);
    if (*out == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "planning attention: out of memory");
    (*out)->desc = *desc;
    cuda_plan_attention_scratch(choice, desc, forward_scratch, backward_scratch);
    return FSDP_OK;
}

static void destroy_attention(struct fused_attention *attention)
{
    free(attention);
}

static size_t norm_scratch(struct numerics *numerics, enum fsdp_dtype dtype, size_t rows, size_t cols)
{
    (void)numerics, (void)dtype;
    return cuda_norm_backward_bytes(rows, cols);
}

const struct numerics_ops numerics_cuda_plan_ops = {
    .name = "cuda",
    .open = open_row,
    .close = close_row,
    .takes_bf16 = true,
    .takes_padded_logits = true,
    .matmul_create = create_matmul,
    .matmul_destroy = destroy_matmul,
    .matmul_run_beside = run_beside,
    .attention_create = create_attention,
    .attention_destroy = destroy_attention,
    .norm_scratch = norm_scratch,
};
