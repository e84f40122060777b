/*
 * Attention by the matrix products of the back end itself, one block of queries at a time:
 *   1. The scores of the block's queries with all keys. With a causal mask: only with the keys that the
 *      block's last query sees, their number rounded up.
 *   2. Softmax over whole rows, and dropout.
 *   3. The product with v.
 *
 * Backward computes the probabilities again. numerics.h defines P, D, dP and dS. The results have the same
 * bits for any number of threads if those of the products do.
 */
#include "shard_runtime/numerics/rows_attention.h"

#include <string.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/numerics/dropout.h"
#include "shard_runtime/numerics/parallel.h"

/* Rows of a tile */

/*
 * One call of the products: one block of queries, for a->samples samples from `b` on and a->heads heads from
 * `h` on.
 */
struct call {
    const struct fused_attention *a;
    const struct attention_tile *tile;
    const struct attention_areas *areas;
    const struct dropout *dropout;
    float *lse; /* NULL: the caller does not need it */
    const float *kept_lse;
    size_t b, h, first; /* `first`: first query of the block */
};

/*
 * A row of the call's scores. It has its query `i`, its index among the queries of all samples and heads, and
 * the number of keys that it sees.
 */
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

/*
 * Computes row r of D from `p`, its row of P. In bfloat16, D is first computed as float32 in `wide`, which
 * may be `p` itself.
 */
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

/*
 * Replaces rows of dP by rows of dS. The backward of softmax covers only the keys that a query sees; the
 * other elements of its row are set to 0.
 */
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

/* Run */

/*
 * Returns the address of the call's part of a tensor, from position `t` on. Returns NULL for a NULL tensor.
 */
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

    OK_OR_RETURN(multiply(c, c->tile->scores, stream, part(c, run->q, d->q_stride, c->first),
                          part(c, run->k, d->k_stride, 0), c->areas->p, err));
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

    OK_OR_RETURN(multiply(c, c->tile->scores, stream, q, k, c->areas->p, err));
    each_row(c, again_piece);
    if (run->dv != NULL)
        OK_OR_RETURN(multiply(c, c->tile->dv, stream, c->areas->d, dout, dv, err));
    if (run->dq == NULL && run->dk == NULL)
        return FSDP_OK;
    OK_OR_RETURN(multiply(c, c->tile->dprobabilities, stream, dout, v, c->areas->dp, err));
    each_row(c, gradient_piece);
    if (run->dq != NULL)
        OK_OR_RETURN(
            multiply(c, c->tile->dq, stream, c->areas->ds, k, part(c, run->dq, d->q_stride, c->first), err));
    if (run->dk != NULL)
        OK_OR_RETURN(multiply(c, c->tile->dk, stream, c->areas->ds, q, dk, err));
    return FSDP_OK;
}

/*
 * Rounds the float32 sums of this call, (samples * heads * seq) rows, into `gradient`. A NULL gradient is not
 * wanted.
 */
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
    const struct attention_areas areas = attention_areas_of(a, false, run->scratch);

    for (size_t b = 0; b < d->batch; b += a->samples)
        for (size_t h = 0; h < d->heads; h += a->heads)
            for (size_t block = 0; block < a->n_blocks; block++) {
                struct call c = { .a = a,
                                  .tile = attention_tile_of(a, block),
                                  .areas = &areas,
                                  .dropout = run->dropout,
                                  .lse = run->lse,
                                  .b = b,
                                  .h = h,
                                  .first = block * a->block };

                OK_OR_RETURN(forward_block(&c, run, stream, err));
            }
    return FSDP_OK;
}

enum fsdp_status rows_attention_backward(struct fused_attention *a, struct device_stream *stream,
                                         const struct fused_attention_backward *run, struct fsdp_err *err)
{
    const struct attention_desc *d = &a->desc.shape;
    const struct attention_areas areas = attention_areas_of(a, true, run->scratch);

    for (size_t b = 0; b < d->batch; b += a->samples)
        for (size_t h = 0; h < d->heads; h += a->heads) {
            struct call c = {
                .a = a, .areas = &areas, .dropout = run->dropout, .kept_lse = run->lse, .b = b, .h = h
            };

            for (size_t block = a->n_blocks; block-- > 0;) {
                c.tile = attention_tile_of(a, block);
                c.first = block * a->block;
                OK_OR_RETURN(backward_block(&c, run, stream, err));
            }
            if (a->sums_beside) {
                round_sums(&c, areas.dk, run->dk, a->desc.k_stride);
                round_sums(&c, areas.dv, run->dv, a->desc.v_stride);
            }
        }
    return FSDP_OK;
}
