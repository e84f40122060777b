#include "shard_runtime/engine/model.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/comm/device_memory.h"
#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/checked.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/unshard.h"
#include "shard_runtime/shard/layout.h"

enum { ALIGN_ELEMS = 16 }; /* groups begin on 64 bytes */

size_t model_forwards(const struct fsdp_model *model)
{
    return model->options.forwards > 0 ? model->options.forwards : 1;
}

struct graph_input model_input(const struct fsdp_model *model, size_t batch, size_t seq, bool training)
{
    return (struct graph_input){ .dtype = model->options.input_features > 0 ? FSDP_F32 : FSDP_I32,
                                 .batch = batch,
                                 .seq = seq,
                                 .features = model->options.input_features,
                                 .n_forwards = training ? model_forwards(model) : 1,
                                 .result_multiple = model->context->numerics.ops->takes_padded_logits
                                                        ? NUMERICS_LOGITS_MULTIPLE
                                                        : 0 };
}

struct plan_options model_plan_options(const struct fsdp_model *model, bool training)
{
    const bool several = model_forwards(model) > 1 && model->options.backwards == FSDP_BACKWARD_OF_EACH;

    return (struct plan_options){ .W = model->meshes[0].W,
                                  .R = model->meshes[0].R,
                                  .ranks_of = model_ranks_of,
                                  .ranks_user = model,
                                  .accumulates = training && (model->options.accumulates || several),
                                  .backwards = model->options.backwards,
                                  .gradient_sync = model->options.gradient_sync,
                                  .prefetch = 1,
                                  .keeps_cheap = model->options.recompute == FSDP_RECOMPUTE_NOTHING,
                                  .host_apart = device_is_separate(&model->context->device),
                                  .holds_gradients = training && model->options.batch > 0,
                                  .chunk_rows = layout_chunk };
}

enum fsdp_status model_make_layout(struct fsdp_model *model, struct fsdp_err *err)
{
    const size_t batch = model->options.batch > 0 ? model->options.batch : 1;
    const struct graph_input input = model_input(model, batch, model->options.seq, false);

    OK_OR_RETURN(model_join_mesh(model, err));
    OK_OR_RETURN(graph_record(&model->layout_graph, model->root, &input, false, err));
    model->layout = (struct plan){ .options = model_plan_options(model, model->options.batch > 0),
                                   .graph = &model->layout_graph };
    OK_OR_RETURN(plan_form_groups(&model->layout, model->root, err));
    if (model->layout.n_params == 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "the model has no parameters");
    return FSDP_OK;
}

void model_drop_layout(struct fsdp_model *model)
{
    free(model->meshes);
    model->meshes = NULL;
    model->n_meshes = 0;
    plan_fini(&model->layout);
    graph_fini(&model->layout_graph);
}

bool model_overlaps(const struct fsdp_model *model)
{
    const struct fsdp_context *context = model->context;

    /* A device with streams overlaps work without a second thread, and must get its work from one thread. */
    if (context->W == 1 || device_is_separate(&context->device) || model->options.overlap == FSDP_OVERLAP_OFF)
        return false;
    return model->options.overlap == FSDP_OVERLAP_ON || context_has_idle_time(context);
}

static size_t aligned(size_t n_elems)
{
    return round_up(n_elems, ALIGN_ELEMS);
}

enum shard_place model_place(const struct fsdp_model *model, int group)
{
    const struct plan_group *g = &model->layout.groups[group];

    return !g->offloads ? PLACE_DEVICE : g->unit->policy.pin_memory ? PLACE_PINNED : PLACE_PAGED;
}

bool model_has_gradients(const struct fsdp_model *model)
{
    for (int p = 0; p < N_PLACES; p++)
        if (model->memory[p].gradients != NULL)
            return true;
    return false;
}

/* Add up the bytes of all groups' shards, and of their gradients, in each place. */
enum fsdp_status model_measure_memory(struct fsdp_model *model, struct fsdp_err *err)
{
    for (int g = 0; g < model->layout.n_groups; g++) {
        const struct plan_group *group = &model->layout.groups[g];
        struct model_memory *memory = &model->memory[model_place(model, g)];

        if (!checked_add(memory->parameter_bytes, aligned(group->row_elems) * sizeof(float),
                         &memory->parameter_bytes) ||
            !checked_add(memory->gradient_bytes, aligned(group->grad_row_elems) * sizeof(float),
                         &memory->gradient_bytes))
            return fsdp_fail(err, FSDP_ERR_NOMEM, "the parameters do not fit an address space");
        if (!group->local)
            memory->reduced_elems = memory->gradient_bytes / sizeof(float);
    }
    return FSDP_OK;
}

/*
 * Allocate rows of shards. Collectives move them, so on a device its communication library may have to
 * allocate them.
 */
static enum fsdp_status alloc_rows(struct fsdp_context *context, enum shard_place place, size_t size_bytes,
                                   float **out, struct fsdp_err *err)
{
    void *memory = NULL;
    enum fsdp_status status;

    if (place != PLACE_DEVICE)
        return place_alloc(context, place, size_bytes, out, err);
    status = device_memory_alloc(&context->comms, size_bytes, &memory, err);
    if (status == FSDP_OK && memory != NULL)
        place_fill_new(context, place, memory, size_bytes);
    *out = memory;
    return status;
}

/*
 * Allocate the shards of one place. Gradient shards on the device are in the arena of training, which is made
 * later.
 */
static enum fsdp_status alloc_place(struct fsdp_model *model, enum shard_place place, bool trains,
                                    struct fsdp_err *err)
{
    struct model_memory *memory = &model->memory[place];
    enum fsdp_status status = FSDP_OK;

    if (place != PLACE_DEVICE && memory->parameter_bytes > 0)
        status = place_open_host(model->context, err);
    if (status == FSDP_OK)
        status = alloc_rows(model->context, place, memory->parameter_bytes, &memory->parameters, err);
    if (status == FSDP_OK && trains && place != PLACE_DEVICE)
        status = alloc_rows(model->context, place, memory->gradient_bytes, &memory->gradients, err);
    if (status != FSDP_OK)
        fsdp_wrap(err, "%zu bytes for this rank's shards", memory->parameter_bytes);
    return status;
}

/* Allocate the shards in all places, and give each group its part. */
static enum fsdp_status alloc_shards(struct fsdp_model *model, struct fsdp_err *err)
{
    const bool trains = model->options.batch > 0;
    size_t offset[N_PLACES] = { 0 };

    model->draws.seed = model->options.seed;
    model->groups = alloc_array((size_t)model->layout.n_groups, sizeof *model->groups);
    model->in_step = alloc_array((size_t)model->layout.n_groups, sizeof *model->in_step);
    if (model->groups == NULL || model->in_step == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "a model: out of memory");
    OK_OR_RETURN(model_measure_memory(model, err));
    for (int p = 0; p < N_PLACES; p++)
        OK_OR_RETURN(alloc_place(model, (enum shard_place)p, trains, err));
    for (int g = 0; g < model->layout.n_groups; g++) {
        const enum shard_place p = model_place(model, g);
        const struct model_memory *memory = &model->memory[p];

        model->groups[g] = (struct param_group){
            .layout = &model->layout,
            .index = g,
            .shards = memory->parameters + offset[p],
            .draws = &model->draws,
        };
        offset[p] += aligned(model->layout.groups[g].row_elems);
    }
    return FSDP_OK;
}

void model_place_gradients(struct fsdp_model *model)
{
    const struct program *training = &model->training;
    struct model_memory *device = &model->memory[PLACE_DEVICE];
    size_t offset[N_PLACES] = { 0 };

    assert(training->plan.gradient_bytes == device->gradient_bytes);
    if (device->gradient_bytes > 0) {
        device->gradients = (float *)(void *)training->arena;
        place_fill_new(model->context, PLACE_DEVICE, device->gradients, device->gradient_bytes);
    }
    for (int g = 0; g < model->layout.n_groups; g++) {
        const enum shard_place p = model_place(model, g);

        model->groups[g].grads = model->memory[p].gradients + offset[p];
        offset[p] += aligned(model->layout.groups[g].grad_row_elems);
    }
}

void model_lose_gradients(struct fsdp_model *model)
{
    model->memory[PLACE_DEVICE].gradients = NULL;
    for (int g = 0; g < model->layout.n_groups; g++)
        if (model_place(model, g) == PLACE_DEVICE)
            model->groups[g].grads = NULL;
}

/* If the layout has coded parameters, checks that the device can compute float8. */
static enum fsdp_status check_float8(const struct fsdp_model *model, struct fsdp_err *err)
{
    const struct device *device = &model->context->device;

    for (int g = 0; g < model->layout.n_groups && device->ops->check_float8 != NULL; g++)
        if (model->layout.groups[g].n_coded > 0 && device->ops->check_float8(device, err) != FSDP_OK) {
            fsdp_wrap(err, "gathering \"%s\" in float8", model->layout.groups[g].unit->path);
            return FSDP_ERR_UNSUPPORTED;
        }
    return FSDP_OK;
}

/* a limit, far beyond what activations have memory for, because each forward is recorded */
enum { MAX_FORWARDS = 4096 };

enum fsdp_status model_check_options(const struct fsdp_model_options *options, struct fsdp_err *err)
{
    if (options->seq == 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "a model needs a seq of at least 1");
    if (options->forwards > MAX_FORWARDS)
        return fsdp_fail(err, FSDP_ERR_ARG, "a model of %zu forwards before a backward: at most %d",
                         options->forwards, MAX_FORWARDS);
    if ((unsigned)options->backwards > FSDP_BACKWARD_OF_EACH ||
        (unsigned)options->gradient_sync > FSDP_SYNC_EVERY || (unsigned)options->overlap > FSDP_OVERLAP_OFF ||
        (unsigned)options->recompute > FSDP_RECOMPUTE_NOTHING)
        return fsdp_fail(
            err, FSDP_ERR_ARG,
            "a model with an unknown option: backwards %d, gradient_sync %d, overlap %d, recompute %d",
            (int)options->backwards, (int)options->gradient_sync, (int)options->overlap,
            (int)options->recompute);
    return FSDP_OK;
}

/*
 * Refuses a tree that another model uses. Setters, hooks and gathers by hand are stored in the tree, so two
 * models would share them by mistake.
 */
static enum fsdp_status check_unused(const struct fsdp_context *context, const struct fsdp_module *root,
                                     struct fsdp_err *err)
{
    for (const struct fsdp_model *m = context->models; m != NULL; m = m->next)
        if (m->root == root)
            return fsdp_fail(
                err, FSDP_ERR_ARG,
                "a model is made of this tree already: destroy that one first, or build another tree");
    return FSDP_OK;
}

/* Take the model off its context's list, if it is on it. */
static void leave_context(const struct fsdp_model *model)
{
    struct fsdp_model **link = &model->context->models;

    while (*link != NULL && *link != model)
        link = &(*link)->next;
    if (*link != NULL)
        *link = model->next;
}

/*
 * Makes a model with its layout, without any collective. *out may be set even after a failure; the caller
 * then destroys it.
 */
static enum fsdp_status begin_model(struct fsdp_model **out, struct fsdp_context *context,
                                    struct fsdp_module *root, const struct fsdp_model_options *options,
                                    struct fsdp_err *err)
{
    struct fsdp_model *model;
    enum fsdp_status status = fsdp_module_check(root, err);

    *out = NULL;
    if (status != FSDP_OK)
        return status;
    if (root->parent != NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "a model is made of the root of a tree, not of \"%s\"",
                         root->path);
    OK_OR_RETURN(model_check_options(options, err));
    OK_OR_RETURN(check_unused(context, root, err));
    *out = model = alloc_array(1, sizeof *model);
    if (model == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "a model: out of memory");
    model->context = context;
    model->root = root;
    model->options = *options;
    model->loaded_step = -1;
    model->nonfinite_parameter = -1;
    model->grad_scale = model->loss_scale = 1.0;
    status = model_make_layout(model, err);
    if (status == FSDP_OK)
        status = check_float8(model, err);
    if (status == FSDP_OK)
        status = model_prepare_comms(model, err);
    if (status != FSDP_OK)
        fsdp_wrap(err, "building the model");
    return status;
}

enum fsdp_status fsdp_model_create(struct fsdp_model **out, struct fsdp_context *context,
                                   struct fsdp_module *root, const struct fsdp_model_options *options,
                                   struct fsdp_err *err)
{
    REQUIRE(out, err);
    REQUIRE(context, err);

    struct fsdp_model *model = NULL;
    enum fsdp_status status = GIVEN(options, err);

    *out = NULL;
    unshard_settle_all(context);
    if (status == FSDP_OK)
        status = begin_model(&model, context, root, options, err);
    status = tree_agree(context, root, status, err);
    if (status != FSDP_OK) {
        fsdp_model_destroy(model);
        return status;
    }
    status = model_open_comms(model, err);
    if (status == FSDP_OK)
        status = copies_compare(model, err);
    if (status != FSDP_OK) { /* this rank leaves the groups: others may wait for it while they open a group */
        model_break(model, status, err);
        fsdp_model_destroy(model);
        return status;
    }
    status = alloc_shards(model, err);
    model->planned = model_policies(model);
    if (status == FSDP_OK)
        status = unshard_create(model, err);
    if (status == FSDP_OK && options->batch > 0)
        status = program_create(&model->training, model, options->batch, true, options->seq, err);
    if (status == FSDP_OK && options->batch > 0)
        model_place_gradients(model);
    if (status == FSDP_OK)
        status = model_plan_initial(model, err);
    if (status != FSDP_OK)
        fsdp_wrap(err, "building the model");
    status = model_agree(model, NULL, 0, status, err);
    if (status != FSDP_OK) {
        fsdp_model_destroy(model);
        return status;
    }
    model->next = context->models;
    context->models = model;
    *out = model;
    return FSDP_OK;
}

void fsdp_model_destroy(struct fsdp_model *model)
{
    if (model == NULL)
        return;
    leave_context(model);
    unshard_destroy(model); /* this comes before the end of the second thread, which may still be gathering */
    program_destroy(&model->training);
    program_destroy(&model->evaluation);
    for (int p = 0; p < N_PLACES; p++) {
        struct model_memory *memory = &model->memory[p];

        place_free(model->context, (enum shard_place)p, memory->parameters, memory->parameter_bytes);
        if (p != PLACE_DEVICE)
            place_free(model->context, (enum shard_place)p, memory->gradients, memory->gradient_bytes);
    }
    free(model->initial);
    free(model->in_step);
    free(model->groups);
    model_close_comms(model);
    model_drop_layout(model);
    free(model);
}

double model_gradient_scale(const struct fsdp_model *model, int group)
{
    /* Gradients of ignored parameters belong to this rank alone, so clipping does not scale them. */
    return model->loss_scale * (model->layout.groups[group].local ? 1.0 : model->grad_scale);
}

void fsdp_model_memory(const struct fsdp_model *model, struct fsdp_memory *memory)
{
    if (memory != NULL)
        *memory = (struct fsdp_memory){ 0 };
    if (model == NULL || memory == NULL)
        return;

    const struct plan *plan = &model->training.plan;
    const bool trains = model->options.batch > 0;
    size_t shards = 0, gradients = 0, host_shards = 0, host_gradients = 0;

    for (int g = 0; g < model->layout.n_groups; g++) {
        const struct plan_group *group = &model->layout.groups[g];

        shards += group->row_elems * sizeof(float);
        gradients += group->grad_row_elems * sizeof(float);
        host_shards += group->offloads ? group->row_elems * sizeof(float) : 0;
        host_gradients += group->offloads ? group->grad_row_elems * sizeof(float) : 0;
    }
    *memory = (struct fsdp_memory){
        .parameters = shards,
        .gradients = trains ? gradients : 0,
        .host_parameters = host_shards,
        .host_gradients = trains ? host_gradients : 0,
        .gather = plan->class_bytes[PLAN_GATHERED],
        .reduce = plan->class_bytes[PLAN_REDUCED],
        .activations = plan->class_bytes[PLAN_ACTIVATIONS],
        .scratch = plan->class_bytes[PLAN_SCRATCH],
        .arena = plan->arena_bytes - plan->gradient_bytes,
        .evaluation = model->evaluation.plan.arena_bytes,
    };
}

char *fsdp_model_plan_text(const struct fsdp_model *model)
{
    if (model == NULL)
        return NULL;
    return plan_text(model->options.batch > 0 ? &model->training.plan : &model->evaluation.plan);
}

struct fsdp_context *fsdp_model_context(const struct fsdp_model *model)
{
    return model != NULL ? model->context : NULL;
}
