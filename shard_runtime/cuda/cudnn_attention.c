#include "shard_runtime/cuda/cudnn_attention.h"

#include <math.h>
#include <string.h>

#include "shard_runtime/core/checked.h"

enum { SCRATCH_ALIGN_BYTES = 64 };

/* The sizes of a shape, as tensors have them. */
struct sizes {
    int64_t batch, heads, seq, dim;
};

static struct sizes sizes_of(const struct fused_attention_desc *desc)
{
    return (struct sizes){ (int64_t)desc->shape.batch, (int64_t)desc->shape.heads, (int64_t)desc->shape.seq,
                           (int64_t)desc->shape.head_dim };
}

static int add_tensor(struct cudnn_graph *graph, struct cudnn_tensor tensor)
{
    graph->tensors[graph->n_tensors] = tensor;
    return graph->n_tensors++;
}

/*
 * A tensor in the caller's memory: (batch, seq, heads, dim), with `stride` elements from one position to the
 * next.
 */
static struct cudnn_tensor rows(struct sizes n, enum cudnn_slot slot, size_t stride)
{
    return (struct cudnn_tensor){ .dims = { n.batch, n.heads, n.seq, n.dim },
                                  .strides = { n.seq * (int64_t)stride, n.dim, (int64_t)stride, 1 },
                                  .data = CUDNN_BF16,
                                  .place = CUDNN_MEMORY,
                                  .slot = slot };
}

/* Returns a tensor in the memory of `tensor`, with the last two dimensions exchanged. */
static struct cudnn_tensor turned(struct cudnn_tensor tensor)
{
    const int64_t dim = tensor.dims[2], stride = tensor.strides[2];

    tensor.dims[2] = tensor.dims[3];
    tensor.strides[2] = tensor.strides[3];
    tensor.dims[3] = dim;
    tensor.strides[3] = stride;
    return tensor;
}

/* (batch, heads, seq, cols), within the graph. */
static struct cudnn_tensor within(struct sizes n, int64_t cols)
{
    return (struct cudnn_tensor){ .dims = { n.batch, n.heads, n.seq, cols },
                                  .strides = { n.heads * n.seq * cols, n.seq * cols, cols, 1 },
                                  .data = CUDNN_F32,
                                  .place = CUDNN_WITHIN };
}

static struct cudnn_tensor square(struct sizes n)
{
    return within(n, n.seq);
}

/* A tensor of one number for each query. */
static struct cudnn_tensor column(struct sizes n)
{
    return within(n, 1);
}

static int value(struct cudnn_graph *graph, float number)
{
    return add_tensor(graph, (struct cudnn_tensor){ .dims = { 1, 1, 1, 1 },
                                                    .strides = { 1, 1, 1, 1 },
                                                    .data = CUDNN_F32,
                                                    .place = CUDNN_VALUE,
                                                    .value = number });
}

static struct cudnn_tensor of_caller(struct cudnn_tensor tensor, enum cudnn_slot slot)
{
    tensor.place = CUDNN_MEMORY;
    tensor.slot = slot;
    return tensor;
}

static struct cudnn_tensor in_scratch(struct cudnn_graph *graph, struct cudnn_tensor tensor)
{
    const size_t n = (size_t)(tensor.dims[0] * tensor.strides[0]) * sizeof(float);

    tensor.place = CUDNN_SCRATCH;
    tensor.offset = graph->scratch_bytes;
    graph->scratch_bytes += round_up(n, SCRATCH_ALIGN_BYTES);
    return tensor;
}

static struct cudnn_tensor as(struct cudnn_tensor tensor, enum cudnn_data data)
{
    tensor.data = data;
    return tensor;
}

/* An operation on x and b. Its precision is float32, unless it gives booleans. */
static int operate(struct cudnn_graph *graph, enum cudnn_work work, int mode, int x, int b,
                   struct cudnn_tensor result)
{
    const int y = add_tensor(graph, result);

    graph->nodes[graph->n_nodes++] =
        (struct cudnn_node){ .work = work,
                             .mode = mode,
                             .precision = result.data == CUDNN_BOOL ? CUDNN_BOOL : CUDNN_F32,
                             .x = x,
                             .b = b,
                             .t = -1,
                             .y = y };
    return y;
}

static int pointwise(struct cudnn_graph *graph, enum cudnn_pointwise mode, int x, int b,
                     struct cudnn_tensor result)
{
    return operate(graph, CUDNN_DO_POINTWISE, mode, x, b, result);
}

static int matmul(struct cudnn_graph *graph, int x, int b, struct cudnn_tensor result)
{
    return operate(graph, CUDNN_DO_MATMUL, 0, x, b, result);
}

static int reduce(struct cudnn_graph *graph, enum cudnn_reduction mode, int x, struct cudnn_tensor result)
{
    return operate(graph, CUDNN_DO_REDUCTION, mode, x, -1, result);
}

static int reshape(struct cudnn_graph *graph, int x, struct cudnn_tensor result)
{
    return operate(graph, CUDNN_DO_RESHAPE, 0, x, -1, result);
}

/* A tensor of 0, 1, 2 ... along an axis. */
static int indexes(struct cudnn_graph *graph, int like, int axis)
{
    const int made = pointwise(graph, CUDNN_INDEX, like, -1, as(graph->tensors[like], CUDNN_I32));

    graph->nodes[graph->n_nodes - 1].axis = axis;
    return made;
}

/* Scores with minus infinity where the key comes after the query: query i keeps keys j <= i. */
static int masked(struct cudnn_graph *graph, int scores, struct sizes n)
{
    const int query = indexes(graph, scores, 2), key = indexes(graph, scores, 3);
    const int seen = pointwise(graph, CUDNN_GREATER_EQUAL, query, key, as(square(n), CUDNN_BOOL));
    const int made = pointwise(graph, CUDNN_SELECT, scores, value(graph, -INFINITY), square(n));

    graph->nodes[graph->n_nodes - 1].t = seen;
    return made;
}

/*
 *   S = scale q k^T, masked     m = max S         e = exp(S - m)
 *   s = sum e                   lse = log s + m   out = (e / s) v
 */
void cudnn_attention_forward(const struct fused_attention_desc *desc, struct cudnn_graph *graph)
{
    const struct sizes n = sizes_of(desc);
    int q, k, v, scores, largest, powers, sum, logarithm, probabilities;

    memset(graph, 0, sizeof *graph);
    q = add_tensor(graph, rows(n, CUDNN_Q, desc->q_stride));
    k = add_tensor(graph, turned(rows(n, CUDNN_K, desc->k_stride)));
    v = add_tensor(graph, rows(n, CUDNN_V, desc->v_stride));

    scores = matmul(graph, q, k, square(n));
    scores = pointwise(graph, CUDNN_MUL, scores, value(graph, desc->scale), square(n));
    if (desc->shape.causal)
        scores = masked(graph, scores, n);
    largest = reduce(graph, CUDNN_LARGEST, scores, column(n));
    powers = pointwise(graph, CUDNN_SUB, scores, largest, square(n));
    powers = pointwise(graph, CUDNN_EXP, powers, -1, square(n));
    sum = reduce(graph, CUDNN_SUM, powers, column(n));
    logarithm = pointwise(graph, CUDNN_LOG, sum, -1, column(n));
    (void)pointwise(graph, CUDNN_ADD, largest, logarithm, of_caller(column(n), CUDNN_LSE));
    probabilities = pointwise(graph, CUDNN_DIV, powers, sum, as(square(n), CUDNN_BF16));
    (void)matmul(graph, probabilities, v, rows(n, CUDNN_OUT, desc->out_stride));
}

/*
 *   delta = sum_e dout out             P = exp(scale q k^T - lse), masked     dv = P^T dout
 *   dS = scale P (dout v^T - delta)    dk = dS^T q                            dq = dS k, by way of float32
 */
void cudnn_attention_backward(const struct fused_attention_desc *desc, struct cudnn_graph *graph)
{
    const struct sizes n = sizes_of(desc);
    struct cudnn_tensor wide = within(n, n.dim), upright;
    int q, k, v, out, dout, lse, scale, delta, p, ds, turned_p, turned_ds, turned_k, dq;

    memset(graph, 0, sizeof *graph);
    q = add_tensor(graph, rows(n, CUDNN_Q, desc->q_stride));
    k = add_tensor(graph, turned(rows(n, CUDNN_K, desc->k_stride)));
    v = add_tensor(graph, turned(rows(n, CUDNN_V, desc->v_stride)));
    out = add_tensor(graph, rows(n, CUDNN_OUT, desc->out_stride));
    dout = add_tensor(graph, rows(n, CUDNN_DOUT, desc->out_stride));
    lse = add_tensor(graph, of_caller(column(n), CUDNN_LSE));
    scale = value(graph, desc->scale);

    delta = pointwise(graph, CUDNN_MUL, dout, out, wide);
    delta = reduce(graph, CUDNN_SUM, delta, column(n));
    delta = pointwise(graph, CUDNN_MUL, delta, value(graph, 1.0f), in_scratch(graph, column(n)));

    p = matmul(graph, q, k, square(n));
    p = pointwise(graph, CUDNN_MUL, p, scale, square(n));
    p = pointwise(graph, CUDNN_SUB, p, lse, square(n));
    if (desc->shape.causal)
        p = masked(graph, p, n);
    p = pointwise(graph, CUDNN_EXP, p, -1, square(n));
    turned_p = reshape(graph, p, as(turned(square(n)), CUDNN_BF16));
    (void)matmul(graph, turned_p, dout, rows(n, CUDNN_DV, desc->v_stride));

    ds = matmul(graph, dout, v, square(n));
    ds = pointwise(graph, CUDNN_SUB, ds, delta, square(n));
    ds = pointwise(graph, CUDNN_MUL, ds, p, square(n));
    ds = pointwise(graph, CUDNN_MUL, ds, scale, square(n));
    turned_ds = reshape(graph, ds, as(turned(square(n)), CUDNN_BF16));
    (void)matmul(graph, turned_ds, q, rows(n, CUDNN_DK, desc->k_stride));

    upright = turned(graph->tensors[k]);
    upright.place = CUDNN_WITHIN;
    turned_k = reshape(graph, k, upright);
    wide = in_scratch(graph, wide);
    wide.adds = true;
    dq = matmul(graph, ds, turned_k, wide);
    (void)pointwise(graph, CUDNN_IDENTITY, dq, -1, rows(n, CUDNN_DQ, desc->q_stride));
}
