/*
 * Runs operations that support only float32 on bfloat16 operands. The operation computes on float32 copies in
 * its scratch memory, and each result is rounded once when it is stored. This is correct for every kind of
 * operation. It is also the reference for kinds that take bfloat16 themselves (graph_op.takes_bf16) and never
 * use this code.
 *
 * If one buffer is passed twice, there is one copy of it. So the backward of x + x adds its second gradient
 * to the first one.
 */
#include "shard_runtime/nn/nn.h"

#include "shard_runtime/core/checked.h"
#include "shard_runtime/core/require.h"

enum { ALIGN_BYTES = 64 };

static size_t aligned(size_t size_bytes)
{
    return round_up(size_bytes, ALIGN_BYTES);
}

static size_t copy_bytes(size_t n_elems)
{
    return aligned(n_elems * sizeof(float));
}

static size_t value_copy(const struct fsdp_value *value)
{
    return value->dtype == FSDP_BF16 ? copy_bytes(graph_value_elems(value)) : 0;
}

/*
 * Plans scratch memory for every copy that forward and backward may need. The gradient of a parameter needs a
 * copy only if its buffer is bfloat16. That is known only later, so the room is always reserved.
 */
void nn_plan_copies(struct graph_op *op, bool training)
{
    size_t operands = 0, gradients = 0;
    bool any = op->n_params > 0 && op->param_dtype == FSDP_BF16;

    for (int i = 0; i < op->n_inputs; i++) {
        operands += value_copy(op->inputs[i]);
        if (op->inputs[i]->needs_grad)
            gradients += value_copy(op->inputs[i]);
        any = any || op->inputs[i]->dtype == FSDP_BF16;
    }
    for (int i = 0; i < op->n_params && op->param_dtype == FSDP_BF16; i++) {
        operands += copy_bytes(op->params[i]->n_elems);
        gradients += copy_bytes(op->params[i]->n_elems);
    }
    op->converts = !op->takes_bf16 && (any || op->output->dtype == FSDP_BF16);
    if (!op->converts)
        return;
    op->forward_copies = aligned(op->forward_scratch);
    op->forward_scratch = op->forward_copies + operands + value_copy(op->output);
    if (!training)
        return;
    for (int i = 0; i < op->n_params && !op->kind->backward_reads_params && op->param_dtype == FSDP_BF16; i++)
        operands -= copy_bytes(op->params[i]->n_elems);
    op->backward_copies = aligned(op->backward_scratch);
    op->backward_scratch = op->backward_copies + operands + gradients +
                           value_copy(op->output) * (op->kind->keeps_output ? 2 : 1);
}

struct copier {
    struct nn_run *run;
    char *at;
};

static float *room(struct copier *c, size_t n_elems)
{
    float *copy = (float *)(void *)c->at;

    c->at += copy_bytes(n_elems);
    return copy;
}

static float *load(struct copier *c, const void *from, size_t n_elems)
{
    float *copy = room(c, n_elems);

    c->run->device->ops->cast(c->run->stream, copy, FSDP_F32, from, FSDP_BF16, n_elems, 1.0f, false);
    return copy;
}

static void store(struct copier *c, void *to, const float *copy, size_t n_elems)
{
    c->run->device->ops->cast(c->run->stream, to, FSDP_BF16, copy, FSDP_F32, n_elems, 1.0f, false);
}

static void load_operands(struct copier *c, const struct graph_op *op, struct nn_run *own, bool params)
{
    for (int i = 0; i < op->n_inputs; i++)
        if (op->inputs[i]->dtype == FSDP_BF16 && c->run->input[i] != NULL)
            own->input[i] = load(c, c->run->input[i], graph_value_elems(op->inputs[i]));
    for (int i = 0; params && i < op->n_params && op->param_dtype == FSDP_BF16; i++)
        own->params[i] = load(c, c->run->params[i], op->params[i]->n_elems);
}

enum fsdp_status nn_forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    struct copier c = { .run = run, .at = (char *)run->scratch + op->forward_copies };
    const bool rounds = op->output->dtype == FSDP_BF16;
    struct nn_run own = *run;

    if (!op->converts)
        return op->kind->forward(run, op, err);
    load_operands(&c, op, &own, true);
    if (rounds)
        own.output = room(&c, graph_value_elems(op->output));
    OK_OR_RETURN(op->kind->forward(&own, op, err));
    if (rounds)
        store(&c, run->output, own.output, graph_value_elems(op->output));
    return FSDP_OK;
}

/*
 * Returns a float32 copy in which the operation writes or adds the gradient `to[i]`. If an earlier gradient
 * uses the same buffer, returns its copy.
 */
static void *gradient_copy(struct copier *c, void *const *to, void *const *copies, int i, size_t n_elems,
                           bool adds)
{
    for (int before = 0; before < i; before++)
        if (to[before] == to[i])
            return copies[before];
    return adds ? load(c, to[i], n_elems) : room(c, n_elems);
}

enum fsdp_status nn_backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    struct copier c = { .run = run, .at = (char *)run->scratch + op->backward_copies };
    struct nn_run own = *run;

    if (!op->converts)
        return op->kind->backward(run, op, err);
    load_operands(&c, op, &own, op->kind->backward_reads_params);
    if (op->output->dtype == FSDP_BF16 && op->kind->keeps_output)
        own.output = load(&c, run->output, graph_value_elems(op->output));
    if (op->output->dtype == FSDP_BF16)
        own.d_output = load(&c, run->d_output, graph_value_elems(op->output));
    for (int i = 0; i < op->n_inputs; i++)
        if (run->d_input[i] != NULL && op->inputs[i]->dtype == FSDP_BF16)
            own.d_input[i] = gradient_copy(&c, run->d_input, own.d_input, i, graph_value_elems(op->inputs[i]),
                                           run->add_d_input[i]);
    for (int i = 0; i < op->n_params; i++)
        if (run->d_param_dtype[i] == FSDP_BF16) {
            own.d_param_dtype[i] = FSDP_F32;
            if (run->d_param[i] != NULL)
                own.d_param[i] = gradient_copy(&c, run->d_param, own.d_param, i, op->params[i]->n_elems,
                                               run->add_d_param[i]);
        }
    OK_OR_RETURN(op->kind->backward(&own, op, err));
    for (int i = 0; i < op->n_inputs; i++)
        if (own.d_input[i] != run->d_input[i])
            store(&c, run->d_input[i], own.d_input[i], graph_value_elems(op->inputs[i]));
    for (int i = 0; i < op->n_params; i++)
        if (own.d_param[i] != run->d_param[i])
            store(&c, run->d_param[i], own.d_param[i], op->params[i]->n_elems);
    return FSDP_OK;
}
