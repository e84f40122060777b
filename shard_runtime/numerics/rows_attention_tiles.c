/*
 * Chooses the blocks of queries. The scores of a block with all keys take at most BLOCK_BYTES, so that they
 * stay in the cache between writing and reading. But a block has at least LEAST_ROWS queries (or all of
 * them), even if that takes more memory. Several heads, and then several samples, share one product as long
 * as their blocks fit in BLOCK_BYTES per thread. The blocks depend only on the shape.
 */
#include <stdlib.h>

#include "shard_runtime/core/checked.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/numerics/matmul_desc.h"
#include "shard_runtime/numerics/rows_attention.h"

enum {
    BLOCK_BYTES = 256 << 10, /* scores of one block; backward needs as much again for their gradients */
    LEAST_ROWS = 128,
};

static size_t aligned(size_t size_bytes)
{
    return round_up(size_bytes, 64);
}

/* Shapes */

static size_t largest_divisor(size_t n, size_t most)
{
    for (size_t d = most < n ? most : n; d > 1; d--)
        if (n % d == 0)
            return d;
    return 1;
}

static void choose_blocks(struct fused_attention *a)
{
    const struct attention_desc *d = &a->desc.shape;
    const size_t row_bytes = d->seq * sizeof(float), room = BLOCK_BYTES * (size_t)a->numerics->threads;
    size_t block = BLOCK_BYTES / row_bytes / LEAST_ROWS * LEAST_ROWS, head_bytes;

    if (block < LEAST_ROWS)
        block = LEAST_ROWS;
    a->block = block < d->seq ? block : d->seq;
    a->n_blocks = (d->seq - 1) / a->block + 1;
    head_bytes = a->block * row_bytes;
    a->heads = largest_divisor(d->heads, room / head_bytes);
    a->samples = a->heads == d->heads ? largest_divisor(d->batch, room / (head_bytes * d->heads)) : 1;
}

static size_t rows_of(const struct fused_attention *a, size_t block)
{
    const size_t left = a->desc.shape.seq - block * a->block;

    return left < a->block ? left : a->block;
}

static size_t keys_of(const struct fused_attention *a, size_t block)
{
    const struct attention_desc *d = &a->desc.shape;
    const size_t step = ((a->n_blocks - 1) / ATTENTION_KEY_STEPS + 1) * a->block;
    const size_t seen = round_up(block * a->block + rows_of(a, block), step);

    return d->causal && seen < d->seq ? seen : d->seq;
}

static bool adds_of(const struct fused_attention *a, size_t block)
{
    return block + 1 < a->n_blocks;
}

const struct attention_tile *attention_tile_of(const struct fused_attention *a, size_t block)
{
    for (int i = 0; i < a->n_tiles; i++)
        if (a->tiles[i].rows == rows_of(a, block) && a->tiles[i].keys == keys_of(a, block) &&
            a->tiles[i].adds == adds_of(a, block))
            return &a->tiles[i];
    return NULL;
}

/* Products */

/*
 * Views of a call's matrices: in_tensor() of one stored in a tensor such as q, in_scratch() of one stored in
 * the scratch.
 */
static struct matmul_view in_tensor(const struct fused_attention *a, size_t stride)
{
    return (struct matmul_view){ .outer_stride = a->desc.shape.seq * stride,
                                 .inner_stride = a->desc.shape.head_dim,
                                 .row_stride = stride,
                                 .col_stride = 1 };
}

static struct matmul_view in_scratch(const struct fused_attention *a, size_t rows, size_t cols)
{
    return (struct matmul_view){ .outer_stride = a->heads * rows * cols,
                                 .inner_stride = rows * cols,
                                 .row_stride = cols,
                                 .col_stride = 1 };
}

static enum fsdp_status make(struct fused_attention *a, struct matmul_desc desc, struct matmul **out,
                             struct fsdp_err *err)
{
    enum fsdp_status status;
    size_t scratch = 0;

    desc.outer = a->samples;
    desc.inner = a->heads;
    desc.dtype = a->desc.dtype;
    status = a->numerics->ops->matmul_create(a->numerics, &desc, out, &scratch, err);
    if (scratch > a->product_scratch)
        a->product_scratch = scratch;
    return status;
}

static enum fsdp_status make_tile(struct fused_attention *a, struct attention_tile *tile,
                                  struct fsdp_err *err)
{
    const struct fused_attention_desc *d = &a->desc;
    const size_t rows = tile->rows, keys = tile->keys, E = d->shape.head_dim;
    const struct matmul_view q = in_tensor(a, d->q_stride), k = in_tensor(a, d->k_stride),
                             v = in_tensor(a, d->v_stride), out = in_tensor(a, d->out_stride),
                             scores = in_scratch(a, rows, keys), sums = in_scratch(a, d->shape.seq, E),
                             dk = a->sums_beside ? sums : k, dv = a->sums_beside ? sums : v,
                             k_t = matmul_transposed(k), v_t = matmul_transposed(v),
                             scores_t = matmul_transposed(scores);
    const enum fsdp_dtype sum = a->sums_beside ? FSDP_F32 : d->dtype;
    const struct {
        struct matmul **product;
        size_t m, n, k;
        struct matmul_view a, b, c;
        enum fsdp_dtype c_dtype;
        bool accumulate;
        float alpha;
    } products[] = {
        /* clang-format off */
        { &tile->scores,         rows, keys, E,    q,        k_t, scores, FSDP_F32, false,      d->scale },
        { &tile->out,            rows, E,    keys, scores,   v,   out,    d->dtype, false,      1.0f },
        { &tile->dprobabilities, rows, keys, E,    out,      v_t, scores, FSDP_F32, false,      1.0f },
        { &tile->dq,             rows, E,    keys, scores,   k,   q,      d->dtype, false,      d->scale },
        { &tile->dk,             keys, E,    rows, scores_t, q,   dk,     sum,      tile->adds, d->scale },
        { &tile->dv,             keys, E,    rows, scores_t, out, dv,     sum,      tile->adds, 1.0f },
        /* clang-format on */
    };

    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        OK_OR_RETURN(make(a,
                          (struct matmul_desc){ .m = products[i].m,
                                                .n = products[i].n,
                                                .k = products[i].k,
                                                .a = products[i].a,
                                                .b = products[i].b,
                                                .c = products[i].c,
                                                .c_dtype = products[i].c_dtype,
                                                .accumulate = products[i].accumulate,
                                                .alpha = products[i].alpha },
                          products[i].product, err));
    return FSDP_OK;
}

/* Scratch */

static void lay_out(struct fused_attention *a)
{
    const struct attention_desc *d = &a->desc.shape;
    const size_t heads = a->samples * a->heads, n = heads * a->block * d->seq;

    a->wide_bytes = aligned(n * sizeof(float));
    a->beside_bytes = a->beside ? aligned(n * fsdp_dtype_size(a->desc.dtype)) : 0;
    a->sums_bytes = a->sums_beside ? aligned(heads * d->seq * d->head_dim * sizeof(float)) : 0;
}

static size_t scratch_bytes(const struct fused_attention *a, bool backward)
{
    return a->wide_bytes + a->beside_bytes + (backward ? a->wide_bytes + 2 * a->sums_bytes : 0) +
           a->product_scratch;
}

struct attention_areas attention_areas_of(const struct fused_attention *a, bool backward, char *scratch)
{
    char *behind = scratch + a->wide_bytes + a->beside_bytes;
    struct attention_areas areas = { .p = (float *)(void *)scratch,
                                     .d = a->beside ? scratch + a->wide_bytes : scratch,
                                     .product = behind };

    if (!backward)
        return areas;
    areas.dp = (float *)(void *)behind;
    areas.ds = a->desc.dtype == FSDP_F32 ? behind : areas.d;
    areas.dk = (float *)(void *)(behind + a->wide_bytes);
    areas.dv = (float *)(void *)(behind + a->wide_bytes + a->sums_bytes);
    areas.product = behind + a->wide_bytes + 2 * a->sums_bytes;
    return areas;
}

/* Create */

enum fsdp_status rows_attention_create(struct numerics *numerics, const struct fused_attention_desc *desc,
                                       struct fused_attention **out, size_t *forward_scratch,
                                       size_t *backward_scratch, struct fsdp_err *err)
{
    struct fused_attention *a;
    enum fsdp_status status = FSDP_OK;

    *out = NULL;
    OK_OR_RETURN(attention_desc_check(desc, err));
    a = calloc(1, sizeof *a);
    if (a == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "attention: no memory for a description");
    a->numerics = numerics;
    a->desc = *desc;
    choose_blocks(a);
    a->beside = desc->drops || desc->dtype != FSDP_F32;
    a->sums_beside = desc->dtype != FSDP_F32 && a->n_blocks > 1;
    for (size_t block = 0; status == FSDP_OK && block < a->n_blocks; block++) {
        if (attention_tile_of(a, block) != NULL)
            continue;
        a->tiles[a->n_tiles] = (struct attention_tile){ .rows = rows_of(a, block),
                                                        .keys = keys_of(a, block),
                                                        .adds = adds_of(a, block) };
        status = make_tile(a, &a->tiles[a->n_tiles++], err);
    }
    if (status != FSDP_OK) {
        fsdp_wrap(err, "attention");
        rows_attention_destroy(a);
        return status;
    }
    lay_out(a);
    *forward_scratch = scratch_bytes(a, false);
    *backward_scratch = scratch_bytes(a, true);
    *out = a;
    return FSDP_OK;
}

void rows_attention_destroy(struct fused_attention *attention)
{
    if (attention == NULL)
        return;
    for (int i = 0; i < attention->n_tiles; i++) {
        const struct attention_tile *t = &attention->tiles[i];
        struct matmul *const products[] = { t->scores, t->out, t->dprobabilities, t->dq, t->dk, t->dv };

        for (size_t j = 0; j < sizeof products / sizeof *products; j++)
            attention->numerics->ops->matmul_destroy(products[j]);
    }
    free(attention);
}
