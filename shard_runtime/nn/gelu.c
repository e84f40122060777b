/*
 * Exact GELU, x * Phi(x), and its approximation by tanh: Hendrycks and Gimpel, 2016. The input is kept.
 */
#include "shard_runtime/nn/nn.h"

static enum fsdp_status prepare(struct nn_kernels *kernels, struct graph_op *op, bool training,
                                struct fsdp_err *err)
{
    (void)training;
    (void)err;
    op->takes_bf16 = nn_is_bf16(kernels, op);
    return FSDP_OK;
}

static const struct graph_kind by_tanh;

static enum fsdp_status forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct numerics_ops *ops = run->numerics->ops;
    const size_t n_elems = graph_value_elems(op->output);
    const bool tanh = op->kind == &by_tanh;

    (void)err;
    if (op->takes_bf16)
        (tanh ? ops->bf16->gelu_tanh : ops->bf16->gelu)(run->numerics, run->stream, run->input[0],
                                                        run->output, n_elems);
    else
        (tanh ? ops->gelu_tanh : ops->gelu)(run->numerics, run->stream, run->input[0], run->output, n_elems);
    return FSDP_OK;
}

static enum fsdp_status backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct numerics_ops *ops = run->numerics->ops;
    const size_t n_elems = graph_value_elems(op->output);
    const bool tanh = op->kind == &by_tanh;

    (void)err;
    if (run->d_input[0] == NULL)
        return FSDP_OK;
    if (op->takes_bf16)
        (tanh ? ops->bf16->gelu_tanh_backward : ops->bf16->gelu_backward)(
            run->numerics, run->stream, run->d_output, run->input[0], run->d_input[0], n_elems);
    else
        (tanh ? ops->gelu_tanh_backward : ops->gelu_backward)(run->numerics, run->stream, run->d_output,
                                                              run->input[0], run->d_input[0], n_elems);
    return FSDP_OK;
}

#define SHARED_BY_BOTH                                                                                       \
    .keeps_input = { true }, .cheap = true, .grad = { GRAPH_GRAD_WRITE }, .forward_in_place = { true },      \
    .grad_in_place = true, .takes_parts = true, .prepare = prepare, .forward = forward, .backward = backward

static const struct graph_kind exact = { .name = "gelu", SHARED_BY_BOTH };
static const struct graph_kind by_tanh = { .name = "gelu_tanh", SHARED_BY_BOTH };

bool nn_is_gelu_tanh(const struct graph_op *op)
{
    return op->kind == &by_tanh;
}

static struct fsdp_value *append(const struct graph_kind *kind, struct fsdp_value *x)
{
    struct graph_op *op;

    if (!nn_is_tensor(x, kind->name))
        return NULL;
    op = graph_append(x->graph, kind, graph_module(x->graph), false, &x, 1, NULL, 0, x->features);
    return op != NULL ? op->output : NULL;
}

struct fsdp_value *fsdp_gelu(struct fsdp_value *x)
{
    return append(&exact, x);
}

struct fsdp_value *fsdp_gelu_tanh(struct fsdp_value *x)
{
    return append(&by_tanh, x);
}
