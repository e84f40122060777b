/*
 * Parameters by name: whole copies of them, and this rank's shards as a list.
 */
#include <string.h>

#include "shard_runtime/engine/unshard.h"
#include "shard_runtime/shard/layout.h"

int model_cut(const struct fsdp_model *model, int index, int *rank)
{
    const struct plan_group *group = &model->layout.groups[model->layout.params[index].group];

    *rank = group->local ? 0 : model_mesh(model, model->layout.params[index].group)->shard_rank;
    return group->W;
}

/* The runs of the shard that `rank` of W has of part number `part`. */
static struct layout_walk walk_of(const struct fsdp_parameter *p, int part, int W, int rank)
{
    return layout_walk_of(p->whole_shape, p->n_dims, p->split.dim, p->split.n_parts, part, p->shard_dim, W,
                          rank);
}

struct layout_walk model_walk(const struct fsdp_model *model, int index)
{
    const struct fsdp_parameter *parameter = model->layout.params[index].parameter;
    int rank;
    const int W = model_cut(model, index, &rank);

    return walk_of(parameter, parameter->split.part, W, rank);
}

static struct layout_cut cut_of(const struct fsdp_parameter *parameter)
{
    return layout_cut_of(parameter->shape, parameter->n_dims, parameter->shard_dim);
}

bool model_shard_elems(const struct fsdp_model *model, enum fsdp_which which, int index, size_t *n_elems)
{
    const struct plan_param *param = &model->layout.params[index];
    const struct layout_cut cut = cut_of(param->parameter);
    int rank;
    const int W = model_cut(model, index, &rank);

    *n_elems = 0;
    if (which == FSDP_GRADIENT && !param->trains)
        return false;
    *n_elems = layout_piece_of(&cut, W, rank, 0).n_elems * cut.outer;
    return true;
}

float *model_shard(const struct fsdp_model *model, enum fsdp_which which, int index, size_t *n_elems)
{
    const struct plan_param *param = &model->layout.params[index];
    const struct param_group *group = &model->groups[param->group];

    if (!model_shard_elems(model, which, index, n_elems))
        return NULL;
    return which == FSDP_VALUE ? group->shards + param->row_offset : group->grads + param->grad_offset;
}

size_t fsdp_model_parameter_count(const struct fsdp_model *model)
{
    return (size_t)model->layout.n_params;
}

enum fsdp_status fsdp_model_parameter(const struct fsdp_model *model, size_t index,
                                      struct fsdp_parameter_info *info, struct fsdp_err *err)
{
    const struct fsdp_parameter *parameter;
    struct layout_rows rows;
    int W, rank;

    if (index >= (size_t)model->layout.n_params)
        return fsdp_fail(err, FSDP_ERR_ARG, "parameter %zu of %d", index, model->layout.n_params);
    parameter = model->layout.params[index].parameter;
    W = model_cut(model, (int)index, &rank);
    rows = layout_shard(parameter->shape[parameter->shard_dim], W, rank);
    *info = (struct fsdp_parameter_info){ .name = parameter->name,
                                          .n_dims = parameter->n_dims,
                                          .n_elems = parameter->whole_elems,
                                          .shard_dim = parameter->shard_dim,
                                          .split_dim = parameter->split.dim,
                                          .n_splits = parameter->split.n_parts,
                                          .split = parameter->split.part,
                                          .everywhere = parameter->ignored,
                                          .requires_grad = !parameter->frozen,
                                          .has_gradient = model->layout.params[index].trains,
                                          .first_row = rows.first,
                                          .n_rows = rows.n_rows,
                                          .group = model->layout.params[index].group };
    memcpy(info->shape, parameter->whole_shape, sizeof info->shape);
    return FSDP_OK;
}

static int find_parameter(const struct fsdp_model *model, const char *name, size_t n_elems,
                          struct fsdp_err *err)
{
    for (int i = 0; i < model->layout.n_params; i++) {
        const struct fsdp_parameter *parameter = model->layout.params[i].parameter;

        if (strcmp(parameter->name, name) != 0)
            continue;
        if (parameter->whole_elems == n_elems)
            return i;
        fsdp_fail(err, FSDP_ERR_ARG, "\"%s\" has %zu elements, not %zu", name, parameter->whole_elems,
                  n_elems);
        return -1;
    }
    fsdp_fail(err, FSDP_ERR_ARG, "there is no parameter \"%s\"", name);
    return -1;
}

/* The shards of part number `part`, one rank's after the other's, where they belong in the whole tensor in host memory. */
static void assemble(struct fsdp_model *model, int index, int part, const float *gathered, float *out)
{
    const struct plan_param *param = &model->layout.params[index];
    const enum shard_place place = model_place(model, param->group);
    int rank;
    const int W = model_cut(model, index, &rank);

    for (rank = 0; rank < W; rank++) {
        struct layout_walk walk = walk_of(param->parameter, part, W, rank);
        struct layout_piece run;

        while (layout_walk_next(&walk, &run))
            place_read(model->context, place, out + run.whole_at,
                       gathered + param->chunk_elems * (size_t)rank + run.shard_at,
                       run.n_elems * sizeof(float));
    }
}

/* Every rank's shard of every part into `all`, (n_parts, W, chunk), which is where the shards are: over the ranks that shard,
 * then over the tensor group. */
static enum fsdp_status gather_parts(struct fsdp_model *model, int index, const float *shard, float *all,
                                     struct fsdp_err *err)
{
    const struct plan_param *param = &model->layout.params[index];
    const struct tensor_split *split = &param->parameter->split;
    struct device_stream *stream = model->context->streams[PLAN_COMPUTE];
    int rank;
    const int W = model_cut(model, index, &rank);
    const size_t part_elems = param->chunk_elems * (size_t)W;
    float *own = all + part_elems * (size_t)split->part;
    enum fsdp_status status = FSDP_OK;

    if (W > 1)
        status = fsdp_all_gather(model_mesh(model, param->group)->shards, shard, own, param->chunk_elems,
                                 FSDP_F32, stream, err);
    else if (model_place(model, param->group) == PLACE_DEVICE)
        model->context->device.ops->copy(stream, own, shard, part_elems * sizeof(float), DEVICE_COPY_WITHIN);
    else
        memcpy(own, shard, part_elems * sizeof(float));
    return status == FSDP_OK && split->n_parts > 1
               ? fsdp_all_gather(model->tensor, own, all, part_elems, FSDP_F32, stream, err)
               : status;
}

static void scale_all(float *values, size_t n, float scale)
{
    for (size_t i = 0; i < n && scale != 1.0f; i++)
        values[i] *= scale;
}

/* Do they lie whole among the activations, not reduced, until the step's last backward? */
static bool are_yet_to_be_reduced(const struct fsdp_model *model, int group)
{
    const struct plan_group *layout = &model->layout.groups[group];

    return layout->reduces && layout->accumulates_whole &&
           (model->n_micro_done > 0 || model->training.next_call > model->training.plan.n_forwards);
}

/* Are there gradients to be gathered? Collective: a rank may have lost them alone, where it could not plan anew. */
static enum fsdp_status find_gradients(struct fsdp_model *model, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;

    if (model->training.context == NULL)
        status = fsdp_fail(err, FSDP_ERR_ARG, "the last step could not be planned: there are no gradients");
    return model_agree(model, NULL, 0, status, err);
}

enum fsdp_status fsdp_parameter_gather(struct fsdp_model *model, const char *name, enum fsdp_which which,
                                       float *out, size_t n_elems, struct fsdp_err *err)
{
    struct device_stream *stream = model->context->streams[PLAN_COMPUTE];
    const int index = find_parameter(model, name, n_elems, err);
    size_t part_elems, n_own, gathered_bytes;
    enum fsdp_status status = FSDP_OK;
    float *gathered = NULL;
    const float *shard;
    enum shard_place place; /* ordinary memory for what is in the host's: nothing goes to the device */
    int rank, W, n_parts;

    if (index < 0)
        return FSDP_ERR_ARG;
    if (which == FSDP_GRADIENT && (model->options.batch == 0 || !model->layout.params[index].trains))
        return fsdp_fail(err, FSDP_ERR_ARG,
                         model->options.batch == 0
                             ? "the model was made for evaluation only: it has no gradients"
                             : "\"%s\" is frozen or not used: it has no gradient",
                         name);
    if (which == FSDP_GRADIENT && model->training.next_call > 0 &&
        model->training.next_call <= model->training.plan.n_forwards)
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "a forward is waiting for its backward, which makes \"%s\"'s gradient", name);
    if (which == FSDP_GRADIENT && are_yet_to_be_reduced(model, model->layout.params[index].group))
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "the last backward of this step, which reduces \"%s\"'s gradient, is yet to come",
                         name);
    W = model_cut(model, index, &rank);
    n_parts = model->layout.params[index].parameter->split.n_parts;
    part_elems = model->layout.params[index].chunk_elems * (size_t)W;
    gathered_bytes = part_elems * (size_t)n_parts * sizeof(float);
    shard = model_shard(model, which, index, &n_own);
    place =
        model_place(model, model->layout.params[index].group) == PLACE_DEVICE ? PLACE_DEVICE : PLACE_PAGED;
    status = unshard_settle(model, err);
    if (status == FSDP_OK && which == FSDP_VALUE)
        status = model_draw(model, err);
    if (status == FSDP_OK && which == FSDP_GRADIENT)
        status = find_gradients(model, err);
    if (status == FSDP_OK && (W > 1 || n_parts > 1)) {
        status = place_alloc(model->context, place, gathered_bytes, &gathered, err);
        if (status == FSDP_OK)
            status = gather_parts(model, index, shard, gathered, err);
    }
    for (int part = 0; part < n_parts && status == FSDP_OK; part++)
        assemble(model, index, part, gathered != NULL ? gathered + part_elems * (size_t)part : shard, out);
    if (status == FSDP_OK)
        status = model->context->device.ops->synchronize(stream, err);
    place_free(model->context, place, gathered, gathered_bytes);
    if (status == FSDP_OK && which == FSDP_GRADIENT)
        scale_all(out, n_elems, (float)model_gradient_scale(model, model->layout.params[index].group));
    return status;
}

enum fsdp_status fsdp_parameter_set(struct fsdp_model *model, const char *name, const float *values,
                                    size_t n_elems, struct fsdp_err *err)
{
    const int index = find_parameter(model, name, n_elems, err);
    struct device_stream *stream = model->context->streams[PLAN_COMPUTE];
    struct layout_walk walk;
    struct layout_piece run;
    size_t n_own;
    float *shard;

    if (index < 0)
        return FSDP_ERR_ARG;
    unshard_drop_all(model);
    shard = model_shard(model, FSDP_VALUE, index, &n_own);
    walk = model_walk(model, index);
    while (layout_walk_next(&walk, &run))
        place_write(model->context, model_place(model, model->layout.params[index].group),
                    shard + run.shard_at, values + run.whole_at, run.n_elems * sizeof(float));
    model_is_filled(model, index);
    return model->context->device.ops->synchronize(stream, err);
}

/* Where this rank's shard lies in the whole: a box, whatever the two dimensions are. */
static void place(const struct fsdp_parameter *p, struct layout_rows rows, struct fsdp_tensor_shard *out)
{
    for (int d = 0; d < p->n_dims; d++) {
        out->offsets[d] = p->split.n_parts > 1 && d == p->split.dim ? p->shape[d] * (size_t)p->split.part : 0;
        out->sizes[d] = p->shape[d];
    }
    out->offsets[p->shard_dim] += rows.first;
    out->sizes[p->shard_dim] = rows.n_rows;
}

/* Of ranks that hold the same rows one has them in its file: that of replica 0 and, where they are not split, part 0. */
static bool is_saved_elsewhere(const struct fsdp_model *model, int index)
{
    const struct plan_param *param = &model->layout.params[index];
    const struct model_mesh *mesh = model_mesh(model, param->group);
    const bool is_split = param->parameter->split.n_parts > 1;

    if (model->layout.groups[param->group].local && mesh->shard_rank > 0)
        return true;
    return mesh->replica_rank > 0 || (!is_split && model->tensor_rank > 0);
}

void model_tensor_shard(const struct fsdp_model *model, int index, struct fsdp_tensor_shard *out)
{
    struct fsdp_parameter_info info;

    (void)fsdp_model_parameter(model, (size_t)index, &info, NULL); /* it is in range */
    *out = (struct fsdp_tensor_shard){ .name = info.name,
                                       .dtype = FSDP_F32,
                                       .n_dims = info.n_dims,
                                       .shard_dim = info.shard_dim,
                                       .everywhere = info.everywhere,
                                       .first_row = info.first_row,
                                       .n_rows = info.n_rows,
                                       .elsewhere = is_saved_elsewhere(model, index) };
    memcpy(out->shape, info.shape, sizeof out->shape);
    place(model->layout.params[index].parameter, (struct layout_rows){ info.first_row, info.n_rows }, out);
}

void model_list_state(struct fsdp_model *model, struct fsdp_tensor_shard *out)
{
    for (int i = 0; i < model->layout.n_params; i++) {
        size_t n_elems;

        model_tensor_shard(model, i, &out[i]);
        out[i].data = model_shard(model, FSDP_VALUE, i, &n_elems);
    }
}

void fsdp_model_state(struct fsdp_model *model, struct fsdp_tensor_shard *out)
{
    /* The caller may write through the list, so nothing may be drawn over it later. A device that fails here
     * is lost for good, and the next call that can report it does. */
    (void)model_draw(model, NULL);
    model_list_state(model, out);
}
