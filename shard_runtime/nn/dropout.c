/*
 * Dropout: Srivastava et al., 2014. In training, elements that are kept are scaled up. The mask is a function
 * of (seed, place in the tree, global row, column). So nothing is stored for backward, and the mask is the
 * same at every world size.
 */
#include "shard_runtime/nn/nn.h"

void nn_drop(struct nn_run *run, const struct graph_op *op, const float *x, float *out, bool accumulate)
{
    const struct dropout mask = nn_dropout(run, op, op->output->seq);
    const struct numerics_dropout dropout = { .x = x,
                                              .out = out,
                                              .rows = nn_rows(op->output),
                                              .cols = op->output->features,
                                              .mask = &mask,
                                              .accumulate = accumulate };

    run->numerics->ops->dropout(run->numerics, run->stream, &dropout);
}

static enum fsdp_status forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    (void)err;
    nn_drop(run, op, run->input[0], run->output, false);
    return FSDP_OK;
}

static enum fsdp_status backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    (void)err;
    if (run->d_input[0] != NULL)
        nn_drop(run, op, run->d_output, run->d_input[0], run->add_d_input[0]);
    return FSDP_OK;
}

static const struct graph_kind kind = {
    .name = "dropout",
    .grad = { GRAPH_GRAD_ADD },
    .forward_in_place = { true },
    .grad_in_place = true,
    .forward = forward,
    .backward = backward,
};

struct fsdp_value *fsdp_dropout(struct fsdp_value *x, float p)
{
    struct graph_op *op;

    if (!nn_is_tensor(x, "dropout") || !nn_is_rate(x->graph, p, "dropout", "p"))
        return NULL;
    if (p == 0 || !x->graph->training)
        return x;
    op = nn_append(&kind, x, NULL);
    if (op == NULL)
        return NULL;
    op->attrs.p = p;
    return op->output;
}
