/*
 * Element-wise activation functions, computed by the operation `activation` of the numerics table. The input
 * is kept for backward. A new function needs a value of enum numerics_function, a row of `kinds` and a public
 * function.
 */
#include "shard_runtime/nn/nn.h"

static enum fsdp_status forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err);
static enum fsdp_status backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err);

#define KIND(kind_name)                                                                                      \
    {                                                                                                        \
        .name = (kind_name), .keeps_input = { true }, .cheap = true, .grad = { GRAPH_GRAD_WRITE },           \
        .forward_in_place = { true }, .grad_in_place = true, .takes_parts = true,                            \
        .prepare = nn_prepare_bf16, .forward = forward, .backward = backward                                 \
    }

static const struct graph_kind kinds[NUMERICS_N_FUNCTIONS] = {
    [NUMERICS_GELU] = KIND("gelu"),
    [NUMERICS_GELU_TANH] = KIND("gelu_tanh"),
    [NUMERICS_SILU] = KIND("silu"),
};

static enum fsdp_status forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct numerics_activation activation = { .dtype = nn_dtype(op),
                                                    .function = (enum numerics_function)op->attrs.function,
                                                    .x = run->input[0],
                                                    .y = run->output,
                                                    .n_elems = graph_value_elems(op->output) };

    (void)err;
    run->numerics->ops->activation(run->numerics, run->stream, &activation);
    return FSDP_OK;
}

static enum fsdp_status backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct numerics_activation_backward activation = { .dtype = nn_dtype(op),
                                                             .function =
                                                                 (enum numerics_function)op->attrs.function,
                                                             .dy = run->d_output,
                                                             .x = run->input[0],
                                                             .dx = run->d_input[0],
                                                             .n_elems = graph_value_elems(op->output) };

    (void)err;
    if (run->d_input[0] != NULL)
        run->numerics->ops->activation_backward(run->numerics, run->stream, &activation);
    return FSDP_OK;
}

bool nn_is_gelu_tanh(const struct graph_op *op)
{
    return op->kind == &kinds[NUMERICS_GELU_TANH];
}

static struct fsdp_value *append(enum numerics_function function, struct fsdp_value *x)
{
    struct graph_op *op = nn_is_tensor(x, kinds[function].name) ? nn_append(&kinds[function], x, NULL) : NULL;

    if (op == NULL)
        return NULL;
    op->attrs.function = function;
    return op->output;
}

struct fsdp_value *fsdp_gelu(struct fsdp_value *x)
{
    return append(NUMERICS_GELU, x);
}

struct fsdp_value *fsdp_gelu_tanh(struct fsdp_value *x)
{
    return append(NUMERICS_GELU_TANH, x);
}

struct fsdp_value *fsdp_silu(struct fsdp_value *x)
{
    return append(NUMERICS_SILU, x);
}
