/*
 * Exact GELU, x * Phi(x): Hendrycks and Gimpel, 2016. Its input is kept.
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

static enum fsdp_status forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct numerics_ops *ops = run->numerics->ops;
    const size_t n_elems = graph_value_elems(op->output);

    (void)err;
    if (op->takes_bf16)
        ops->bf16->gelu(run->numerics, run->stream, run->input[0], run->output, n_elems);
    else
        ops->gelu(run->numerics, run->stream, run->input[0], run->output, n_elems);
    return FSDP_OK;
}

static enum fsdp_status backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct numerics_ops *ops = run->numerics->ops;
    const size_t n_elems = graph_value_elems(op->output);

    (void)err;
    if (run->d_input[0] == NULL)
        return FSDP_OK;
    if (op->takes_bf16)
        ops->bf16->gelu_backward(run->numerics, run->stream, run->d_output, run->input[0], run->d_input[0],
                                 n_elems);
    else
        ops->gelu_backward(run->numerics, run->stream, run->d_output, run->input[0], run->d_input[0],
                           n_elems);
    return FSDP_OK;
}

static const struct graph_kind kind = {
    .name = "gelu",
    .keeps_input = { true },
    .cheap = true,
    .grad = { GRAPH_GRAD_WRITE },
    .forward_in_place = { true },
    .grad_in_place = true,
    .takes_parts = true,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
};

struct fsdp_value *fsdp_gelu(struct fsdp_value *x)
{
    struct graph_op *op;

    if (!nn_is_tensor(x, "gelu"))
        return NULL;
    op = graph_append(x->graph, &kind, graph_module(x->graph), false, &x, 1, NULL, 0, x->features);
    return op != NULL ? op->output : NULL;
}
