/*
 * a + b, and a + dropout(b). The gradient of a sum is the sum's gradient, for both sides: mostly no work at
 * all, because the plan lets them share one buffer.
 */
#include "shard_runtime/nn/nn.h"

static void pass_on(struct nn_run *run, const struct graph_op *op, int i)
{
    const size_t n_elems = graph_value_elems(op->output);

    if (run->d_input[i] == NULL)
        return;
    if (run->add_d_input[i] && op->takes_bf16)
        run->numerics->ops->bf16->add(run->numerics, run->stream, run->d_input[i], run->d_output,
                                      run->d_input[i], n_elems);
    else if (run->add_d_input[i])
        run->numerics->ops->add(run->numerics, run->stream, run->d_input[i], run->d_output, run->d_input[i],
                                n_elems);
    else if (run->d_input[i] != run->d_output)
        run->device->ops->copy(run->stream, run->d_input[i], run->d_output,
                               n_elems * (op->takes_bf16 ? sizeof(uint16_t) : sizeof(float)),
                               DEVICE_COPY_WITHIN);
}

static enum fsdp_status add_prepare(struct nn_kernels *kernels, struct graph_op *op, bool training,
                                    struct fsdp_err *err)
{
    (void)training;
    (void)err;
    op->takes_bf16 = nn_is_bf16(kernels, op);
    return FSDP_OK;
}

static enum fsdp_status add_forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct numerics_ops *ops = run->numerics->ops;
    const size_t n_elems = graph_value_elems(op->output);

    (void)err;
    if (op->takes_bf16)
        ops->bf16->add(run->numerics, run->stream, run->input[0], run->input[1], run->output, n_elems);
    else
        ops->add(run->numerics, run->stream, run->input[0], run->input[1], run->output, n_elems);
    return FSDP_OK;
}

static enum fsdp_status add_backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    (void)err;
    pass_on(run, op, 0);
    pass_on(run, op, 1);
    return FSDP_OK;
}

static const struct graph_kind add_kind = {
    .name = "add",
    .grad = { GRAPH_GRAD_COPY, GRAPH_GRAD_COPY },
    .forward_in_place = { true, true },
    .takes_parts = true,
    .prepare = add_prepare,
    .forward = add_forward,
    .backward = add_backward,
};

static enum fsdp_status add_dropout_forward(struct nn_run *run, const struct graph_op *op,
                                            struct fsdp_err *err)
{
    const struct dropout dropout = nn_dropout(run, op, op->output->seq);
    const struct numerics_ops *ops = run->numerics->ops;
    const size_t rows = nn_rows(op->output), features = op->output->features;

    (void)err;
    if (run->output == run->input[0]) {
        ops->dropout(run->numerics, run->stream, run->input[1], run->output, rows, features, &dropout, true);
        return FSDP_OK;
    }
    ops->dropout(run->numerics, run->stream, run->input[1], run->output, rows, features, &dropout, false);
    ops->add(run->numerics, run->stream, run->output, run->input[0], run->output, rows * features);
    return FSDP_OK;
}

static enum fsdp_status add_dropout_backward(struct nn_run *run, const struct graph_op *op,
                                             struct fsdp_err *err)
{
    const struct dropout dropout = nn_dropout(run, op, op->output->seq);

    (void)err;
    /* Before side a, whose buffer may be the gradient that is read here. */
    if (run->d_input[1] != NULL)
        run->numerics->ops->dropout(run->numerics, run->stream, run->d_output, run->d_input[1],
                                    nn_rows(op->output), op->output->features, &dropout, run->add_d_input[1]);
    pass_on(run, op, 0);
    return FSDP_OK;
}

static const struct graph_kind add_dropout_kind = {
    .name = "add_dropout",
    .grad = { GRAPH_GRAD_COPY, GRAPH_GRAD_ADD },
    .forward_in_place = { true, true },
    .forward = add_dropout_forward,
    .backward = add_dropout_backward,
};

bool nn_is_sum(const struct graph_op *op)
{
    return op->kind == &add_kind || op->kind == &add_dropout_kind;
}

struct fsdp_value *fsdp_add(struct fsdp_value *a, struct fsdp_value *b)
{
    struct graph_op *op;

    if (!nn_are_alike(a, b, "add"))
        return NULL;
    op = graph_append(a->graph, &add_kind, graph_module(a->graph), false, (struct fsdp_value *[]){ a, b }, 2,
                      NULL, 0, a->features);
    return op != NULL ? op->output : NULL;
}

struct fsdp_value *fsdp_add_dropout(struct fsdp_value *a, struct fsdp_value *b, float p)
{
    struct graph_op *op;

    if (!nn_are_alike(a, b, "add_dropout"))
        return NULL;
    if (!(p >= 0 && p < 1))
        return graph_fail(a->graph, FSDP_ERR_ARG, "add_dropout in \"%s\": p must be in [0, 1)",
                          graph_module(a->graph)->path);
    if (p == 0 || !a->graph->training)
        return fsdp_add(a, b);
    if (a == b)
        return fsdp_add(a, fsdp_dropout(b, p)); /* in place it would read what it has overwritten */
    op = graph_append(a->graph, &add_dropout_kind, graph_module(a->graph), false,
                      (struct fsdp_value *[]){ a, b }, 2, NULL, 0, a->features);
    if (op == NULL)
        return NULL;
    op->attrs.p = p;
    return op->output;
}
