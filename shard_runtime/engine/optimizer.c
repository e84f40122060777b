/*
 * An optimizer on a model: the state of this rank's rows in one piece of memory, and the loop over
 * parameters.
 */
#include <fsdp/optimizer.h>

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/engine/model.h"
#include "shard_runtime/optim/optim.h"

struct fsdp_optimizer {
    struct fsdp_model *model;
    struct fsdp_optimizer_options options;
    const struct optim_ops *ops;
    struct optim_tensor *tensors;      /* of each parameter that has a gradient */
    struct fsdp_optimizer_options *of; /* each of these: the options with its group's in their place */
    int *params;                       /* each of these: its number in the model */
    char **names;                      /* (tensors, states) */
    bool *updated;                     /* each group: in this step already */
    int n_tensors, n_states;
    float *state;
    size_t state_bytes;
    uint64_t step;
};

static enum fsdp_status alloc_state(struct fsdp_optimizer *optimizer, struct fsdp_err *err)
{
    struct fsdp_model *model = optimizer->model;
    struct device *device = &model->context->device;
    size_t total = 0, offset = 0;
    enum fsdp_status status;
    void *memory = NULL;

    for (int i = 0; i < optimizer->n_tensors; i++)
        total += optimizer->tensors[i].n_elems * (size_t)optimizer->n_states;
    optimizer->state_bytes = total * sizeof(float);
    if (total == 0)
        return FSDP_OK;
    status = device->ops->alloc(device, optimizer->state_bytes, &memory, err);
    if (status != FSDP_OK) {
        fsdp_wrap(err, "%zu bytes of optimizer state", optimizer->state_bytes);
        return status;
    }
    device->ops->fill_zero(model->context->streams[PLAN_COMPUTE], memory, optimizer->state_bytes);
    optimizer->state = memory;
    for (int i = 0; i < optimizer->n_tensors; i++)
        for (int s = 0; s < optimizer->n_states; s++) {
            optimizer->tensors[i].state[s] = optimizer->state + offset;
            offset += optimizer->tensors[i].n_elems;
        }
    return FSDP_OK;
}

/* The options of a parameter: those of the first group whose pattern its name matches, in place of the general. */
static struct fsdp_optimizer_options options_of(const struct fsdp_optimizer_options *options,
                                                const char *name)
{
    struct fsdp_optimizer_options own = *options;

    own.groups = NULL;
    own.n_groups = 0;
    for (size_t g = 0; g < options->n_groups; g++) {
        const struct fsdp_optimizer_group *group = &options->groups[g];

        if (fnmatch(group->pattern, name, 0) != 0)
            continue;
        if (group->lr >= 0)
            own.lr = group->lr;
        if (group->weight_decay >= 0) {
            own.weight_decay = group->weight_decay;
            own.decay = FSDP_DECAY_ALL; /* it was said of these parameters */
        }
        break;
    }
    return own;
}

/* A pattern that matches nothing is a mistake in it. */
static enum fsdp_status check_groups(const struct fsdp_model *model,
                                     const struct fsdp_optimizer_options *options, struct fsdp_err *err)
{
    for (size_t g = 0; g < options->n_groups; g++) {
        bool found = false;

        for (int i = 0; i < model->layout.n_params && !found; i++)
            found = fnmatch(options->groups[g].pattern, model->layout.params[i].parameter->name, 0) == 0;
        if (!found)
            return fsdp_fail(err, FSDP_ERR_ARG, "optimizer group \"%s\": no parameter has such a name",
                             options->groups[g].pattern);
    }
    return FSDP_OK;
}

static enum fsdp_status add_tensor(struct fsdp_optimizer *optimizer, int param, struct fsdp_err *err)
{
    const struct fsdp_model *model = optimizer->model;
    const struct fsdp_parameter *parameter = model->layout.params[param].parameter;
    const int i = optimizer->n_tensors++;
    struct optim_tensor *tensor = &optimizer->tensors[i];

    tensor->param = model_shard(model, FSDP_VALUE, param, &tensor->n_elems);
    tensor->grad = model_shard(model, FSDP_GRADIENT, param, &tensor->n_elems);
    tensor->n_dims = parameter->n_dims;
    optimizer->params[i] = param;
    optimizer->of[i] = options_of(&optimizer->options, parameter->name);
    for (int s = 0; s < optimizer->n_states; s++) {
        char *name = alloc_printf("optimizer.%s.%s", optimizer->ops->state_names[s], parameter->name);

        optimizer->names[i * optimizer->n_states + s] = name;
        if (name == NULL)
            return fsdp_fail(err, FSDP_ERR_NOMEM, "an optimizer: out of memory");
    }
    return FSDP_OK;
}

static enum fsdp_status list_tensors(struct fsdp_optimizer *optimizer, struct fsdp_err *err)
{
    const struct fsdp_model *model = optimizer->model;
    const size_t n = (size_t)model->layout.n_params;
    enum fsdp_status status = check_groups(model, &optimizer->options, err);

    optimizer->tensors = alloc_array(n, sizeof *optimizer->tensors);
    optimizer->of = alloc_array(n, sizeof *optimizer->of);
    optimizer->params = alloc_array(n, sizeof *optimizer->params);
    optimizer->names = alloc_array(n * OPTIM_MAX_STATES, sizeof(char *));
    optimizer->updated = alloc_array((size_t)model->layout.n_groups, sizeof *optimizer->updated);
    if (status == FSDP_OK &&
        (optimizer->tensors == NULL || optimizer->of == NULL || optimizer->params == NULL ||
         optimizer->names == NULL || optimizer->updated == NULL))
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "an optimizer: out of memory");
    for (int i = 0; i < (int)n && status == FSDP_OK; i++)
        if (model->layout.params[i].trains)
            status = add_tensor(optimizer, i, err);
    return status;
}

enum fsdp_status fsdp_optimizer_create(struct fsdp_optimizer **out, struct fsdp_model *model,
                                       const struct fsdp_optimizer_options *options, struct fsdp_err *err)
{
    struct fsdp_optimizer *optimizer;
    enum fsdp_status status;

    *out = NULL;
    status = optim_check(options, err);
    if (status != FSDP_OK)
        return status;
    if (model->gradients == NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "an optimizer for a model that was made for evaluation only");
    optimizer = alloc_array(1, sizeof *optimizer);
    if (optimizer == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "an optimizer: out of memory");
    optimizer->model = model;
    optimizer->options = *options;
    optimizer->ops = optim_find(options->kind);
    optimizer->n_states = optimizer->ops->n_states(options);
    status = list_tensors(optimizer, err);
    if (status == FSDP_OK)
        status = alloc_state(optimizer, err);
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
    if (optimizer->state != NULL)
        optimizer->model->context->device.ops->free(&optimizer->model->context->device, optimizer->state,
                                                    optimizer->state_bytes);
    for (int i = 0; optimizer->names != NULL && i < optimizer->model->layout.n_params * OPTIM_MAX_STATES; i++)
        free(optimizer->names[i]);
    free(optimizer->names);
    free(optimizer->updated);
    free(optimizer->of);
    free(optimizer->params);
    free(optimizer->tensors);
    free(optimizer);
}

static int group_of(const struct fsdp_optimizer *optimizer, int i)
{
    return optimizer->model->layout.params[optimizer->params[i]].group;
}

/* Gradients of ignored parameters are this rank's own business: clipping does not count them. */
static float scale_of(const struct fsdp_optimizer *optimizer, int i)
{
    const struct fsdp_model *model = optimizer->model;

    return model->layout.groups[group_of(optimizer, i)].local ? 1.0f : (float)model->grad_scale;
}

static void update(struct fsdp_optimizer *optimizer, int i, struct device_stream *stream)
{
    const struct fsdp_optimizer_options *options = &optimizer->of[i];

    if (optimizer->tensors[i].n_elems > 0)
        optimizer->ops->update(&optimizer->model->context->numerics, stream, options, &optimizer->tensors[i],
                               fsdp_schedule_lr(options, optimizer->step + 1), scale_of(optimizer, i),
                               optimizer->step + 1);
}

enum fsdp_status fsdp_optimizer_step_group(struct fsdp_optimizer *optimizer, int group, struct fsdp_err *err)
{
    struct fsdp_context *context = optimizer->model->context;
    struct device_stream *stream = context->streams[PLAN_COMPUTE];

    if (group < 0 || group >= optimizer->model->layout.n_groups || optimizer->updated[group])
        return fsdp_fail(err, FSDP_ERR_ARG, "group %d is updated a second time, or not there", group);
    for (int i = 0; i < optimizer->n_tensors; i++)
        if (group_of(optimizer, i) == group)
            update(optimizer, i, stream);
    optimizer->updated[group] = true;
    return context->device.ops->synchronize(stream, err);
}

enum fsdp_status fsdp_optimizer_step(struct fsdp_optimizer *optimizer, struct fsdp_err *err)
{
    struct fsdp_context *context = optimizer->model->context;
    struct device_stream *stream = context->streams[PLAN_COMPUTE];

    fsdp_context_phase(context, FSDP_PHASE_OPTIMIZER);
    for (int i = 0; i < optimizer->n_tensors; i++)
        if (!optimizer->updated[group_of(optimizer, i)])
            update(optimizer, i, stream);
    memset(optimizer->updated, 0, (size_t)optimizer->model->layout.n_groups * sizeof *optimizer->updated);
    optimizer->step++;
    return context->device.ops->synchronize(stream, err);
}

uint64_t fsdp_optimizer_step_count(const struct fsdp_optimizer *optimizer)
{
    return optimizer->step;
}

void fsdp_optimizer_set_step_count(struct fsdp_optimizer *optimizer, uint64_t step)
{
    optimizer->step = step;
}

double fsdp_optimizer_lr(const struct fsdp_optimizer *optimizer)
{
    return fsdp_schedule_lr(&optimizer->options, optimizer->step + 1);
}

size_t fsdp_optimizer_state_count(const struct fsdp_optimizer *optimizer)
{
    return (size_t)optimizer->n_tensors * (size_t)optimizer->n_states;
}

size_t fsdp_optimizer_bytes(const struct fsdp_optimizer *optimizer)
{
    return optimizer->state_bytes;
}

void fsdp_optimizer_state(struct fsdp_optimizer *optimizer, struct fsdp_tensor_shard *out)
{
    struct fsdp_model *model = optimizer->model;

    for (int i = 0; i < optimizer->n_tensors; i++)
        for (int s = 0; s < optimizer->n_states; s++) {
            struct fsdp_parameter_info info;
            struct fsdp_tensor_shard *shard = &out[i * optimizer->n_states + s];

            (void)fsdp_model_parameter(model, (size_t)optimizer->params[i], &info, NULL); /* i is in range */
            *shard = (struct fsdp_tensor_shard){ .name = optimizer->names[i * optimizer->n_states + s],
                                                 .dtype = FSDP_F32,
                                                 .n_dims = info.n_dims,
                                                 .shard_dim = info.shard_dim,
                                                 .everywhere = info.everywhere,
                                                 .first_row = info.first_row,
                                                 .n_rows = info.n_rows,
                                                 .data = optimizer->tensors[i].state[s] };
            memcpy(shard->shape, info.shape, sizeof shard->shape);
        }
}
