/*
 * Attention of products on whole (seq, seq) matrices. Kept: the probabilities P (batch, heads, seq, seq); dropped ones
 * are made anew in backward.
 *   D = dropout(P)     O = D V     dV = D^T dO     dD = dO V^T     dS = softmax'(P, dropout'(dD))
 *   dQ = s dS K        dK = s dS^T Q
 */
#include <math.h>

#include "shard_runtime/nn/attention.h"

enum { SCORES, OUTPUT, D_PROBABILITIES, D_VALUE, D_QUERY, D_KEY };

/*
 * Shorter ones stay float32, though bfloat16 takes 0.7 to 0.8 of the time there too (make bench-ways): which way so few
 * roundings fall is luck, and it takes gradients beyond 1.25 times the error that PyTorch has by the same luck
 * (test_parity_bf16, 9 positions), for a share of a step that nobody sees.
 */
enum { BF16_MIN_SEQ = 16 };

static size_t probabilities_bytes(const struct attention_desc *d)
{
    return d->batch * d->heads * d->seq * d->seq * sizeof(float);
}

static size_t aligned(size_t size_bytes)
{
    return (size_bytes + 63) / 64 * 64;
}

/* One product over all samples and heads. A square view is of (seq, seq), the others are of (seq, head_dim). On bfloat16
 * the scores and the gradients of the probabilities stay float32 (`wide`). */
static enum fsdp_status product(struct nn_kernels *kernels, const struct attention_desc *d,
                                enum fsdp_dtype dtype, bool wide, struct matmul **out, size_t n, size_t k,
                                struct matmul_view a, struct matmul_view b, struct matmul_view c, float alpha,
                                size_t *scratch, struct fsdp_err *err)
{
    const struct matmul_desc desc = { .outer = d->batch,
                                      .inner = d->heads,
                                      .m = d->seq,
                                      .n = n,
                                      .k = k,
                                      .a = a,
                                      .b = b,
                                      .c = c,
                                      .dtype = dtype,
                                      .c_dtype = wide ? FSDP_F32 : dtype,
                                      .alpha = alpha };

    return nn_product(kernels, &desc, out, scratch, err);
}

static struct matmul_view transposed(struct matmul_view view)
{
    const size_t row_stride = view.row_stride;

    view.row_stride = view.col_stride;
    view.col_stride = row_stride;
    return view;
}

bool attention_whole_takes_bf16(const struct nn_kernels *kernels, const struct graph_op *op)
{
    const size_t seq = op->output->seq;

    return kernels->numerics->bf16_products && nn_is_bf16(kernels, op) && op->attrs.p == 0 &&
           seq >= BF16_MIN_SEQ && seq <= NUMERICS_BF16_MAX_COLS;
}

enum fsdp_status attention_whole_prepare(struct nn_kernels *kernels, struct graph_op *op, bool training,
                                         struct fsdp_err *err)
{
    const struct attention_desc d = attention_describe(op);
    const size_t T = d.seq, features = d.heads * d.head_dim;
    const float scale = 1.0f / sqrtf((float)d.head_dim);
    const size_t row = op->inputs[0]->features;
    const struct matmul_view out = {
        .outer_stride = T * features, .inner_stride = d.head_dim, .row_stride = features, .col_stride = 1
    };
    const struct matmul_view part = { /* of q, k, v and their gradients */
                                      .outer_stride = T * row,
                                      .inner_stride = d.head_dim,
                                      .row_stride = row,
                                      .col_stride = 1
    };
    const struct matmul_view square = {
        .outer_stride = d.heads * T * T, .inner_stride = T * T, .row_stride = T, .col_stride = 1
    };
    const size_t dropped = op->attrs.p > 0 ? aligned(probabilities_bytes(&d)) : 0;
    size_t forward = 0, backward = 0;
    enum fsdp_dtype dtype;
    enum fsdp_status status;

    op->takes_bf16 = attention_whole_takes_bf16(kernels, op);
    dtype = op->takes_bf16 ? FSDP_BF16 : FSDP_F32;
    status = product(kernels, &d, dtype, true, &op->products[SCORES], T, d.head_dim, part, transposed(part),
                     square, scale, &forward, err);
    if (status == FSDP_OK)
        status = product(kernels, &d, dtype, false, &op->products[OUTPUT], d.head_dim, T, square, part, out,
                         1.0f, &forward, err);
    if (status == FSDP_OK && training)
        status = product(kernels, &d, dtype, true, &op->products[D_PROBABILITIES], T, d.head_dim, out,
                         transposed(part), square, 1.0f, &backward, err);
    if (status == FSDP_OK && training)
        status = product(kernels, &d, dtype, false, &op->products[D_VALUE], d.head_dim, T, transposed(square),
                         out, part, 1.0f, &backward, err);
    if (status == FSDP_OK && training)
        status = product(kernels, &d, dtype, false, &op->products[D_QUERY], d.head_dim, T, square, part, part,
                         scale, &backward, err);
    if (status == FSDP_OK && training)
        status = product(kernels, &d, dtype, false, &op->products[D_KEY], d.head_dim, T, transposed(square),
                         part, part, scale, &backward, err);
    op->saved_bytes[0] = probabilities_bytes(&d) / (op->takes_bf16 ? 2 : 1);
    op->forward_scratch = (op->takes_bf16 ? aligned(probabilities_bytes(&d)) : dropped) + forward;
    op->backward_scratch = aligned(probabilities_bytes(&d)) + dropped + backward;
    return status;
}

/* Scores in float32 beside, probabilities kept in bfloat16. */
static enum fsdp_status forward_bf16(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct attention_desc d = attention_describe(op);
    const struct attention_parts parts = attention_find_parts(run, op);
    const struct numerics_ops *ops = run->numerics->ops;
    char *scratch = (char *)run->scratch + aligned(probabilities_bytes(&d));
    enum fsdp_status status;

    status = ops->matmul_run(op->products[SCORES], run->stream, parts.of[ATTENTION_QUERY],
                             parts.of[ATTENTION_KEY], NULL, run->scratch, scratch, err);
    if (status != FSDP_OK)
        return status;
    ops->bf16->softmax(run->numerics, run->stream, run->scratch, run->saved[0], &d);
    return ops->matmul_run(op->products[OUTPUT], run->stream, run->saved[0], parts.of[ATTENTION_VALUE], NULL,
                           run->output, scratch, err);
}

/* The probabilities' place takes the gradients of the scores: after dV nobody else reads them. */
static enum fsdp_status backward_bf16(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct attention_desc d = attention_describe(op);
    const struct attention_parts parts = attention_find_parts(run, op);
    const struct numerics_ops *ops = run->numerics->ops;
    char *scratch = (char *)run->scratch + aligned(probabilities_bytes(&d));
    enum fsdp_status status = FSDP_OK;

    if (parts.d[ATTENTION_VALUE] != NULL)
        status = ops->matmul_run(op->products[D_VALUE], run->stream, run->saved[0], run->d_output, NULL,
                                 parts.d[ATTENTION_VALUE], scratch, err);
    if (status != FSDP_OK || (parts.d[ATTENTION_QUERY] == NULL && parts.d[ATTENTION_KEY] == NULL))
        return status;
    status = ops->matmul_run(op->products[D_PROBABILITIES], run->stream, run->d_output,
                             parts.of[ATTENTION_VALUE], NULL, run->scratch, scratch, err);
    if (status != FSDP_OK)
        return status;
    ops->bf16->softmax_backward(run->numerics, run->stream, run->saved[0], run->scratch, &d);
    if (parts.d[ATTENTION_QUERY] != NULL)
        status = ops->matmul_run(op->products[D_QUERY], run->stream, run->saved[0], parts.of[ATTENTION_KEY],
                                 NULL, parts.d[ATTENTION_QUERY], scratch, err);
    if (status == FSDP_OK && parts.d[ATTENTION_KEY] != NULL)
        status = ops->matmul_run(op->products[D_KEY], run->stream, run->saved[0], parts.of[ATTENTION_QUERY],
                                 NULL, parts.d[ATTENTION_KEY], scratch, err);
    return status;
}

enum fsdp_status attention_whole_forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct attention_desc d = attention_describe(op);
    const struct attention_parts parts = attention_find_parts(run, op);
    const struct dropout dropout = nn_dropout(run, op, d.heads * d.seq);
    const struct numerics_ops *ops = run->numerics->ops;
    const bool drops = op->attrs.p > 0;
    float *dropped = drops ? run->scratch : NULL;
    char *scratch = (char *)run->scratch + (drops ? aligned(probabilities_bytes(&d)) : 0);
    enum fsdp_status status;

    if (op->takes_bf16)
        return forward_bf16(run, op, err);
    status = ops->matmul_run(op->products[SCORES], run->stream, parts.of[ATTENTION_QUERY],
                             parts.of[ATTENTION_KEY], NULL, run->saved[0], scratch, err);
    if (status != FSDP_OK)
        return status;
    ops->softmax(run->numerics, run->stream, run->saved[0], dropped, &d, &dropout);
    return ops->matmul_run(op->products[OUTPUT], run->stream, drops ? dropped : run->saved[0],
                           parts.of[ATTENTION_VALUE], NULL, run->output, scratch, err);
}

enum fsdp_status attention_whole_backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct attention_desc d = attention_describe(op);
    const struct attention_parts parts = attention_find_parts(run, op);
    const struct dropout dropout = nn_dropout(run, op, d.heads * d.seq);
    const struct numerics_ops *ops = run->numerics->ops;
    const bool drops = op->attrs.p > 0;
    float *const d_probabilities = run->scratch;
    char *scratch = (char *)run->scratch + aligned(probabilities_bytes(&d));
    const float *probabilities = run->saved[0];
    enum fsdp_status status = FSDP_OK;

    if (op->takes_bf16)
        return backward_bf16(run, op, err);
    if (drops) {
        float *dropped = (float *)(void *)scratch;

        scratch += aligned(probabilities_bytes(&d));
        ops->dropout(run->numerics, run->stream, run->saved[0], dropped, d.batch * d.heads * d.seq, d.seq,
                     &dropout, false);
        probabilities = dropped;
    }
    if (parts.d[ATTENTION_VALUE] != NULL)
        status = ops->matmul_run(op->products[D_VALUE], run->stream, probabilities, run->d_output, NULL,
                                 parts.d[ATTENTION_VALUE], scratch, err);
    if (status != FSDP_OK || (parts.d[ATTENTION_QUERY] == NULL && parts.d[ATTENTION_KEY] == NULL))
        return status;
    status = ops->matmul_run(op->products[D_PROBABILITIES], run->stream, run->d_output,
                             parts.of[ATTENTION_VALUE], NULL, d_probabilities, scratch, err);
    if (status != FSDP_OK)
        return status;
    ops->softmax_backward(run->numerics, run->stream, run->saved[0], d_probabilities, d_probabilities, &d,
                          &dropout);
    if (parts.d[ATTENTION_QUERY] != NULL)
        status = ops->matmul_run(op->products[D_QUERY], run->stream, d_probabilities, parts.of[ATTENTION_KEY],
                                 NULL, parts.d[ATTENTION_QUERY], scratch, err);
    if (status == FSDP_OK && parts.d[ATTENTION_KEY] != NULL)
        status = ops->matmul_run(op->products[D_KEY], run->stream, d_probabilities, parts.of[ATTENTION_QUERY],
                                 NULL, parts.d[ATTENTION_KEY], scratch, err);
    return status;
}
