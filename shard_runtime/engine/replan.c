/*
 * Handles setters that are called after a model was made. The next step then gets a new plan, with other
 * entries and another arena. Shards stay where they are. Within a step the plan does not change.
 *
 * Each rank does this on its own, before the ranks agree on the next call. If one rank failed to do it, all
 * ranks learn that in the agreement.
 */
#include <stdlib.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/engine/model.h"
#include "shard_runtime/engine/unshard.h"

struct policies model_policies(const struct fsdp_model *model)
{
    return policies_read(model->root, model->options.gradient_sync);
}

/*
 * Do both plans have shards and gradients in the same places? They must, because setters cannot change these.
 */
static bool are_alike(const struct plan *a, const struct plan *b)
{
    bool alike = a->n_groups == b->n_groups && a->n_params == b->n_params;

    for (int g = 0; alike && g < a->n_groups; g++)
        alike = a->groups[g].unit == b->groups[g].unit && a->groups[g].row_elems == b->groups[g].row_elems &&
                a->groups[g].grad_row_elems == b->groups[g].grad_row_elems;
    for (int p = 0; alike && p < a->n_params; p++)
        alike = a->params[p].group == b->params[p].group &&
                a->params[p].row_offset == b->params[p].row_offset &&
                a->params[p].grad_offset == b->params[p].grad_offset &&
                a->params[p].trains == b->params[p].trains;
    return alike;
}

static enum fsdp_status make_layout(struct fsdp_model *model, struct fsdp_err *err)
{
    struct plan layout = { .options = model_plan_options(model, model->options.batch > 0),
                           .graph = &model->layout_graph };
    enum fsdp_status status = plan_form_groups(&layout, model->root, err);

    if (status == FSDP_OK && !are_alike(&layout, &model->layout))
        status =
            fsdp_fail(err, FSDP_ERR_ARG, "what was set since the model was made would move its parameters");
    if (status != FSDP_OK) {
        plan_fini(&layout);
        return status;
    }
    plan_fini(&model->layout);
    model->layout = layout;
    return FSDP_OK;
}

/* Makes a program for the new plan. The old arena is freed first, because there may be no room for both. */
static enum fsdp_status make_program(struct program *program, struct fsdp_model *model, size_t batch,
                                     size_t seq, bool training, struct fsdp_err *err)
{
    void (*const observe)(void *observer, int entry) = program->observe;
    void *const observer = program->observer;
    enum fsdp_status status;

    if (batch == 0)
        return FSDP_OK;
    program_destroy(program);
    status = program_create(program, model, batch, training, seq, err);
    if (status != FSDP_OK)
        program_destroy(program);
    program->observe = observe;
    program->observer = observer;
    return status;
}

/*
 * Copy the gradients of the last step to host memory. No step needs them after its plan, but an evaluation
 * may make new plans between them and the optimizer. *kept is NULL if there are none.
 */
static enum fsdp_status keep_gradients(struct fsdp_model *model, char **kept, struct fsdp_err *err)
{
    const struct model_memory *device = &model->memory[PLACE_DEVICE];

    *kept = NULL;
    if (!model->has_gradients || device->gradients == NULL)
        return FSDP_OK;
    *kept = alloc_array(device->gradient_bytes, 1);
    if (*kept == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "%zu bytes for the gradients meanwhile: out of memory",
                         device->gradient_bytes);
    place_read(model->context, PLACE_DEVICE, *kept, device->gradients, device->gradient_bytes);
    return model->context->device.ops->synchronize(model->context->streams[PLAN_COMPUTE], err);
}

static enum fsdp_status give_back_gradients(struct fsdp_model *model, const char *kept, struct fsdp_err *err)
{
    const struct model_memory *device = &model->memory[PLACE_DEVICE];

    model_place_gradients(model);
    if (kept == NULL)
        return FSDP_OK;
    place_write(model->context, PLACE_DEVICE, device->gradients, kept, device->gradient_bytes);
    return model->context->device.ops->synchronize(model->context->streams[PLAN_COMPUTE], err);
}

static enum fsdp_status make_training(struct fsdp_model *model, struct fsdp_err *err)
{
    const struct fsdp_model_options *options = &model->options;
    enum fsdp_status status;
    char *kept;

    if (options->batch == 0)
        return FSDP_OK;
    status = keep_gradients(model, &kept, err);
    if (status == FSDP_OK) {
        model_lose_gradients(model);
        status = make_program(&model->training, model, options->batch, options->seq, true, err);
    }
    if (status == FSDP_OK)
        status = give_back_gradients(model, kept, err);
    free(kept);
    return status;
}

static enum fsdp_status replan(struct fsdp_model *model, const struct policies *now, struct fsdp_err *err)
{
    enum fsdp_status status;

    unshard_drop_all(model);
    status = make_layout(model, err);
    if (status == FSDP_OK)
        status = make_training(model, err);
    if (status == FSDP_OK)
        status = make_program(&model->evaluation, model, model->eval_batch, model->eval_seq, false, err);
    if (status == FSDP_OK)
        model->planned = *now;
    else
        fsdp_wrap(err, "planning a step again");
    return status;
}

enum fsdp_status model_follow_setters(struct fsdp_model *model, bool within, bool is_last, bool single,
                                      struct fsdp_err *err)
{
    const struct policies now = model_policies(model);

    model->replanned = false;
    if (fsdp_module_check(model->root, err) != FSDP_OK)
        return FSDP_ERR_ARG; /* a setter was called on a module that is not a unit */
    switch (policies_compare(&now, &model->planned, within, is_last, single)) {
    case POLICIES_AS_PLANNED:
        return FSDP_OK;
    case POLICIES_NEED_PLAN:
        model->replanned = true;
        return replan(model, &now, err);
    case POLICIES_TOO_LATE:
        return fsdp_fail(
            err, FSDP_ERR_ARG,
            "a setter was called within a step: what its micro-steps do is settled by the first; "
            "only the last may be told to reduce and to reshard");
    default:
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "requires_grad, unused parameters and reductions of their own are settled when the "
                         "model is made");
    }
}

void model_plan_again(struct fsdp_model *model)
{
    if (model->replanned)
        model->planned.planned++; /* a hash that no tree has, so the next call plans again */
}
