/*
 * Parameters by name: how they begin, whole copies of them, and this rank's shards as a list.
 */
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/rng.h"
#include "shard_runtime/engine/model.h"
#include "shard_runtime/shard/layout.h"

enum { STAGE_ELEMS = 1 << 16 };

static const float NORMAL_STD = 0.02f;

int model_cut(const struct fsdp_model *model, int index, int *rank)
{
    const struct plan_group *group = &model->layout.groups[model->layout.params[index].group];

    *rank = group->local ? 0 : model->shard_rank;
    return group->W;
}

static struct layout_cut cut_of(const struct fsdp_parameter *parameter)
{
    return layout_cut_of(parameter->shape, parameter->n_dims, parameter->shard_dim);
}

/* Piece `k` of this rank's shard. */
static struct layout_piece piece_of(const struct fsdp_model *model, int index, const struct layout_cut *cut,
                                    size_t k)
{
    int rank;
    const int W = model_cut(model, index, &rank);

    return layout_piece_of(cut, W, rank, k);
}

bool model_shard_elems(const struct fsdp_model *model, enum fsdp_which which, int index, size_t *n_elems)
{
    const struct plan_param *param = &model->layout.params[index];
    const struct layout_cut cut = cut_of(param->parameter);

    *n_elems = 0;
    if (which == FSDP_GRADIENT && !param->trains)
        return false;
    *n_elems = piece_of(model, index, &cut, 0).n_elems * cut.outer;
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

static void fill_stage(const struct fsdp_parameter *parameter, uint64_t key, uint64_t first, float *stage,
                       size_t n)
{
    if (parameter->init == FSDP_INIT_NORMAL) {
        rng_fill_normal(key, first, stage, n, NORMAL_STD);
        return;
    }
    for (size_t i = 0; i < n; i++)
        stage[i] = parameter->init == FSDP_INIT_ONES ? 1.0f : 0.0f;
}

/* Keyed by the parameter's name and the element's global index: the same weights at every world size. */
static enum fsdp_status initialise(struct fsdp_model *model, int index, float *stage, struct fsdp_err *err)
{
    const struct fsdp_parameter *parameter = model->layout.params[index].parameter;
    const struct layout_cut cut = cut_of(parameter);
    struct device_stream *stream = model->context->streams[PLAN_COMPUTE];
    char *purpose = alloc_printf("init:%s", parameter->name);
    enum fsdp_status status = FSDP_OK;
    size_t n_elems;
    float *shard = model_shard(model, FSDP_VALUE, index, &n_elems);
    uint64_t key;

    if (purpose == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "initialising \"%s\": out of memory", parameter->name);
    key = rng_key(model->options.seed, purpose);
    free(purpose);
    for (size_t k = 0; k < cut.outer; k++) {
        const struct layout_piece piece = piece_of(model, index, &cut, k);

        for (size_t done = 0; done < piece.n_elems && status == FSDP_OK; done += STAGE_ELEMS) {
            const size_t left = piece.n_elems - done, n = left < STAGE_ELEMS ? left : STAGE_ELEMS;

            fill_stage(parameter, key, (uint64_t)piece.whole_at + done, stage, n);
            model->context->device.ops->copy(stream, shard + piece.shard_at + done, stage, n * sizeof(float),
                                             DEVICE_COPY_TO);
            status = model->context->device.ops->synchronize(stream, err); /* the stage is filled again */
        }
    }
    return status;
}

enum fsdp_status model_initialise(struct fsdp_model *model, struct fsdp_err *err)
{
    float *stage = alloc_array(STAGE_ELEMS, sizeof *stage);
    enum fsdp_status status = FSDP_OK;

    if (stage == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "initialising the parameters: out of memory");
    for (int i = 0; i < model->layout.n_params && status == FSDP_OK; i++) {
        context_alive(model->context);
        status = initialise(model, i, stage, err);
    }
    free(stage);
    return status;
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
                                          .n_elems = parameter->n_elems,
                                          .shard_dim = parameter->shard_dim,
                                          .everywhere = parameter->ignored,
                                          .requires_grad = !parameter->frozen,
                                          .has_gradient = model->layout.params[index].trains,
                                          .first_row = rows.first,
                                          .n_rows = rows.n_rows,
                                          .group = model->layout.params[index].group };
    memcpy(info->shape, parameter->shape, sizeof info->shape);
    return FSDP_OK;
}

static int find_parameter(const struct fsdp_model *model, const char *name, size_t n_elems,
                          struct fsdp_err *err)
{
    for (int i = 0; i < model->layout.n_params; i++) {
        const struct fsdp_parameter *parameter = model->layout.params[i].parameter;

        if (strcmp(parameter->name, name) != 0)
            continue;
        if (parameter->n_elems == n_elems)
            return i;
        fsdp_fail(err, FSDP_ERR_ARG, "\"%s\" has %zu elements, not %zu", name, parameter->n_elems, n_elems);
        return -1;
    }
    fsdp_fail(err, FSDP_ERR_ARG, "there is no parameter \"%s\"", name);
    return -1;
}

/* All ranks' parts of a parameter, one after the other, as the whole tensor in host memory. */
static void assemble(struct fsdp_model *model, int index, const float *gathered, float *out)
{
    const struct plan_param *param = &model->layout.params[index];
    const struct layout_cut cut = cut_of(param->parameter);
    struct device_stream *stream = model->context->streams[PLAN_COMPUTE];
    int rank;
    const int W = model_cut(model, index, &rank);

    for (rank = 0; rank < W; rank++)
        for (size_t k = 0; k < cut.outer; k++) {
            const struct layout_piece piece = layout_piece_of(&cut, W, rank, k);

            if (piece.n_elems > 0)
                model->context->device.ops->copy(stream, out + piece.whole_at,
                                                 gathered + param->chunk_elems * (size_t)rank +
                                                     piece.shard_at,
                                                 piece.n_elems * sizeof(float), DEVICE_COPY_FROM);
        }
}

enum fsdp_status fsdp_parameter_gather(struct fsdp_model *model, const char *name, enum fsdp_which which,
                                       float *out, size_t n_elems, struct fsdp_err *err)
{
    struct device *device = &model->context->device;
    struct device_stream *stream = model->context->streams[PLAN_COMPUTE];
    const int index = find_parameter(model, name, n_elems, err);
    size_t chunk_elems, n_own, gathered_bytes;
    enum fsdp_status status = FSDP_OK;
    void *gathered = NULL;
    const float *shard;
    int rank, W;

    if (index < 0)
        return FSDP_ERR_ARG;
    if (which == FSDP_GRADIENT && (model->gradients == NULL || !model->layout.params[index].trains))
        return fsdp_fail(err, FSDP_ERR_ARG,
                         model->gradients == NULL
                             ? "the model was made for evaluation only: it has no gradients"
                             : "\"%s\" is frozen or not used: it has no gradient",
                         name);
    W = model_cut(model, index, &rank);
    chunk_elems = model->layout.params[index].chunk_elems;
    gathered_bytes = chunk_elems * (size_t)W * sizeof(float);
    shard = model_shard(model, which, index, &n_own);
    if (W > 1) {
        status = device->ops->alloc(device, gathered_bytes, &gathered, err);
        if (status == FSDP_OK)
            status = fsdp_all_gather(model->shards, shard, gathered, chunk_elems, FSDP_F32, stream, err);
    }
    if (status == FSDP_OK) {
        assemble(model, index, W > 1 ? gathered : shard, out);
        status = device->ops->synchronize(stream, err);
    }
    if (gathered != NULL)
        device->ops->free(device, gathered, gathered_bytes);
    if (status == FSDP_OK && which == FSDP_GRADIENT && model->grad_scale != 1.0 &&
        !model->layout.groups[model->layout.params[index].group].local)
        for (size_t i = 0; i < n_elems; i++)
            out[i] *= (float)model->grad_scale;
    return status;
}

enum fsdp_status fsdp_parameter_set(struct fsdp_model *model, const char *name, const float *values,
                                    size_t n_elems, struct fsdp_err *err)
{
    const int index = find_parameter(model, name, n_elems, err);
    struct device_stream *stream = model->context->streams[PLAN_COMPUTE];
    struct layout_cut cut;
    size_t n_own;
    float *shard;

    if (index < 0)
        return FSDP_ERR_ARG;
    shard = model_shard(model, FSDP_VALUE, index, &n_own);
    cut = cut_of(model->layout.params[index].parameter);
    for (size_t k = 0; k < cut.outer && n_own > 0; k++) {
        const struct layout_piece piece = piece_of(model, index, &cut, k);

        model->context->device.ops->copy(stream, shard + piece.shard_at, values + piece.whole_at,
                                         piece.n_elems * sizeof(float), DEVICE_COPY_TO);
    }
    return model->context->device.ops->synchronize(stream, err);
}

void fsdp_model_state(struct fsdp_model *model, struct fsdp_tensor_shard *out)
{
    for (int i = 0; i < model->layout.n_params; i++) {
        struct fsdp_parameter_info info;
        size_t n_elems;

        (void)fsdp_model_parameter(model, (size_t)i, &info, NULL); /* i is in range */
        out[i] = (struct fsdp_tensor_shard){ .name = info.name,
                                             .dtype = FSDP_F32,
                                             .n_dims = info.n_dims,
                                             .shard_dim = info.shard_dim,
                                             .everywhere = info.everywhere,
                                             .first_row = info.first_row,
                                             .n_rows = info.n_rows };
        out[i].data = model_shard(model, FSDP_VALUE, i, &n_elems);
        memcpy(out[i].shape, info.shape, sizeof out[i].shape);
    }
}
