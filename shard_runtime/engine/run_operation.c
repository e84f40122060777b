/*
 * Running the entries of operations: forward, loss and backward. The plan says which buffers each uses; the
 * functions of the operation's kind (nn/) do the work.
 */
#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/run_impl.h"

#include <assert.h>

/*
 * Are the gradients of an earlier micro-step in the place where this one's go, so that these must be added?
 */
static bool adds_to_earlier(const struct runner *r, const struct plan_entry *e,
                            const struct plan_group *group)
{
    return run_micro(r, e) > 0 && (!group->reduces || group->accumulates_whole);
}

/* Fill in what forward and backward of the operation have in common. */
static void resolve(const struct runner *r, const struct plan_entry *e, const struct graph_op *op,
                    struct nn_run *run)
{
    const struct plan *plan = &r->program->plan;
    const struct fsdp_batch *batch = &r->program->batches[op->forward];

    *run = (struct nn_run){ .numerics = &r->context->numerics,
                            .device = &r->context->device,
                            .stream = run_stream(r, e),
                            .seed = r->model->options.seed,
                            .first_sample = batch->first_sample,
                            .tensor = model_tensor_comm(r->model, op->attrs.tensor),
                            .scratch = run_at(r, e->op.scratch),
                            .output = run_at(r, e->op.output) };
    for (int i = 0; i < op->n_inputs; i++)
        run->input[i] = op->inputs[i]->producer < 0 ? batch->input : run_at(r, e->op.input[i]);
    for (int i = 0; i < op->n_params; i++) {
        const struct plan_param *param = &plan->params[plan_param_index(plan, op->params[i])];
        const char *whole = run_at(r, e->op.params[i]);

        run->params[i] = whole != NULL
                             ? (const void *)(whole + param->whole_offset * fsdp_dtype_size(op->param_dtype))
                             : r->model->groups[param->group].shards + param->row_offset;
    }
    for (int i = 0; i < GRAPH_MAX_SAVED; i++)
        run->saved[i] = run_at(r, e->op.saved[i]);
}

enum fsdp_status run_forward(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    const struct graph_op *op = r->program->graph.ops[e->index];
    struct nn_run run, next;

    if (e->op.with_before)
        return FSDP_OK;
    resolve(r, e, op, &run);
    if (!e->op.with_next)
        return nn_forward(&run, op, err);
    resolve(r, e + 1, r->program->graph.ops[e[1].index], &next);
    return nn_forward_fused(&run, op, &next, r->program->graph.ops[e[1].index], err);
}

/* sum += term, both of the dtype of the value, whose rows are adjacent. */
static void add_value(const struct runner *r, const struct plan_entry *e, const struct fsdp_value *value,
                      void *sum, const void *term)
{
    struct numerics *numerics = &r->context->numerics;
    const size_t n_elems = graph_value_elems(value);

    /* only results of forwards are padded, and no value that is added up is one */
    assert(value->row_stride == value->features);
    /* not on the other thread: a thread that communicates must not enter the numerics library */
    if (value->dtype == FSDP_F32 && e->stream == PLAN_COMPUTE)
        numerics->ops->add(numerics, run_stream(r, e),
                           &(struct numerics_add){ .a = sum, .b = term, .out = sum, .n_elems = n_elems });
    else
        r->context->device.ops->cast(run_stream(r, e), sum, value->dtype, term, value->dtype, n_elems, 1.0f,
                                     true);
}

/* Fill in everything for the operation's backward. Returns the operation. */
static const struct graph_op *resolve_backward(const struct runner *r, const struct plan_entry *e,
                                               struct nn_run *run)
{
    const struct plan *plan = &r->program->plan;
    const struct graph_op *op = r->program->graph.ops[e->index];

    resolve(r, e, op, run);
    run->d_output = run_at(r, e->back.d_output);
    run->bias_before = e->back.bias_before;
    for (int i = 0; i < op->n_inputs; i++) {
        const bool by_way = e->back.temporary[i] >= 0;

        run->d_input[i] = run_at(r, by_way ? e->back.temporary[i] : e->back.d_input[i]);
        run->add_d_input[i] = e->back.add_d_input[i] && !by_way;
    }
    for (int i = 0; i < op->n_params; i++) {
        const struct plan_param *param = &plan->params[plan_param_index(plan, op->params[i])];
        const struct plan_group *group = &plan->groups[param->group];
        void *whole = run_at(r, e->back.d_param[i]);

        if (!param->trains)
            continue;
        run->d_param[i] = whole != NULL ? whole : r->model->groups[param->group].grads + param->grad_offset;
        run->d_param_dtype[i] = whole != NULL ? group->grad_dtype : FSDP_F32;
        run->add_d_param[i] = e->back.add_d_param[i] || adds_to_earlier(r, e, group);
    }
    return op;
}

/* Run two backwards as one pass, with the gradient of a bias of a third if the plan says so. */
static enum fsdp_status run_two_backwards(const struct runner *r, const struct plan_entry *e,
                                          struct fsdp_err *err)
{
    struct nn_run run, next, before;
    const struct graph_op *op = resolve_backward(r, e, &run), *next_op = resolve_backward(r, e + 1, &next),
                          *before_op = NULL;

    if (e->back.bias_entry > 0)
        before_op = resolve_backward(r, &r->program->plan.entries[e->back.bias_entry], &before);
    return nn_backward_fused(&run, op, &next, next_op, before_op != NULL ? &before : NULL, before_op, err);
}

enum fsdp_status run_backward(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    const struct graph_op *op;
    struct nn_run run;

    if (e->op.with_before)
        return FSDP_OK;
    if (e->op.with_next)
        return run_two_backwards(r, e, err);
    op = resolve_backward(r, e, &run);
    OK_OR_RETURN(nn_backward(&run, op, err));
    for (int i = 0; i < op->n_inputs; i++)
        if (e->back.temporary[i] >= 0)
            add_value(r, e, op->inputs[i], run_at(r, e->back.d_input[i]), run.d_input[i]);
    return FSDP_OK;
}

enum fsdp_status run_loss(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    const struct fsdp_value *logits = r->program->graph.forwards[e->index].result;
    struct numerics *numerics = &r->context->numerics;
    const struct numerics_cross_entropy loss = { .dtype = logits->dtype,
                                                 .logits = run_at(r, e->loss.logits),
                                                 .targets = r->program->batches[e->index].targets,
                                                 .dlogits = run_at(r, e->loss.d_logits),
                                                 .rows = nn_rows(logits),
                                                 .vocab = logits->features,
                                                 .row_stride = logits->row_stride,
                                                 .scale = r->in->scale,
                                                 .loss_sum = &r->program->loss_sum,
                                                 .n_targets = &r->program->n_targets };

    (void)err;
    if (loss.targets == NULL)
        return FSDP_OK;
    numerics->ops->cross_entropy(numerics, run_stream(r, e), &loss);
    return FSDP_OK;
}
