/*
 * Parameters by name, and this rank's shards as a list.
 */
#include <string.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/unshard.h"
#include "shard_runtime/shard/layout.h"

int model_cut(const struct fsdp_model *model, int index, int *rank)
{
    const struct plan_group *group = &model->layout.groups[model->layout.params[index].group];

    *rank = group->local ? 0 : model_mesh(model, model->layout.params[index].group)->shard_rank;
    return group->W;
}

struct layout_walk model_walk(const struct fsdp_model *model, int index)
{
    const struct fsdp_parameter *p = model->layout.params[index].parameter;
    int rank;
    const int W = model_cut(model, index, &rank);

    return layout_walk_of(p->whole_shape, p->n_dims, p->split.dim, p->split.n_parts, p->split.part,
                          p->shard_dim, W, rank);
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
    return model != NULL ? (size_t)model->layout.n_params : 0;
}

enum fsdp_status fsdp_model_parameter(const struct fsdp_model *model, size_t index,
                                      struct fsdp_parameter_info *info, struct fsdp_err *err)
{
    REQUIRE(model, err);
    REQUIRE(info, err);

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

int model_find_parameter(const struct fsdp_model *model, const char *name, size_t n_elems,
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

enum fsdp_status fsdp_parameter_set(struct fsdp_model *model, const char *name, const float *values,
                                    size_t n_elems, struct fsdp_err *err)
{
    REQUIRE(model, err);
    REQUIRE(name, err);
    REQUIRE(values, err);

    const int index = model_find_parameter(model, name, n_elems, err);
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

/* Fill in where this rank's shard is in the whole: a box along both dimensions. */
static void place(const struct fsdp_parameter *p, struct layout_rows rows, struct fsdp_tensor_shard *out)
{
    for (int d = 0; d < p->n_dims; d++) {
        out->offsets[d] = p->split.n_parts > 1 && d == p->split.dim ? p->shape[d] * (size_t)p->split.part : 0;
        out->sizes[d] = p->shape[d];
    }
    out->offsets[p->shard_dim] += rows.first;
    out->sizes[p->shard_dim] = rows.n_rows;
}

/*
 * Returns whether another rank saves this rank's part of parameter `index`. Of the ranks that hold the same
 * rows, one saves them: that of replica 0. If the parameter is not split, it is also part 0 of the tensor
 * group. If every rank holds all of the parameter, it is also the first of the ranks that shard.
 */
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

    (void)fsdp_model_parameter(model, (size_t)index, &info, NULL); /* its index is in range */
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
    if (model == NULL || out == NULL)
        return;
    /*
     * The caller may write to the shards in the list, so initial values must be drawn before, not later. If
     * the device fails here, it stays failed, and the next call that can report it does.
     */
    (void)model_draw(model, NULL);
    model_list_state(model, out);
}
