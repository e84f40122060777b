/*
 * Dropout: Srivastava et al., 2014, scaled while training. The mask is a function of (seed, place in the
 * tree, global row, column): nothing is kept, and no world size changes it.
 */
#include "shard_runtime/nn/nn.h"

static enum fsdp_status forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct dropout dropout = nn_dropout(run, op, op->output->seq);

    (void)err;
    run->numerics->ops->dropout(run->numerics, run->stream, run->input[0], run->output, nn_rows(op->output),
                                op->output->features, &dropout, false);
    return FSDP_OK;
}

static enum fsdp_status backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct dropout dropout = nn_dropout(run, op, op->output->seq);

    (void)err;
    if (run->d_input[0] != NULL)
        run->numerics->ops->dropout(run->numerics, run->stream, run->d_output, run->d_input[0],
                                    nn_rows(op->output), op->output->features, &dropout, run->add_d_input[0]);
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

    if (!nn_is_tensor(x, "dropout"))
        return NULL;
    if (!(p >= 0 && p < 1))
        return graph_fail(x->graph, FSDP_ERR_ARG, "dropout in \"%s\": p must be in [0, 1)",
                          graph_module(x->graph)->path);
    if (p == 0 || !x->graph->training)
        return x;
    op = graph_append(x->graph, &kind, graph_module(x->graph), false, &x, 1, NULL, 0, x->features);
    if (op == NULL)
        return NULL;
    op->attrs.p = p;
    return op->output;
}
