#include "shard_runtime/numerics/cuda_plan.h"

#include <stdlib.h>

#include "shard_runtime/numerics/cuda_plan_attention.h"
#include "shard_runtime/numerics/matmul_desc.h"

/* As the kernels cut their work: column_sum.cu, sum_powers.cu, norm_backward.cu, embedding_backward.cu. */
enum {
    SUM_CHUNK_ROWS = 128,
    SUM_MAX_CHUNKS = 128,
    NORM_CHUNK_ELEMS = 16384,
    NORM_BLOCK_ROWS = 4, /* a warp each */
    NORM_MAX_BLOCKS = 256,
    NORM_TILE = 32 * 8,
    NORM_LONG_ROW = 2048, /* a block each */
    EMBEDDING_PIECE_ROWS = 32,
    MATMUL_AUX_MULTIPLE = 8,
};

static size_t parts_of(size_t n, size_t each)
{
    return n / each + (n % each != 0);
}

size_t cuda_plan_column_sum_bytes(size_t rows, size_t cols)
{
    const size_t even = parts_of(rows, SUM_MAX_CHUNKS);

    return parts_of(rows, even > SUM_CHUNK_ROWS ? even : SUM_CHUNK_ROWS) * cols * sizeof(double);
}

size_t cuda_plan_embedding_backward_bytes(size_t rows, size_t cols)
{
    return 2 * rows * sizeof(uint64_t) + 2 * parts_of(rows, EMBEDDING_PIECE_ROWS) * cols * sizeof(float);
}

size_t cuda_plan_cross_entropy_bytes(size_t rows)
{
    return rows * sizeof(double);
}

size_t cuda_plan_sum_powers_bytes(size_t n_elems)
{
    return parts_of(n_elems, NORM_CHUNK_ELEMS) * sizeof(double);
}

size_t cuda_plan_norm_backward_bytes(size_t rows, size_t cols)
{
    const size_t padded = parts_of(cols, NORM_TILE) * NORM_TILE;
    size_t blocks = parts_of(rows, padded > NORM_LONG_ROW ? 1 : NORM_BLOCK_ROWS);

    if (blocks > NORM_MAX_BLOCKS)
        blocks = NORM_MAX_BLOCKS;
    return blocks * 2 * padded * sizeof(float);
}

/* --- the row --------------------------------------------------------------------------------------------- */

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

/* As cuda/matmul.c: what shapes alone refuse. That cuBLASLt has an algorithm for the rest is taken for granted. */
static bool has_beside(const struct matmul_desc *desc)
{
    const bool has_z = desc->beside != MATMUL_SUMS_OF_A && desc->beside != MATMUL_SUMS_OF_B;

    return desc->outer * desc->inner == 1 && !matmul_is_empty(desc) && desc->k > 0 && !desc->accumulate &&
           (!desc->bias || desc->beside == MATMUL_BEFORE_GELU) &&
           (!has_z || desc->n % MATMUL_AUX_MULTIPLE == 0);
}

/* Their scratch is the workspace, which is not the arena's. */
static enum fsdp_status create_matmul(struct numerics *numerics, const struct matmul_desc *desc,
                                      struct matmul **out, size_t *scratch_bytes, struct fsdp_err *err)
{
    struct matmul_desc alone = *desc;
    enum fsdp_status status;

    (void)numerics;
    *out = NULL;
    *scratch_bytes = 0;
    alone.beside = MATMUL_NOTHING;
    status = matmul_desc_check(&alone, err);
    if (status == FSDP_OK && desc->beside != MATMUL_NOTHING && !has_beside(desc))
        status = fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "matmul: nothing is left beside such a product");
    if (status != FSDP_OK)
        return status;
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

static size_t norm_scratch(struct numerics *numerics, size_t rows, size_t cols)
{
    (void)numerics;
    return cuda_plan_norm_backward_bytes(rows, cols);
}

/* As with run_beside: that there is one decides what fuses. */
static void add_layer_norm(struct numerics *numerics, struct device_stream *stream, enum fsdp_dtype dtype,
                           const struct numerics_add_norm *norm)
{
    (void)numerics, (void)stream, (void)dtype, (void)norm;
}

/* The same: it decides how logits are stored. */
static void loss(struct numerics *numerics, struct device_stream *stream, const struct numerics_loss *run,
                 double *loss_sum, uint64_t *n_targets)
{
    (void)numerics, (void)stream, (void)run, (void)loss_sum, (void)n_targets;
}

static const struct numerics_bf16 bf16 = { .layer_norm_scratch = norm_scratch };

const struct numerics_ops numerics_cuda_plan_ops = {
    .name = "cuda",
    .open = open_row,
    .close = close_row,
    .matmul_create = create_matmul,
    .matmul_destroy = destroy_matmul,
    .matmul_run_beside = run_beside,
    .layer_norm_scratch = norm_scratch,
    .add_layer_norm = add_layer_norm,
    .loss = loss,
    .attention_create = create_attention,
    .attention_destroy = destroy_attention,
    .bf16 = &bf16,
};
