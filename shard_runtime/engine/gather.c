#include "shard_runtime/engine/gather.h"

#include <string.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/unshard.h"
#include "shard_runtime/shard/layout.h"

/*
 * Copies the shards of part number `part` to where they belong in the whole tensor `out`, which is in host
 * memory. `gathered` has one rank's shard after the other.
 */
static void assemble(struct fsdp_model *model, int index, int part, const float *gathered, float *out)
{
    const struct plan_param *param = &model->layout.params[index];
    const struct fsdp_parameter *p = param->parameter;
    const enum shard_place place = model_place(model, param->group);
    int rank;
    const int W = model_cut(model, index, &rank);

    for (rank = 0; rank < W; rank++) {
        struct layout_walk walk = layout_walk_of(p->whole_shape, p->n_dims, p->split.dim, p->split.n_parts,
                                                 part, p->shard_dim, W, rank);
        struct layout_piece run;

        while (layout_walk_next(&walk, &run))
            place_read(model->context, place, out + run.whole_at,
                       gathered + param->chunk_elems * (size_t)rank + run.shard_at,
                       run.n_elems * sizeof(float));
    }
}

/*
 * Gather every rank's shard of every part into `all`, (n_parts, W, chunk): over the ranks that shard, then
 * over the tensor group. `all` is in the same kind of memory as the shards.
 */
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

/*
 * Are the gradients still those of whole parameters, because only the last backward of the step reduces them?
 */
static bool are_yet_to_be_reduced(const struct fsdp_model *model, int group)
{
    const struct plan_group *layout = &model->layout.groups[group];

    return layout->reduces && layout->accumulates_whole &&
           (model->n_micro_done > 0 || model->training.next_call > model->training.plan.n_forwards);
}

/*
 * Can parameter `index` be gathered on this rank? A single rank may have lost its gradients, if it could not
 * make a new plan.
 */
static enum fsdp_status check_gather(const struct fsdp_model *model, int index, const char *name,
                                     enum fsdp_which which, struct fsdp_err *err)
{
    if (which == FSDP_VALUE)
        return FSDP_OK;
    if (which != FSDP_GRADIENT)
        return fsdp_fail(err, FSDP_ERR_ARG, "of \"%s\" there is a value and a gradient, not %d", name,
                         (int)which);
    if (model->options.batch == 0 || !model->layout.params[index].trains)
        return fsdp_fail(err, FSDP_ERR_ARG,
                         model->options.batch == 0
                             ? "the model was made for evaluation only: it has no gradients"
                             : "\"%s\" is frozen or not used: it has no gradient",
                         name);
    if (model->training.context == NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "the last step could not be planned: there are no gradients");
    if (model->training.next_call > 0 && model->training.next_call <= model->training.plan.n_forwards)
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "a forward is waiting for its backward, which makes \"%s\"'s gradient", name);
    if (are_yet_to_be_reduced(model, model->layout.params[index].group))
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "the last backward of this step, which reduces \"%s\"'s gradient, is yet to come",
                         name);
    return FSDP_OK;
}

/* Bytes of all shards of parameter `index` together; 0 if this rank has the whole parameter. */
static size_t gathered_bytes(const struct fsdp_model *model, int index)
{
    const struct plan_param *param = &model->layout.params[index];
    const size_t n_parts = (size_t)param->parameter->split.n_parts;
    int rank;
    const size_t W = (size_t)model_cut(model, index, &rank);

    return W > 1 || n_parts > 1 ? param->chunk_elems * W * n_parts * sizeof(float) : 0;
}

/* Returns where to gather: shards in host memory are gathered in ordinary memory, without the device. */
enum shard_place model_gather_place(const struct fsdp_model *model, int index)
{
    return model_place(model, model->layout.params[index].group) == PLACE_DEVICE ? PLACE_DEVICE : PLACE_PAGED;
}

void gather_room_need(struct gather_room *room, const struct fsdp_model *model, int index)
{
    size_t *most = &room->size_bytes[model_gather_place(model, index)];
    const size_t bytes = gathered_bytes(model, index);

    *most = bytes > *most ? bytes : *most;
}

enum fsdp_status gather_room_make(struct gather_room *room, struct fsdp_model *model, struct fsdp_err *err)
{
    for (int p = 0; p < N_PLACES; p++)
        OK_OR_RETURN(
            place_alloc(model->context, (enum shard_place)p, room->size_bytes[p], &room->memory[p], err));
    return FSDP_OK;
}

void gather_room_free(struct gather_room *room, struct fsdp_model *model)
{
    for (int p = 0; p < N_PLACES; p++)
        place_free(model->context, (enum shard_place)p, room->memory[p], room->size_bytes[p]);
}

enum fsdp_status model_gather_rows(struct fsdp_model *model, int index, const float *shard,
                                   const struct gather_room *room, float *out, struct fsdp_err *err)
{
    const int n_parts = model->layout.params[index].parameter->split.n_parts;
    const size_t part_elems = gathered_bytes(model, index) / sizeof(float) / (size_t)n_parts;
    float *gathered = part_elems > 0 ? room->memory[model_gather_place(model, index)] : NULL;

    if (gathered != NULL)
        OK_OR_RETURN(gather_parts(model, index, shard, gathered, err));
    for (int part = 0; part < n_parts; part++)
        assemble(model, index, part, gathered != NULL ? gathered + part_elems * (size_t)part : shard, out);
    return model->context->device.ops->synchronize(model->context->streams[PLAN_COMPUTE], err);
}

enum fsdp_status model_gather(struct fsdp_model *model, int index, enum fsdp_which which,
                              const struct gather_room *room, float *out, struct fsdp_err *err)
{
    const struct plan_param *param = &model->layout.params[index];
    size_t n_own;

    OK_OR_RETURN(model_gather_rows(model, index, model_shard(model, which, index, &n_own), room, out, err));
    if (which == FSDP_GRADIENT)
        scale_all(out, param->parameter->whole_elems, (float)model_gradient_scale(model, param->group));
    return FSDP_OK;
}

void model_take_rows(const struct fsdp_model *model, int index, const float *whole, float *own)
{
    struct layout_walk walk = model_walk(model, index);
    struct layout_piece run;

    while (layout_walk_next(&walk, &run))
        memcpy(own + run.shard_at, whole + run.whole_at, run.n_elems * sizeof(float));
}

enum fsdp_status fsdp_parameter_gather(struct fsdp_model *model, const char *name, enum fsdp_which which,
                                       float *out, size_t n_elems, struct fsdp_err *err)
{
    REQUIRE(model, err);

    enum fsdp_status status = unshard_settle(model, err);
    struct gather_room room = { 0 };
    int index = -1;

    if (status == FSDP_OK)
        status = GIVEN(name, err);
    if (status == FSDP_OK)
        status = GIVEN(out, err);
    if (status == FSDP_OK)
        index = model_find_parameter(model, name, n_elems, err);
    if (status == FSDP_OK && index < 0)
        status = FSDP_ERR_ARG;
    if (status == FSDP_OK)
        status = check_gather(model, index, name, which, err);
    if (status == FSDP_OK && which == FSDP_VALUE)
        status = model_draw(model, err);
    if (status == FSDP_OK) {
        gather_room_need(&room, model, index);
        status = gather_room_make(&room, model, err);
    }
    status = model_agree(model, NULL, 0, status, err);
    if (status == FSDP_OK)
        status = model_gather(model, index, which, &room, out, err);
    gather_room_free(&room, model);
    return status;
}
