/*
 * a + b, and a + dropout(b). Both a and b have the gradient of the sum (b through dropout). This mostly takes
 * no work, because the plan lets the gradients share one buffer.
 */
#include "shard_runtime/nn/nn.h"

static void add(struct nn_run *run, const struct graph_op *op, const void *a, const void *b, void *out)
{
    const struct numerics_add sum = {
        .dtype = nn_dtype(op), .a = a, .b = b, .out = out, .n_elems = graph_value_elems(op->output)
    };

    run->numerics->ops->add(run->numerics, run->stream, &sum);
}

static void pass_on(struct nn_run *run, const struct graph_op *op, int i)
{
    if (run->d_input[i] == NULL)
        return;
    if (run->add_d_input[i])
        add(run, op, run->d_input[i], run->d_output, run->d_input[i]);
    else if (run->d_input[i] != run->d_output)
        run->device->ops->copy(run->stream, run->d_input[i], run->d_output,
                               graph_value_elems(op->output) * fsdp_dtype_size(nn_dtype(op)),
                               DEVICE_COPY_WITHIN);
}

static enum fsdp_status add_forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    (void)err;
    add(run, op, run->input[0], run->input[1], run->output);
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
    .prepare = nn_prepare_bf16,
    .forward = add_forward,
    .backward = add_backward,
};

static enum fsdp_status add_dropout_forward(struct nn_run *run, const struct graph_op *op,
                                            struct fsdp_err *err)
{
    const bool in_place = run->output == run->input[0];

    (void)err;
    nn_drop(run, op, run->input[1], run->output, in_place);
    if (!in_place)
        add(run, op, run->output, run->input[0], run->output);
    return FSDP_OK;
}

static enum fsdp_status add_dropout_backward(struct nn_run *run, const struct graph_op *op,
                                             struct fsdp_err *err)
{
    (void)err;
    /*
     * b's gradient is computed first: a's gradient may be stored in the buffer that is read here, and would
     * overwrite it.
     */
    if (run->d_input[1] != NULL)
        nn_drop(run, op, run->d_output, run->d_input[1], run->add_d_input[1]);
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
    op = nn_append(&add_kind, a, b);
    return op != NULL ? op->output : NULL;
}

struct fsdp_value *fsdp_add_dropout(struct fsdp_value *a, struct fsdp_value *b, float p)
{
    struct graph_op *op;

    if (!nn_are_alike(a, b, "add_dropout") || !nn_is_rate(a->graph, p, "add_dropout", "p"))
        return NULL;
    if (p == 0 || !a->graph->training)
        return fsdp_add(a, b);
    if (a == b)
        /* the fused operation works in place; if a is b, it would read values that it has overwritten */
        return fsdp_add(a, fsdp_dropout(b, p));
    op = nn_append(&add_dropout_kind, a, b);
    if (op == NULL)
        return NULL;
    op->attrs.p = p;
    return op->output;
}
