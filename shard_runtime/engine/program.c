#include <stdlib.h>

#include "shard_runtime/comm/device_memory.h"
#include "shard_runtime/core/alloc.h"
#include "shard_runtime/engine/model.h"
#include "shard_runtime/engine/overlap.h"

static enum fsdp_status create_events(struct program *program, struct fsdp_err *err)
{
    struct device *device = &program->context->device;

    program->events = alloc_array((size_t)program->plan.n_entries, sizeof(void *));
    program->whole_grads = alloc_array((size_t)program->plan.n_params, sizeof(void *));
    program->batches = alloc_array((size_t)program->plan.n_forwards, sizeof *program->batches);
    if (program->events == NULL || program->whole_grads == NULL || program->batches == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "preparing a program: out of memory");
    for (int entry = 0; entry < program->plan.n_entries; entry++) {
        enum fsdp_status status;

        if (!program->plan.entries[entry].records)
            continue;
        status = device->ops->event_create(device, &program->events[entry], err);
        if (status != FSDP_OK)
            return status;
    }
    return FSDP_OK;
}

/* Both programs number the groups and place whole parameters as the model's layout does, or parameters would be mixed up. */
static enum fsdp_status compare_layout(const struct plan *plan, const struct plan *layout,
                                       struct fsdp_err *err)
{
    bool same = plan->n_groups == layout->n_groups;

    for (int g = 0; same && g < plan->n_groups; g++)
        same = plan->groups[g].unit == layout->groups[g].unit;
    for (int p = 0; same && p < plan->n_params; p++)
        same = plan->params[p].part == layout->params[p].part &&
               plan->params[p].whole_offset == layout->params[p].whole_offset;
    return same ? FSDP_OK
                : fsdp_fail(err, FSDP_ERR_ARG,
                            "a forward visits its units in another order, or reads other parameters, than "
                            "before: it "
                            "must not depend on anything but the tree");
}

enum fsdp_status program_plan(struct program *program, const struct fsdp_model *model, size_t batch,
                              bool training, size_t seq, struct fsdp_err *err)
{
    const struct graph_input input = model_input(model, batch, seq, training);
    const struct plan_options options = model_plan_options(model, training);
    enum fsdp_status status;

    *program = (struct program){ .context = model->context };
    nn_kernels_init(&program->kernels, &model->context->numerics);
    status = graph_record(&program->graph, model->root, &input, training, err);
    if (status == FSDP_OK)
        status = nn_prepare(&program->kernels, &program->graph, err);
    if (status == FSDP_OK)
        status = plan_make(&program->plan, &program->graph, model->root, &options, err);
    if (status == FSDP_OK)
        status = compare_layout(&program->plan, &model->layout, err);
    if (status == FSDP_OK)
        program->hash = plan_hash(&program->plan);
    return status;
}

enum fsdp_status program_create(struct program *program, struct fsdp_model *model, size_t batch,
                                bool training, size_t seq, struct fsdp_err *err)
{
    struct fsdp_context *context = model->context;
    enum fsdp_status status = program_plan(program, model, batch, training, seq, err);
    void *arena = NULL;

    if (status == FSDP_OK)
        status = create_events(program, err);
    if (status == FSDP_OK) {
        status = device_memory_alloc(&context->comms, program->plan.arena_bytes, &arena, err);
        if (status != FSDP_OK)
            fsdp_wrap(err, "the arena of %zu bytes", program->plan.arena_bytes);
    }
    if (status == FSDP_OK)
        status = program_io_create(program, err);
    if (status == FSDP_OK && model_overlaps(model))
        status = overlap_create(&program->overlap, program->plan.n_entries, err);
    program->arena = arena;
    program->arena_bytes = arena != NULL ? program->plan.arena_bytes : 0;
    return status;
}

void program_destroy(struct program *program)
{
    if (program->context == NULL)
        return;
    for (int entry = 0; program->events != NULL && entry < program->plan.n_entries; entry++)
        if (program->events[entry] != NULL)
            program->context->device.ops->event_destroy(program->events[entry]);
    overlap_destroy(program->overlap);
    program_io_destroy(program);
    free(program->events);
    free(program->whole_grads);
    free(program->batches);
    device_memory_free(&program->context->comms, program->arena, program->arena_bytes);
    plan_fini(&program->plan);
    graph_fini(&program->graph);
    nn_kernels_fini(&program->kernels);
    *program = (struct program){ 0 };
}
