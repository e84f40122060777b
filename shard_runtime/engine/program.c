#include <stdlib.h>

#include "shard_runtime/comm/device_memory.h"
#include "shard_runtime/comm/flight.h"
#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/overlap.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/model.h"

static enum fsdp_status create_events(struct program *program, struct fsdp_err *err)
{
    struct device *device = &program->context->device;

    program->events = alloc_array((size_t)program->plan.n_entries, sizeof(void *));
    program->whole_grads = alloc_array((size_t)program->plan.n_params, sizeof(void *));
    program->batches = alloc_array((size_t)program->plan.n_forwards, sizeof *program->batches);
    if (program->events == NULL || program->whole_grads == NULL || program->batches == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "preparing a program: out of memory");
    for (int entry = 0; entry < program->plan.n_entries; entry++) {
        if (!program->plan.entries[entry].records)
            continue;
        OK_OR_RETURN(device->ops->event_create(device, &program->events[entry], err));
    }
    return FSDP_OK;
}

/*
 * Number the layers and units of the plan on the progress page. The page keeps the names when the program is
 * destroyed: the next one has the same.
 */
static enum fsdp_status number_places(struct program *program, struct fsdp_err *err)
{
    const char *last = NULL;
    uint32_t place = 0;

    program->places = alloc_array((size_t)program->plan.n_entries, sizeof *program->places);
    if (program->places == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "preparing a program: out of memory");
    for (int entry = 0; entry < program->plan.n_entries; entry++) {
        const char *name = plan_entry_subject(&program->plan, &program->plan.entries[entry]);

        if (name != last)
            place = flight_add_place(program->context->progress, name);
        program->places[entry] = place;
        last = name;
    }
    return FSDP_OK;
}

/*
 * Do plan and layout agree? Both programs must number groups and place whole parameters as the layout does,
 * or parameters would be mixed up.
 */
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

    *program = (struct program){ .context = model->context };
    nn_kernels_init(&program->kernels, &model->context->numerics);
    OK_OR_RETURN(graph_record(&program->graph, model->root, &input, training, err));
    OK_OR_RETURN(nn_prepare(&program->kernels, &program->graph, err));
    OK_OR_RETURN(plan_make(&program->plan, &program->graph, model->root, &options, err));
    OK_OR_RETURN(compare_layout(&program->plan, &model->layout, err));
    program->hash = plan_hash(&program->plan);
    return FSDP_OK;
}

enum fsdp_status program_create(struct program *program, struct fsdp_model *model, size_t batch,
                                bool training, size_t seq, struct fsdp_err *err)
{
    struct fsdp_context *context = model->context;
    enum fsdp_status status = program_plan(program, model, batch, training, seq, err);
    void *arena = NULL;

    if (status == FSDP_OK)
        status = create_events(program, err);
    if (status == FSDP_OK)
        status = number_places(program, err);
    if (status == FSDP_OK) {
        status = device_memory_alloc(&context->comms, program->plan.arena_bytes, &arena, err);
        if (status != FSDP_OK)
            fsdp_wrap(err, "the arena of %zu bytes", program->plan.arena_bytes);
    }
    if (status == FSDP_OK)
        status = program_io_create(program, err);
    if (status == FSDP_OK && model_overlaps(model))
        status = overlap_create(&program->overlap, program->plan.n_entries, comm_second_thread, err);
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
    free(program->places);
    free(program->batches);
    device_memory_free(&program->context->comms, program->arena, program->arena_bytes);
    plan_fini(&program->plan);
    graph_fini(&program->graph);
    nn_kernels_fini(&program->kernels);
    *program = (struct program){ 0 };
}
