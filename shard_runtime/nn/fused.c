/*
 * Two operations, one behind the other, in one pass where the back end has one for them: a residual sum and its norm, a linear
 * and its GELU by tanh, and backward that GELU and the linear behind it. (Of the exact GELU no library's product has an epilogue.)
 */
#include "shard_runtime/nn/nn.h"

static bool is_linear_and_gelu(const struct graph_op *first, const struct graph_op *second)
{
    return nn_is_gelu_tanh(second) && second->inputs[0] == first->output && !second->converts &&
           first->takes_bf16 == second->takes_bf16;
}

bool nn_fuses(struct nn_kernels *kernels, struct graph_op *first, const struct graph_op *second)
{
    return nn_norm_takes_sum(kernels, first, second) ||
           (is_linear_and_gelu(first, second) && nn_linear_takes_gelu(kernels, first));
}

enum fsdp_status nn_forward_fused(struct nn_run *first_run, const struct graph_op *first,
                                  struct nn_run *second_run, const struct graph_op *second,
                                  struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_ERR_UNSUPPORTED;

    if (!nn_is_gelu_tanh(second)) {
        nn_sum_and_norm(first_run, first, second_run, second);
        return FSDP_OK;
    }
    /* Where nothing needs what goes into the GELU, it is written over: that is for two. */
    if (first_run->output != second_run->output)
        status = nn_linear_and_gelu(first_run, first, second_run->output, err);
    if (status != FSDP_ERR_UNSUPPORTED)
        return status;
    fsdp_err_clear(err);
    status = nn_forward(first_run, first, err);
    return status == FSDP_OK ? nn_forward(second_run, second, err) : status;
}

void nn_fuse_backward(struct nn_kernels *kernels, struct graph_op *op, const struct graph_op *gelu,
                      const struct graph_op *before)
{
    op->fuses_backward = nn_is_gelu_tanh(gelu) && op->inputs[0] == gelu->output &&
                         op->inputs[0]->needs_grad && !gelu->converts && gelu->takes_bf16 == op->takes_bf16 &&
                         nn_linear_goes_back_through_gelu(kernels, op);
    op->leaves_bias = op->fuses_backward && before != NULL && gelu->inputs[0] == before->output &&
                      nn_linear_leaves_bias(op, before);
}
