/* Attention in the notation of numerics.h, a query at a time, in double. */
#include "shard_runtime/numerics/ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/checked.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/core/rng.h"
#include "shard_runtime/numerics/attention_desc.h"
#include "shard_runtime/numerics/dropout.h"

struct fused_attention {
    struct fused_attention_desc desc;
};

static size_t aligned(size_t size_bytes)
{
    return round_up(size_bytes, 64);
}

enum fsdp_status ref_attention_create(struct numerics *numerics, const struct fused_attention_desc *desc,
                                      struct fused_attention **out, size_t *forward_scratch,
                                      size_t *backward_scratch, struct fsdp_err *err)
{
    const size_t seq = desc->shape.seq;

    (void)numerics;
    *out = NULL;
    OK_OR_RETURN(attention_desc_check(desc, err));
    if (desc->dtype != FSDP_F32)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "attention: none of %s", fsdp_dtype_name(desc->dtype));
    *out = malloc(sizeof **out);
    if (*out == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "attention: no memory for a description");
    (*out)->desc = *desc;
    *forward_scratch = aligned(seq * sizeof(double));
    *backward_scratch = aligned((3 * seq + 2 * seq * desc->shape.head_dim) * sizeof(double));
    return FSDP_OK;
}

void ref_attention_destroy(struct fused_attention *attention)
{
    free(attention);
}

/* The factor of D_ij: 0 or 1/keep. `row` counts queries of all samples and heads. */
static double kept(const struct dropout *dropout, size_t row, size_t j)
{
    uint32_t words[4];

    if (!dropout_is_on(dropout))
        return 1;
    rng_philox(dropout->key, dropout->first_row + row, j / 4, words);
    return words[j % 4] < dropout_keep_below(dropout) ? (double)dropout_scale(dropout) : 0;
}

static double dot(const float *a, const float *b, size_t n)
{
    double sum = 0;

    for (size_t e = 0; e < n; e++)
        sum += (double)a[e] * (double)b[e];
    return sum;
}

/* s[j] = scale q_i . k_j for the keys that query i sees; returns log sum_j exp(s[j]). */
static double scores_of(const struct fused_attention_desc *desc, const float *q, const float *k, size_t n,
                        double *s)
{
    double largest = -INFINITY, sum = 0;

    for (size_t j = 0; j < n; j++) {
        s[j] = (double)desc->scale * dot(q, k + j * desc->k_stride, desc->shape.head_dim);
        largest = fmax(largest, s[j]);
    }
    for (size_t j = 0; j < n; j++)
        sum += exp(s[j] - largest);
    return largest + log(sum);
}

static void forward_query(const struct fused_attention_desc *desc, const struct fused_attention_forward *run,
                          size_t b, size_t h, size_t i)
{
    const struct attention_desc *d = &desc->shape;
    const size_t row = (b * d->heads + h) * d->seq + i, n = attention_keys(d, i);
    const float *k = (const float *)run->k + attention_at(d, desc->k_stride, b, 0, h);
    const float *v = (const float *)run->v + attention_at(d, desc->v_stride, b, 0, h);
    float *out = (float *)run->out + attention_at(d, desc->out_stride, b, i, h);
    double *s = run->scratch;
    const double lse =
        scores_of(desc, (const float *)run->q + attention_at(d, desc->q_stride, b, i, h), k, n, s);

    for (size_t j = 0; j < n; j++)
        s[j] = exp(s[j] - lse) * kept(run->dropout, row, j);
    for (size_t e = 0; e < d->head_dim; e++) {
        double sum = 0;

        for (size_t j = 0; j < n; j++)
            sum += s[j] * (double)v[j * desc->v_stride + e];
        out[e] = (float)sum;
    }
    if (run->lse != NULL)
        run->lse[row] = (float)lse;
}

enum fsdp_status ref_attention_forward(struct fused_attention *attention, struct device_stream *stream,
                                       const struct fused_attention_forward *run, struct fsdp_err *err)
{
    const struct attention_desc *d = &attention->desc.shape;

    (void)stream;
    (void)err;
    for (size_t b = 0; b < d->batch; b++)
        for (size_t h = 0; h < d->heads; h++)
            for (size_t i = 0; i < d->seq; i++)
                forward_query(&attention->desc, run, b, h, i);
    return FSDP_OK;
}

/* What query i adds to the sums dk and dv, (seq, head_dim) each, and its own dq. */
static void backward_query(const struct fused_attention_desc *desc,
                           const struct fused_attention_backward *run, size_t b, size_t h, size_t i,
                           double *dk, double *dv)
{
    const struct attention_desc *d = &desc->shape;
    const size_t row = (b * d->heads + h) * d->seq + i, n = attention_keys(d, i), E = d->head_dim;
    const float *q = (const float *)run->q + attention_at(d, desc->q_stride, b, i, h);
    const float *k = (const float *)run->k + attention_at(d, desc->k_stride, b, 0, h);
    const float *v = (const float *)run->v + attention_at(d, desc->v_stride, b, 0, h);
    const float *dout = (const float *)run->dout + attention_at(d, desc->out_stride, b, i, h);
    float *dq = run->dq == NULL ? NULL : (float *)run->dq + attention_at(d, desc->q_stride, b, i, h);
    double *p = run->scratch, *dp = p + d->seq, *ds = dp + d->seq, delta = 0;

    (void)scores_of(desc, q, k, n, p);
    for (size_t j = 0; j < n; j++) {
        p[j] = exp(p[j] - (double)run->lse[row]);
        dp[j] = kept(run->dropout, row, j) * dot(dout, v + j * desc->v_stride, E);
        delta += p[j] * dp[j];
    }
    for (size_t j = 0; j < n; j++)
        ds[j] = p[j] * (dp[j] - delta);
    for (size_t j = 0; j < n; j++)
        for (size_t e = 0; e < E; e++) {
            dk[j * E + e] += (double)desc->scale * ds[j] * (double)q[e];
            dv[j * E + e] += p[j] * kept(run->dropout, row, j) * (double)dout[e];
        }
    for (size_t e = 0; dq != NULL && e < E; e++) {
        double sum = 0;

        for (size_t j = 0; j < n; j++)
            sum += ds[j] * (double)k[j * desc->k_stride + e];
        dq[e] = (float)((double)desc->scale * sum);
    }
}

static void store_sums(const struct attention_desc *d, size_t stride, size_t b, size_t h, const double *sums,
                       float *out)
{
    for (size_t t = 0; out != NULL && t < d->seq; t++)
        for (size_t e = 0; e < d->head_dim; e++)
            out[attention_at(d, stride, b, t, h) + e] = (float)sums[t * d->head_dim + e];
}

enum fsdp_status ref_attention_backward(struct fused_attention *attention, struct device_stream *stream,
                                        const struct fused_attention_backward *run, struct fsdp_err *err)
{
    const struct fused_attention_desc *desc = &attention->desc;
    const struct attention_desc *d = &desc->shape;
    double *dk = (double *)run->scratch + 3 * d->seq, *dv = dk + d->seq * d->head_dim;

    (void)stream;
    (void)err;
    for (size_t b = 0; b < d->batch; b++)
        for (size_t h = 0; h < d->heads; h++) {
            memset(dk, 0, 2 * d->seq * d->head_dim * sizeof *dk); /* both */
            for (size_t i = 0; i < d->seq; i++)
                backward_query(desc, run, b, h, i, dk, dv);
            store_sums(d, desc->k_stride, b, h, dk, run->dk);
            store_sums(d, desc->v_stride, b, h, dv, run->dv);
        }
    return FSDP_OK;
}
