/*
 * Runs two consecutive operations in one pass, if the back end has an operation for both:
 *   - forward: a residual sum and its norm; a linear and the GELU by tanh of its output;
 *   - backward: a linear and the GELU by tanh that produced its input.
 * The exact GELU is never fused, because no library can append it to a product.
 */
#include "shard_runtime/nn/nn.h"

#include "shard_runtime/core/require.h"

static bool is_linear_and_gelu(const struct graph_op *first, const struct graph_op *second)
{
    return nn_is_gelu_tanh(second) && second->inputs[0] == first->output && !second->converts &&
           first->takes_bf16 == second->takes_bf16;
}

bool nn_fuses(struct nn_kernels *kernels, struct graph_op *first, const struct graph_op *second)
{
    return nn_norm_takes_sum(first, second) ||
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
    /*
     * If both operations share one output buffer, the GELU overwrites its input. The fused pass needs two
     * buffers, so the operations then run one by one.
     */
    if (first_run->output != second_run->output)
        status = nn_linear_and_gelu(first_run, first, second_run->output, err);
    if (status != FSDP_ERR_UNSUPPORTED)
        return status;
    fsdp_err_clear(err);
    OK_OR_RETURN(nn_forward(first_run, first, err));
    return nn_forward(second_run, second, err);
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
