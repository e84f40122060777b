/*
 * Attention by the row's own products on a block of queries at a time: their scores with all keys (with those that
 * the last of them sees, rounded up, when causal), softmax over whole rows, the product with v; backward makes the
 * probabilities again. A block with all its keys is at most BLOCK_BYTES where that leaves it LEAST_ROWS to multiply, so that it is
 * written and read in the cache; several heads, and samples, share a product while they fit there.
 *
 * Which blocks there are depends on the shape alone: same bits for any number of threads, up to the products'.
 */
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/numerics/attention_desc.h"
#include "shard_runtime/numerics/dropout.h"
#include "shard_runtime/numerics/parallel.h"
#include "shard_runtime/numerics/rows_cut.h"

enum {
    BLOCK_BYTES = 256 << 10, /* of scores; backward has their gradients beside them */
    LEAST_ROWS = 128,
    KEY_STEPS = 4, /* causal: how many numbers of keys there are products for */
    MAX_TILES = 2 * KEY_STEPS + 2
};

/* The products of a block of `rows` queries with `keys` keys. The last block is the first to be run backward: it sees
 * all keys and overwrites dk and dv, the others add. */
struct tile {
    size_t rows, keys;
    bool adds;
    struct matmul *scores, *out, *dprobabilities, *dq, *dk, *dv;
};

struct fused_attention {
    struct numerics *numerics;
    struct fused_attention_desc desc;
    size_t samples, heads, block; /* of one call of a product; queries of a block */
    size_t n_blocks;
    struct tile tiles[MAX_TILES];
    int n_tiles;
    bool beside;      /* D and dS do not lie where P and dP lie: other elements, or both are wanted */
    bool sums_beside; /* dk and dv are summed in float32 and rounded at the end */
    size_t product_scratch, wide_bytes, beside_bytes, sums_bytes;
};

static size_t aligned(size_t size_bytes)
{
    return (size_bytes + 63) / 64 * 64;
}

/* --- shapes --- */

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
    const size_t step = ((a->n_blocks - 1) / KEY_STEPS + 1) * a->block;
    const size_t seen = (block * a->block + rows_of(a, block) + step - 1) / step * step;

    return d->causal && seen < d->seq ? seen : d->seq;
}

static bool adds_of(const struct fused_attention *a, size_t block)
{
    return block + 1 < a->n_blocks;
}

static const struct tile *find_tile(const struct fused_attention *a, size_t block)
{
    for (int i = 0; i < a->n_tiles; i++)
        if (a->tiles[i].rows == rows_of(a, block) && a->tiles[i].keys == keys_of(a, block) &&
            a->tiles[i].adds == adds_of(a, block))
            return &a->tiles[i];
    return NULL;
}

/* --- products --- */

/* Of a call's matrices: those that lie in a tensor, and a tile's of scores. */
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

static struct matmul_view transposed(struct matmul_view view)
{
    const size_t row_stride = view.row_stride;

    view.row_stride = view.col_stride;
    view.col_stride = row_stride;
    return view;
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

static enum fsdp_status make_tile(struct fused_attention *a, struct tile *tile, struct fsdp_err *err)
{
    const struct fused_attention_desc *d = &a->desc;
    const size_t m = tile->rows, n = tile->keys, E = d->shape.head_dim;
    const struct matmul_view q = in_tensor(a, d->q_stride), k = in_tensor(a, d->k_stride),
                             v = in_tensor(a, d->v_stride), out = in_tensor(a, d->out_stride),
                             scores = in_scratch(a, m, n), sums = in_scratch(a, d->shape.seq, E);
    const enum fsdp_dtype sum_dtype = a->sums_beside ? FSDP_F32 : d->dtype;
    enum fsdp_status status;

    status = make(a,
                  (struct matmul_desc){ .m = m,
                                        .n = n,
                                        .k = E,
                                        .a = q,
                                        .b = transposed(k),
                                        .c = scores,
                                        .c_dtype = FSDP_F32,
                                        .alpha = d->scale },
                  &tile->scores, err);
    if (status == FSDP_OK)
        status = make(
            a,
            (struct matmul_desc){
                .m = m, .n = E, .k = n, .a = scores, .b = v, .c = out, .c_dtype = d->dtype, .alpha = 1.0f },
            &tile->out, err);
    if (status == FSDP_OK)
        status = make(a,
                      (struct matmul_desc){ .m = m,
                                            .n = n,
                                            .k = E,
                                            .a = out,
                                            .b = transposed(v),
                                            .c = scores,
                                            .c_dtype = FSDP_F32,
                                            .alpha = 1.0f },
                      &tile->dprobabilities, err);
    if (status == FSDP_OK)
        status = make(
            a,
            (struct matmul_desc){
                .m = m, .n = E, .k = n, .a = scores, .b = k, .c = q, .c_dtype = d->dtype, .alpha = d->scale },
            &tile->dq, err);
    if (status == FSDP_OK)
        status = make(a,
                      (struct matmul_desc){ .m = n,
                                            .n = E,
                                            .k = m,
                                            .a = transposed(scores),
                                            .b = q,
                                            .c = a->sums_beside ? sums : k,
                                            .c_dtype = sum_dtype,
                                            .accumulate = tile->adds,
                                            .alpha = d->scale },
                      &tile->dk, err);
    if (status == FSDP_OK)
        status = make(a,
                      (struct matmul_desc){ .m = n,
                                            .n = E,
                                            .k = m,
                                            .a = transposed(scores),
                                            .b = out,
                                            .c = a->sums_beside ? sums : v,
                                            .c_dtype = sum_dtype,
                                            .accumulate = tile->adds,
                                            .alpha = 1.0f },
                      &tile->dv, err);
    return status;
}

/* --- scratch --- */

/* In this order: scores or probabilities; D or dS, where they are not in the place of P and dP; dP; the sums of dk and
 * dv; a product's own. */
struct areas {
    float *p, *dp, *dk, *dv;
    void *d, *ds, *product;
};

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

static struct areas areas_of(const struct fused_attention *a, bool backward, char *scratch)
{
    char *behind = scratch + a->wide_bytes + a->beside_bytes;
    struct areas areas = { .p = (float *)(void *)scratch,
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

/* --- create --- */

enum fsdp_status rows_attention_create(struct numerics *numerics, const struct fused_attention_desc *desc,
                                       struct fused_attention **out, size_t *forward_scratch,
                                       size_t *backward_scratch, struct fsdp_err *err)
{
    struct fused_attention *a;
    enum fsdp_status status;

    *out = NULL;
    status = attention_desc_check(desc, err);
    if (status != FSDP_OK)
        return status;
    a = calloc(1, sizeof *a);
    if (a == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "attention: no memory for a description");
    a->numerics = numerics;
    a->desc = *desc;
    choose_blocks(a);
    a->beside = desc->drops || desc->dtype != FSDP_F32;
    a->sums_beside = desc->dtype != FSDP_F32 && a->n_blocks > 1;
    for (size_t block = 0; status == FSDP_OK && block < a->n_blocks; block++) {
        if (find_tile(a, block) != NULL)
            continue;
        a->tiles[a->n_tiles] =
            (struct tile){ .rows = rows_of(a, block), .keys = keys_of(a, block), .adds = adds_of(a, block) };
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
        const struct tile *t = &attention->tiles[i];
        struct matmul *const products[] = { t->scores, t->out, t->dprobabilities, t->dq, t->dk, t->dv };

        for (size_t j = 0; j < sizeof products / sizeof *products; j++)
            attention->numerics->ops->matmul_destroy(products[j]);
    }
    free(attention);
}

/* --- rows of a tile --- */

/* One call: the samples and heads from b and h on, and a block of their queries. */
struct call {
    const struct fused_attention *a;
    const struct tile *tile;
    const struct areas *areas;
    const struct dropout *dropout;
    float *lse; /* NULL: nobody keeps it */
    const float *kept_lse;
    size_t b, h, first; /* first: query of the block */
};

/* Row r of the call's scores: its query, and its place among all queries of all samples and heads. */
struct query {
    size_t i, row, keys;
};

static struct query query_of(const struct call *c, size_t r)
{
    const struct attention_desc *d = &c->a->desc.shape;
    const size_t head = r / c->tile->rows, i = c->first + r % c->tile->rows;
    const size_t sample = c->b + head / c->a->heads, h = c->h + head % c->a->heads;

    return (
        struct query){ .i = i, .row = (sample * d->heads + h) * d->seq + i, .keys = attention_keys(d, i) };
}

/* D of a row of P; of bfloat16 by way of `wide`, which may be p. */
static void write_d(const struct call *c, const struct query *query, const float *p, float *wide, size_t r)
{
    const struct row_kernels *kernels = kernels_of(c->a->numerics);
    const size_t cols = c->tile->keys;
    const bool narrows = c->a->desc.dtype != FSDP_F32;
    float *out = narrows ? wide : (float *)c->areas->d + r * cols;

    if (dropout_is_on(c->dropout))
        kernels->dropout(p, out, 1, cols, c->dropout, c->dropout->first_row + query->row, false);
    else if (narrows)
        out = (float *)(uintptr_t)p;
    else if (out != p)
        memcpy(out, p, cols * sizeof *p);
    if (narrows)
        kernels->to_bf16(out, (uint16_t *)c->areas->d + r * cols, cols);
}

static void softmax_piece(void *context, size_t begin, size_t end)
{
    const struct call *c = context;
    const struct row_kernels *kernels = kernels_of(c->a->numerics);

    for (size_t r = begin; r < end; r++) {
        const struct query query = query_of(c, r);
        float *p = c->areas->p + r * c->tile->keys;
        const float lse = kernels->attention_softmax(p, query.keys, c->tile->keys);

        if (c->lse != NULL)
            c->lse[query.row] = lse;
        write_d(c, &query, p, p, r);
    }
}

static void again_piece(void *context, size_t begin, size_t end)
{
    const struct call *c = context;

    for (size_t r = begin; r < end; r++) {
        const struct query query = query_of(c, r);
        float *p = c->areas->p + r * c->tile->keys;

        kernels_of(c->a->numerics)->attention_again(p, c->kept_lse[query.row], query.keys, c->tile->keys);
        write_d(c, &query, p, c->areas->dp + r * c->tile->keys, r);
    }
}

/* dP's row becomes dS's. What a query does not see is no part of its row. */
static void gradient_piece(void *context, size_t begin, size_t end)
{
    const struct call *c = context;
    const struct row_kernels *kernels = kernels_of(c->a->numerics);
    const size_t cols = c->tile->keys;

    for (size_t r = begin; r < end; r++) {
        const struct query query = query_of(c, r);
        float *dp = c->areas->dp + r * cols;
        struct dropout here = { .p = 0 };

        if (dropout_is_on(c->dropout)) {
            here = *c->dropout;
            here.first_row += query.row;
        }
        kernels->softmax_backward(c->areas->p + r * cols, dp, dp, 0, 1, query.keys, false, &here);
        memset(dp + query.keys, 0, (cols - query.keys) * sizeof *dp);
        if (c->a->desc.dtype != FSDP_F32)
            kernels->to_bf16(dp, (uint16_t *)c->areas->ds + r * cols, cols);
    }
}

static void each_row(struct call *c, parallel_piece *piece)
{
    const struct fused_attention *a = c->a;
    const size_t rows = a->samples * a->heads * c->tile->rows;

    parallel_for(a->numerics->threads, rows, row_grain(c->tile->keys), piece, c);
}

/* --- run --- */

/* Where the call's part of a tensor begins: NULL of NULL. */
static char *part(const struct call *c, const void *tensor, size_t stride, size_t t)
{
    return tensor == NULL
               ? NULL
               : (char *)(uintptr_t)tensor + attention_at(&c->a->desc.shape, stride, c->b, t, c->h) *
                                                 fsdp_dtype_size(c->a->desc.dtype);
}

static enum fsdp_status multiply(const struct call *c, struct matmul *product, struct device_stream *stream,
                                 const void *a, const void *b, void *out, struct fsdp_err *err)
{
    return c->a->numerics->ops->matmul_run(product, stream, a, b, NULL, out, c->areas->product, err);
}

static enum fsdp_status forward_block(struct call *c, const struct fused_attention_forward *run,
                                      struct device_stream *stream, struct fsdp_err *err)
{
    const struct fused_attention_desc *d = &c->a->desc;
    enum fsdp_status status;

    status = multiply(c, c->tile->scores, stream, part(c, run->q, d->q_stride, c->first),
                      part(c, run->k, d->k_stride, 0), c->areas->p, err);
    if (status != FSDP_OK)
        return status;
    each_row(c, softmax_piece);
    return multiply(c, c->tile->out, stream, c->areas->d, part(c, run->v, d->v_stride, 0),
                    part(c, run->out, d->out_stride, c->first), err);
}

static enum fsdp_status backward_block(struct call *c, const struct fused_attention_backward *run,
                                       struct device_stream *stream, struct fsdp_err *err)
{
    const struct fused_attention_desc *d = &c->a->desc;
    const bool beside = c->a->sums_beside;
    const void *q = part(c, run->q, d->q_stride, c->first), *k = part(c, run->k, d->k_stride, 0),
               *v = part(c, run->v, d->v_stride, 0), *dout = part(c, run->dout, d->out_stride, c->first);
    void *dk = beside ? c->areas->dk : (void *)part(c, run->dk, d->k_stride, 0);
    void *dv = beside ? c->areas->dv : (void *)part(c, run->dv, d->v_stride, 0);
    enum fsdp_status status;

    status = multiply(c, c->tile->scores, stream, q, k, c->areas->p, err);
    if (status != FSDP_OK)
        return status;
    each_row(c, again_piece);
    if (run->dv != NULL)
        status = multiply(c, c->tile->dv, stream, c->areas->d, dout, dv, err);
    if (status != FSDP_OK || (run->dq == NULL && run->dk == NULL))
        return status;
    status = multiply(c, c->tile->dprobabilities, stream, dout, v, c->areas->dp, err);
    if (status != FSDP_OK)
        return status;
    each_row(c, gradient_piece);
    if (run->dq != NULL)
        status =
            multiply(c, c->tile->dq, stream, c->areas->ds, k, part(c, run->dq, d->q_stride, c->first), err);
    if (status == FSDP_OK && run->dk != NULL)
        status = multiply(c, c->tile->dk, stream, c->areas->ds, q, dk, err);
    return status;
}

/* Rows of (samples * heads * seq) sums, rounded into a gradient. */
static void round_sums(const struct call *c, const float *sums, void *gradient, size_t stride)
{
    const struct attention_desc *d = &c->a->desc.shape;

    for (size_t head = 0; gradient != NULL && head < c->a->samples * c->a->heads; head++)
        for (size_t t = 0; t < d->seq; t++)
            kernels_of(c->a->numerics)
                ->to_bf16(sums + (head * d->seq + t) * d->head_dim,
                          (uint16_t *)gradient + attention_at(d, stride, c->b + head / c->a->heads, t,
                                                              c->h + head % c->a->heads),
                          d->head_dim);
}

enum fsdp_status rows_attention_forward(struct fused_attention *a, struct device_stream *stream,
                                        const struct fused_attention_forward *run, struct fsdp_err *err)
{
    const struct attention_desc *d = &a->desc.shape;
    const struct areas areas = areas_of(a, false, run->scratch);
    enum fsdp_status status = FSDP_OK;

    for (size_t b = 0; b < d->batch; b += a->samples)
        for (size_t h = 0; h < d->heads; h += a->heads)
            for (size_t block = 0; status == FSDP_OK && block < a->n_blocks; block++) {
                struct call c = { .a = a,
                                  .tile = find_tile(a, block),
                                  .areas = &areas,
                                  .dropout = run->dropout,
                                  .lse = run->lse,
                                  .b = b,
                                  .h = h,
                                  .first = block * a->block };

                status = forward_block(&c, run, stream, err);
            }
    return status;
}

enum fsdp_status rows_attention_backward(struct fused_attention *a, struct device_stream *stream,
                                         const struct fused_attention_backward *run, struct fsdp_err *err)
{
    const struct attention_desc *d = &a->desc.shape;
    const struct areas areas = areas_of(a, true, run->scratch);
    enum fsdp_status status = FSDP_OK;

    for (size_t b = 0; b < d->batch; b += a->samples)
        for (size_t h = 0; h < d->heads; h += a->heads) {
            struct call c = {
                .a = a, .areas = &areas, .dropout = run->dropout, .kept_lse = run->lse, .b = b, .h = h
            };

            for (size_t block = a->n_blocks; status == FSDP_OK && block-- > 0;) {
                c.tile = find_tile(a, block);
                c.first = block * a->block;
                status = backward_block(&c, run, stream, err);
            }
            if (a->sums_beside) {
                round_sums(&c, areas.dk, run->dk, a->desc.k_stride);
                round_sums(&c, areas.dv, run->dv, a->desc.v_stride);
            }
        }
    return status;
}
