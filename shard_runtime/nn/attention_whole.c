/*
 * Attention that stores whole (seq, seq) matrices and computes products on them. It keeps the probabilities P
 * (batch, heads, seq, seq) for backward. Backward computes the dropped probabilities D again.
 *   D = dropout(P)     O = D V     dV = D^T dO     dD = dO V^T     dS = softmax'(P, dropout'(dD))
 *   dQ = s dS K        dK = s dS^T Q
 */
#include <math.h>

#include "shard_runtime/core/checked.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/nn/attention.h"
#include "shard_runtime/numerics/matmul_desc.h"

enum { SCORES, OUTPUT, D_PROBABILITIES, D_VALUE, D_QUERY, D_KEY };

/*
 * Shorter sequences stay in float32. bfloat16 would take 0.7 to 0.8 of their time (make bench-ways), but that
 * is a negligible part of a step. With so few roundings, it is chance in which direction they fall. In
 * test_parity_bf16 (9 positions) gradients then had over 1.25 times the error of PyTorch, whose own error is
 * chance too.
 */
enum { BF16_MIN_SEQ = 16 };

static size_t probabilities_bytes(const struct attention_desc *d)
{
    return d->batch * d->heads * d->seq * d->seq * sizeof(float);
}

static size_t aligned(size_t size_bytes)
{
    return round_up(size_bytes, 64);
}

/*
 * Prepares one product over all samples and heads. A square view is (seq, seq); the others are (seq,
 * head_dim). If the operands are bfloat16, the scores and the gradients of the probabilities stay float32
 * (`wide`).
 */
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
    const struct matmul_view part = { /* view of q, k, v and their gradients */
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

    op->takes_bf16 = attention_whole_takes_bf16(kernels, op);
    dtype = op->takes_bf16 ? FSDP_BF16 : FSDP_F32;
    OK_OR_RETURN(product(kernels, &d, dtype, true, &op->products[SCORES], T, d.head_dim, part,
                         matmul_transposed(part), square, scale, &forward, err));
    OK_OR_RETURN(product(kernels, &d, dtype, false, &op->products[OUTPUT], d.head_dim, T, square, part, out,
                         1.0f, &forward, err));
    if (training) {
        OK_OR_RETURN(product(kernels, &d, dtype, true, &op->products[D_PROBABILITIES], T, d.head_dim, out,
                             matmul_transposed(part), square, 1.0f, &backward, err));
        OK_OR_RETURN(product(kernels, &d, dtype, false, &op->products[D_VALUE], d.head_dim, T,
                             matmul_transposed(square), out, part, 1.0f, &backward, err));
        OK_OR_RETURN(product(kernels, &d, dtype, false, &op->products[D_QUERY], d.head_dim, T, square, part,
                             part, scale, &backward, err));
        OK_OR_RETURN(product(kernels, &d, dtype, false, &op->products[D_KEY], d.head_dim, T,
                             matmul_transposed(square), part, part, scale, &backward, err));
    }
    op->saved_bytes[0] = probabilities_bytes(&d) / (op->takes_bf16 ? 2 : 1);
    op->forward_scratch = (op->takes_bf16 ? aligned(probabilities_bytes(&d)) : dropped) + forward;
    op->backward_scratch = aligned(probabilities_bytes(&d)) + dropped + backward;
    return FSDP_OK;
}

/* With bfloat16 the scores are float32 in the scratch, and the probabilities are kept in bfloat16. */
enum fsdp_status attention_whole_forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct attention_desc d = attention_describe(op);
    const struct attention_parts parts = attention_find_parts(run, op);
    const struct dropout dropout = nn_dropout(run, op, d.heads * d.seq);
    const bool drops = op->attrs.p > 0;
    const struct numerics_softmax softmax = { .dtype = nn_dtype(op),
                                              .scores = op->takes_bf16 ? run->scratch : run->saved[0],
                                              .p = run->saved[0],
                                              .dropped = drops ? run->scratch : NULL,
                                              .shape = &d,
                                              .dropout = drops ? &dropout : NULL };
    char *scratch = (char *)run->scratch + (drops || op->takes_bf16 ? aligned(probabilities_bytes(&d)) : 0);

    OK_OR_RETURN(nn_multiply(run, op->products[SCORES], parts.of[ATTENTION_QUERY], parts.of[ATTENTION_KEY],
                             softmax.scores, scratch, err));
    run->numerics->ops->softmax(run->numerics, run->stream, &softmax);
    return nn_multiply(run, op->products[OUTPUT], drops ? softmax.dropped : softmax.p,
                       parts.of[ATTENTION_VALUE], run->output, scratch, err);
}

/* With bfloat16 the gradients of the scores replace the probabilities, which no operation reads after dV. */
enum fsdp_status attention_whole_backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct attention_desc d = attention_describe(op);
    const struct attention_parts parts = attention_find_parts(run, op);
    const struct dropout dropout = nn_dropout(run, op, d.heads * d.seq);
    const bool drops = op->attrs.p > 0;
    const struct numerics_softmax_backward softmax = { .dtype = nn_dtype(op),
                                                       .p = run->saved[0],
                                                       .dp = run->scratch,
                                                       .ds = op->takes_bf16 ? run->saved[0] : run->scratch,
                                                       .shape = &d,
                                                       .dropout = drops ? &dropout : NULL };
    char *scratch = (char *)run->scratch + aligned(probabilities_bytes(&d));
    const void *probabilities = run->saved[0];

    if (drops) {
        const struct numerics_dropout again = { .x = run->saved[0],
                                                .out = (float *)(void *)scratch,
                                                .rows = d.batch * d.heads * d.seq,
                                                .cols = d.seq,
                                                .mask = &dropout };

        run->numerics->ops->dropout(run->numerics, run->stream, &again);
        probabilities = scratch;
        scratch += aligned(probabilities_bytes(&d));
    }
    if (parts.d[ATTENTION_VALUE] != NULL)
        OK_OR_RETURN(nn_multiply(run, op->products[D_VALUE], probabilities, run->d_output,
                                 parts.d[ATTENTION_VALUE], scratch, err));
    if (parts.d[ATTENTION_QUERY] == NULL && parts.d[ATTENTION_KEY] == NULL)
        return FSDP_OK;
    OK_OR_RETURN(nn_multiply(run, op->products[D_PROBABILITIES], run->d_output, parts.of[ATTENTION_VALUE],
                             softmax.dp, scratch, err));
    run->numerics->ops->softmax_backward(run->numerics, run->stream, &softmax);
    if (parts.d[ATTENTION_QUERY] != NULL)
        OK_OR_RETURN(nn_multiply(run, op->products[D_QUERY], softmax.ds, parts.of[ATTENTION_KEY],
                                 parts.d[ATTENTION_QUERY], scratch, err));
    if (parts.d[ATTENTION_KEY] != NULL)
        OK_OR_RETURN(nn_multiply(run, op->products[D_KEY], softmax.ds, parts.of[ATTENTION_QUERY],
                                 parts.d[ATTENTION_KEY], scratch, err));
    return FSDP_OK;
}
