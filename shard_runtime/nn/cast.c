/* y = x in another dtype. The gradient of x is the gradient of y, converted back. */
#include "shard_runtime/nn/nn.h"

static enum fsdp_status forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct fsdp_value *x = op->inputs[0];

    (void)err;
    run->device->ops->cast(run->stream, run->output, op->output->dtype, run->input[0], x->dtype,
                           graph_value_elems(x), 1.0f, false);
    return FSDP_OK;
}

static enum fsdp_status backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct fsdp_value *x = op->inputs[0];

    (void)err;
    if (run->d_input[0] != NULL)
        run->device->ops->cast(run->stream, run->d_input[0], x->dtype, run->d_output, op->output->dtype,
                               graph_value_elems(x), 1.0f, run->add_d_input[0]);
    return FSDP_OK;
}

static const struct graph_kind kind = {
    .name = "cast",
    .grad = { GRAPH_GRAD_ADD },
    .takes_bf16 = true,
    .takes_parts = true,
    .forward = forward,
    .backward = backward,
};

struct fsdp_value *fsdp_cast(struct fsdp_value *x, enum fsdp_dtype dtype)
{
    struct graph_op *op;

    if (!nn_is_tensor(x, "cast"))
        return NULL;
    if (dtype != FSDP_F32 && dtype != FSDP_BF16)
        return graph_fail(x->graph, FSDP_ERR_ARG, "cast in \"%s\": to float32 or bfloat16, not %s",
                          graph_module(x->graph)->path, fsdp_dtype_name(dtype));
    if (x->dtype == dtype)
        return x;
    op = nn_append(&kind, x, NULL);
    if (op == NULL)
        return NULL;
    op->output->dtype = dtype;
    return op->output;
}
