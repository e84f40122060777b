/*
 * An optimizer of a model. The state of this rank's rows is in one piece of memory, or in a file with a
 * window of it in memory. This file also has the loop over parameters.
 */
#include "shard_runtime/engine/optimizer.h"

#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/timing.h"
#include "shard_runtime/engine/unshard.h"

/*
 * Checks that the state can be in a file. Updates run on the device that has the shards, but the window of
 * the file is in host memory.
 */
enum fsdp_status optimizer_check_offload(const struct fsdp_optimizer_options *options,
                                         const struct fsdp_module *root, bool apart, struct fsdp_err *err)
{
    if (options->offload_dir == NULL || !apart)
        return FSDP_OK;
    for (const struct fsdp_module *m = root; m != NULL; m = module_next(root, m)) {
        if (m->sharded && m->policy.offload != FSDP_OFFLOAD_CPU)
            return fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                             "optimizer state in a file needs shards in host memory: \"%s\" does not offload",
                             m->path);
        for (size_t i = 0; i < m->n_parameters; i++)
            if (m->parameters[i]->ignored && !m->parameters[i]->frozen)
                return fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                                 "optimizer state in a file needs shards in host memory: \"%s\" is not "
                                 "sharded, and stays on the device",
                                 m->parameters[i]->name);
    }
    return FSDP_OK;
}

static enum fsdp_status make_offload(struct fsdp_optimizer *optimizer, struct fsdp_err *err)
{
    struct fsdp_context *context = optimizer->model->context;
    const struct offload_options options = { .io = context_files(context),
                                             .directory = optimizer->rates.general.offload_dir,
                                             .rank = context->rank,
                                             .window_bytes = optimizer->rates.general.offload_window_bytes };
    size_t *n_elems = alloc_array((size_t)optimizer->n_tensors, sizeof *n_elems);
    enum fsdp_status status;

    if (n_elems == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "an optimizer: out of memory");
    for (int i = 0; i < optimizer->n_tensors; i++)
        n_elems[i] = optimizer->tensors[i].n_elems;
    status = offload_create(&optimizer->offload, place_host_device(context), n_elems, optimizer->n_tensors,
                            optimizer->n_states, &options, err);
    free(n_elems);
    return status;
}

static int group_of(const struct fsdp_optimizer *optimizer, int i)
{
    return optimizer->model->layout.params[optimizer->params[i]].group;
}

static enum shard_place place_of(const struct fsdp_optimizer *optimizer, int i)
{
    return model_place(optimizer->model, group_of(optimizer, i));
}

static enum fsdp_status alloc_state(struct fsdp_optimizer *optimizer, struct fsdp_err *err)
{
    size_t offset[N_PLACES] = { 0 };
    enum fsdp_status status = FSDP_OK;

    if (optimizer->rates.general.offload_dir != NULL && optimizer->n_states > 0)
        return make_offload(optimizer, err);
    for (int i = 0; i < optimizer->n_tensors; i++)
        optimizer->state_bytes[place_of(optimizer, i)] +=
            optimizer->tensors[i].n_elems * (size_t)optimizer->n_states * sizeof(float);
    for (int p = 0; p < N_PLACES && status == FSDP_OK; p++) {
        status = place_alloc(optimizer->model->context, (enum shard_place)p, optimizer->state_bytes[p],
                             &optimizer->state[p], err);
        if (status != FSDP_OK)
            fsdp_wrap(err, "%zu bytes of optimizer state", optimizer->state_bytes[p]);
    }
    for (int i = 0; i < optimizer->n_tensors && status == FSDP_OK; i++)
        for (int s = 0; s < optimizer->n_states; s++) {
            const enum shard_place p = place_of(optimizer, i);

            if (optimizer->state[p] != NULL)
                optimizer->tensors[i].state[s] = optimizer->state[p] + offset[p];
            offset[p] += optimizer->tensors[i].n_elems;
        }
    return status;
}

static enum fsdp_status add_tensor(struct fsdp_optimizer *optimizer, int param, struct fsdp_err *err)
{
    const struct fsdp_model *model = optimizer->model;
    const struct fsdp_parameter *parameter = model->layout.params[param].parameter;
    const int i = optimizer->n_tensors++;
    struct optim_tensor *tensor = &optimizer->tensors[i];

    tensor->param = model_shard(model, FSDP_VALUE, param, &tensor->n_elems);
    tensor->n_dims = parameter->n_dims;
    optimizer->params[i] = param;
    optim_rates_add(&optimizer->rates, parameter->name);
    for (int s = 0; s < optimizer->n_states; s++) {
        char *name = alloc_printf("optimizer.%s.%s", optimizer->ops->state_names[s], parameter->name);

        optimizer->names[i * optimizer->n_states + s] = name;
        if (name == NULL)
            return fsdp_fail(err, FSDP_ERR_NOMEM, "an optimizer: out of memory");
    }
    return FSDP_OK;
}

/* Starts the options and rates; the groups of `options` may name any parameter of the model. */
static enum fsdp_status init_rates(struct fsdp_optimizer *optimizer,
                                   const struct fsdp_optimizer_options *options, struct fsdp_err *err)
{
    const struct plan *layout = &optimizer->model->layout;
    const char **names = alloc_array((size_t)layout->n_params, sizeof *names);
    enum fsdp_status status;

    if (names == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "an optimizer: out of memory");
    for (int i = 0; i < layout->n_params; i++)
        names[i] = layout->params[i].parameter->name;
    status = optim_rates_init(&optimizer->rates, options, names, layout->n_params, err);
    free(names);
    return status;
}

static enum fsdp_status list_tensors(struct fsdp_optimizer *optimizer, struct fsdp_err *err)
{
    const struct fsdp_model *model = optimizer->model;
    const size_t n = (size_t)model->layout.n_params;
    enum fsdp_status status = FSDP_OK;

    optimizer->tensors = alloc_array(n, sizeof *optimizer->tensors);
    optimizer->updates = alloc_array(n, sizeof *optimizer->updates);
    optimizer->params = alloc_array(n, sizeof *optimizer->params);
    optimizer->names = alloc_array(n * OPTIM_MAX_STATES, sizeof(char *));
    if (optimizer->tensors == NULL || optimizer->updates == NULL || optimizer->params == NULL ||
        optimizer->names == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "an optimizer: out of memory");
    for (int i = 0; i < (int)n && status == FSDP_OK; i++)
        if (model->layout.params[i].trains)
            status = add_tensor(optimizer, i, err);
    return status;
}

/* *out is set even after a failure, if there was memory for the struct. */
static enum fsdp_status make(struct fsdp_optimizer **out, struct fsdp_model *model,
                             const struct fsdp_optimizer_options *options, struct fsdp_err *err)
{
    struct fsdp_optimizer *optimizer;
    enum fsdp_status status;

    OK_OR_RETURN(optim_check(options, err));
    OK_OR_RETURN(
        optimizer_check_offload(options, model->root, device_is_separate(&model->context->device), err));
    if (!model_has_gradients(model))
        return fsdp_fail(err, FSDP_ERR_ARG, "an optimizer for a model that was made for evaluation only");
    *out = optimizer = alloc_array(1, sizeof *optimizer);
    if (optimizer == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "an optimizer: out of memory");
    optimizer->model = model;
    optimizer->ops = optim_find(options->kind);
    optimizer->n_states = optimizer->ops->n_states(options);
    status = init_rates(optimizer, options, err);
    if (status == FSDP_OK)
        status = list_tensors(optimizer, err);
    if (status == FSDP_OK)
        status = alloc_state(optimizer, err);
    optimizer->rates.general.groups = NULL; /* the list belongs to the caller, like offload_dir */
    optimizer->rates.general.offload_dir = NULL;
    return status;
}

enum fsdp_status fsdp_optimizer_create(struct fsdp_optimizer **out, struct fsdp_model *model,
                                       const struct fsdp_optimizer_options *options, struct fsdp_err *err)
{
    REQUIRE(out, err);
    REQUIRE(model, err);

    struct fsdp_optimizer *optimizer = NULL;
    enum fsdp_status status = GIVEN(options, err);

    *out = NULL;
    unshard_settle_all(model->context);
    if (status == FSDP_OK)
        status = make(&optimizer, model, options, err);
    status = model_agree(model, NULL, 0, status, err);
    if (status != FSDP_OK) {
        fsdp_optimizer_destroy(optimizer);
        return status;
    }
    *out = optimizer;
    return FSDP_OK;
}

void fsdp_optimizer_destroy(struct fsdp_optimizer *optimizer)
{
    if (optimizer == NULL)
        return;
    for (int p = 0; p < N_PLACES; p++)
        place_free(optimizer->model->context, (enum shard_place)p, optimizer->state[p],
                   optimizer->state_bytes[p]);
    offload_destroy(optimizer->offload);
    for (int i = 0; optimizer->names != NULL && i < optimizer->model->layout.n_params * OPTIM_MAX_STATES; i++)
        free(optimizer->names[i]);
    free(optimizer->names);
    optim_rates_fini(&optimizer->rates);
    free(optimizer->params);
    free(optimizer->updates);
    free(optimizer->tensors);
    free(optimizer);
}

/*
 * Describes an update. `rows` are all rows of tensor i, or some of them, from element `first` on. The plan of
 * the step determines where the gradients are.
 */
static struct numerics_update update_of(const struct fsdp_optimizer *optimizer, int i,
                                        const struct optim_tensor *rows, size_t first)
{
    const struct fsdp_optimizer_options *options = &optimizer->rates.of[i].options;
    size_t n_elems;

    return (struct numerics_update){
        .param = rows->param,
        .grad = model_shard(optimizer->model, FSDP_GRADIENT, optimizer->params[i], &n_elems) + first,
        .m = rows->state[0],
        .v = rows->state[1],
        .n_elems = rows->n_elems,
        .lr = optim_rate(&optimizer->rates, options, optimizer->step),
        .weight_decay = optim_decay(options, rows->n_dims),
        .grad_scale = (float)model_gradient_scale(optimizer->model, group_of(optimizer, i)),
    };
}

static void update(struct fsdp_optimizer *optimizer, enum shard_place place,
                   const struct numerics_update *updates, size_t n_updates)
{
    struct fsdp_context *context = optimizer->model->context;
    uint64_t n_elems = 0;
    bool timed;

    if (n_updates == 0)
        return;
    for (size_t i = 0; i < n_updates; i++)
        n_elems += updates[i].n_elems;
    /* An update reads a gradient, and reads and writes a parameter and each of its states. */
    timed = place == PLACE_DEVICE &&
            timing_begin(context, "optimizer",
                         n_elems * sizeof(float) * (1 + 2 * (1 + (uint64_t)optimizer->n_states)));
    optimizer->ops->update(place_numerics(context, place), context->streams[PLAN_COMPUTE],
                           &optimizer->rates.general, updates, n_updates, optimizer->step + 1);
    if (timed)
        timing_end(context, PLAN_COMPUTE);
}

/* The tensors to update: those of one group, or (-1) of all groups that this step has not updated yet. */
struct selection {
    struct fsdp_optimizer *optimizer;
    int group;
};

static bool is_selected(void *user, int i)
{
    const struct selection *selection = user;
    const int group = group_of(selection->optimizer, i);

    return selection->group < 0 ? !selection->optimizer->model->in_step[group].updated
                                : group == selection->group;
}

static enum fsdp_status update_part(void *user, int i, size_t first, size_t n_elems, float *const *state,
                                    struct fsdp_err *err)
{
    const struct selection *selection = user;
    struct fsdp_optimizer *optimizer = selection->optimizer;
    struct fsdp_context *context = optimizer->model->context;
    struct optim_tensor part = optimizer->tensors[i];
    struct numerics_update rows;

    part.param += first;
    part.n_elems = n_elems;
    for (int s = 0; s < optimizer->n_states; s++)
        part.state[s] = state[s];
    rows = update_of(optimizer, i, &part, first);
    update(optimizer, place_of(optimizer, i), &rows, n_elems > 0);
    context_alive(context);
    return context->device.ops->synchronize(context->streams[PLAN_COMPUTE],
                                            err); /* the chunk is written back after this */
}

/*
 * Updates the selected tensors whose shards are in this place. The device gets them as one list. The host
 * gets them one by one, because it needs time for each.
 */
static void update_place(struct fsdp_optimizer *optimizer, enum shard_place place,
                         struct selection *selection)
{
    size_t n_updates = 0, n;

    for (int i = 0; i < optimizer->n_tensors; i++)
        if (is_selected(selection, i) && place_of(optimizer, i) == place && optimizer->tensors[i].n_elems > 0)
            optimizer->updates[n_updates++] = update_of(optimizer, i, &optimizer->tensors[i], 0);
    for (size_t done = 0; done < n_updates; done += n) {
        n = place == PLACE_DEVICE ? n_updates : 1;
        update(optimizer, place, optimizer->updates + done, n);
        context_alive(optimizer->model->context);
    }
}

static enum fsdp_status update_selected(struct fsdp_optimizer *optimizer, int group, struct fsdp_err *err)
{
    struct fsdp_context *context = optimizer->model->context;
    struct selection selection = { .optimizer = optimizer, .group = group };
    const struct offload_visitor visitor = { .user = &selection,
                                             .wants = is_selected,
                                             .update = update_part };

    if (optimizer->before_update != NULL)
        optimizer->before_update(optimizer->before_update_user);
    if (optimizer->offload != NULL)
        return offload_run(optimizer->offload, &visitor, err);
    for (int p = 0; p < N_PLACES; p++)
        update_place(optimizer, (enum shard_place)p, &selection);
    return context->device.ops->synchronize(context->streams[PLAN_COMPUTE], err);
}

/* Checks that there are gradients which no update has used yet. All ranks get the same result. */
static enum fsdp_status check_gradients(const struct fsdp_model *model, struct fsdp_err *err)
{
    OK_OR_RETURN(gradients_check(model, err));
    if (model->used)
        return fsdp_fail(
            err, FSDP_ERR_ARG,
            "the gradients of the last step were used already: a backward comes before an update");
    return model->nonfinite_parameter < 0 ? FSDP_OK
                                          : gradients_fail_nonfinite(model, model->nonfinite_parameter, err);
}

/*
 * Checks a group before its update. Inside backward, each rank checks only its own rows. The end of the step
 * reports whether gradients on other ranks were finite.
 */
static enum fsdp_status check_group(const struct fsdp_model *model, int group, struct fsdp_err *err)
{
    int nonfinite;

    if (group < 0 || group >= model->layout.n_groups || model->in_step[group].updated)
        return fsdp_fail(err, FSDP_ERR_ARG, "group %d is updated a second time, or not there", group);
    if (!model->in_step[group].final || model->has_gradients)
        return check_gradients(model, err);
    nonfinite = gradients_find_nonfinite(model, group);
    return nonfinite < 0 ? FSDP_OK : gradients_fail_nonfinite(model, nonfinite, err);
}

enum fsdp_status fsdp_optimizer_step_group(struct fsdp_optimizer *optimizer, int group, struct fsdp_err *err)
{
    REQUIRE(optimizer, err);

    OK_OR_RETURN(check_group(optimizer->model, group, err));
    OK_OR_RETURN(optim_rates_check(&optimizer->rates, optimizer->step, err));
    optimizer->model->in_step[group].updated = true;
    return update_selected(optimizer, group, err);
}

enum fsdp_status fsdp_optimizer_step(struct fsdp_optimizer *optimizer, struct fsdp_err *err)
{
    REQUIRE(optimizer, err);

    struct fsdp_model *model = optimizer->model;
    const bool collective = optimizer->offload != NULL || model->machines_differ[0] != '\0';
    enum fsdp_status status;

    OK_OR_RETURN(check_gradients(model, err));
    unshard_drop_all(model);
    status = optim_rates_check(&optimizer->rates, optimizer->step, err);
    /* the update ends with a collective, so even a rank that failed takes part */
    if (collective)
        status = model_agree(model, NULL, 0, status, err);
    if (status != FSDP_OK)
        return status;
    fsdp_context_phase(model->context, FSDP_PHASE_OPTIMIZER);
    status = update_selected(optimizer, -1, err);
    /* ranks agree only then: a disk may fail on one rank alone, but an update in memory fails on none */
    if (optimizer->offload != NULL)
        status = model_agree(model, NULL, 0, status, err);
    if (status == FSDP_OK)
        status = copies_equalise(model, err);
    model->used = true;
    model->torn = model->torn || status != FSDP_OK;
    fsdp_optimizer_set_step_count(optimizer, optimizer->step + 1);
    return status;
}

uint64_t fsdp_optimizer_step_count(const struct fsdp_optimizer *optimizer)
{
    return optimizer != NULL ? optimizer->step : 0;
}

void fsdp_optimizer_set_step_count(struct fsdp_optimizer *optimizer, uint64_t step)
{
    if (optimizer == NULL)
        return;
    optimizer->step = step;
    optimizer->model->draws.step = step;
}

double fsdp_optimizer_lr(const struct fsdp_optimizer *optimizer)
{
    return optimizer != NULL ? optim_rate(&optimizer->rates, &optimizer->rates.general, optimizer->step) : 0;
}

enum fsdp_status fsdp_optimizer_set_lr(struct fsdp_optimizer *optimizer, double lr, struct fsdp_err *err)
{
    REQUIRE(optimizer, err);
    return optim_rates_set(&optimizer->rates, lr, err);
}

enum fsdp_status fsdp_optimizer_set_group_lr(struct fsdp_optimizer *optimizer, size_t group, double lr,
                                             struct fsdp_err *err)
{
    REQUIRE(optimizer, err);
    return optim_rates_set_group(&optimizer->rates, group, lr, err);
}

void fsdp_optimizer_set_lr_lambda(struct fsdp_optimizer *optimizer, fsdp_lr_lambda_fn lr_lambda, void *user)
{
    if (optimizer == NULL)
        return;
    optimizer->rates.lr_lambda = lr_lambda;
    optimizer->rates.lr_user = user;
}
