#include "shard_runtime/engine/unshard.h"

#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/overlap.h"
#include "shard_runtime/core/require.h"

struct fsdp_unshard_handle {
    struct fsdp_model *model;
    int group;
    /* rows while a gather is under way; then whole parameters, placed as in the plan */
    void *gathered, *whole;
    /* while a gather is under way, for a group that offloads: its shards on the device */
    void *row;
    void *amax;          /* largest sizes of coded parameters, allocated with the rows */
    bool under_way;      /* the second thread is gathering */
    bool taken;          /* by the forward that is running */
    struct fsdp_err own; /* its status is not FSDP_OK if this rank has no memory for the gather */
    /* the failure of a gather for which another call has waited; kept until the gather's own caller waits */
    struct fsdp_err missed;
    /* the user's own collective failed, and other ranks may be waiting in theirs */
    bool gave_up;
};

static const struct plan_group *layout_of(const struct fsdp_unshard_handle *h)
{
    return &h->model->layout.groups[h->group];
}

static struct device *device_of(const struct fsdp_unshard_handle *h)
{
    return &h->model->context->device;
}

static size_t gathered_bytes(const struct plan_group *group)
{
    return group->W > 1 || group->n_coded > 0 ? group->gather_row_bytes * (size_t)group->W : 0;
}

static size_t amax_bytes(const struct plan_group *group)
{
    return (size_t)group->n_coded * sizeof(float);
}

static const float *row_of(const struct fsdp_unshard_handle *h)
{
    return h->row != NULL ? h->row : h->model->groups[h->group].shards;
}

enum fsdp_status unshard_create(struct fsdp_model *model, struct fsdp_err *err)
{
    model->unsharded = alloc_array((size_t)model->layout.n_groups, sizeof *model->unsharded);
    if (model->unsharded == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "a model: out of memory");
    for (int g = 0; g < model->layout.n_groups; g++)
        model->unsharded[g] = (struct fsdp_unshard_handle){ .model = model, .group = g };
    return FSDP_OK;
}

static size_t row_bytes(const struct plan_group *group)
{
    return group->offloads ? group->row_elems * sizeof(float) : 0;
}

static void free_gathered(struct fsdp_unshard_handle *h)
{
    if (h->gathered != NULL)
        device_of(h)->ops->free(device_of(h), h->gathered, gathered_bytes(layout_of(h)));
    if (h->row != NULL)
        device_of(h)->ops->free(device_of(h), h->row, row_bytes(layout_of(h)));
    if (h->amax != NULL)
        device_of(h)->ops->free(device_of(h), h->amax, amax_bytes(layout_of(h)));
    h->gathered = h->row = h->amax = NULL;
}

static void drop(struct fsdp_unshard_handle *h)
{
    free_gathered(h);
    if (h->whole != NULL)
        device_of(h)->ops->free(device_of(h), h->whole, plan_whole_bytes(layout_of(h)));
    h->whole = NULL;
    h->taken = false;
}

/* The thread that gathers: training's or evaluation's second thread. NULL: there is none. */
static struct overlap *second_thread(const struct fsdp_model *model)
{
    return model->training.overlap != NULL ? model->training.overlap : model->evaluation.overlap;
}

static enum fsdp_status gather(void *user, int entry, struct fsdp_err *err)
{
    struct fsdp_unshard_handle *h = user;
    const struct fsdp_context *context = h->model->context;
    const struct param_group *group = &h->model->groups[h->group];
    struct device_stream *stream = context->streams[PLAN_GATHERS];
    struct fsdp_comm *shards = model_mesh(h->model, h->group)->shards;
    enum fsdp_status status;

    (void)entry;
    /*
     * Either all ranks gather the unit or none does. So the next forward uses the gathered parameters on all
     * ranks, or on none.
     */
    if (h->own.status != FSDP_OK)
        fsdp_fail(err, h->own.status, "%s", h->own.message);
    status = model_agree(h->model, NULL, 0, h->own.status, err);
    if (status == FSDP_OK && h->row != NULL)
        context->device.ops->copy(stream, h->row, group->shards, row_bytes(layout_of(h)), DEVICE_COPY_TO);
    if (status == FSDP_OK && h->amax != NULL)
        status = param_group_find_amax(group, device_of(h), shards, h->model->tensor, row_of(h), h->amax,
                                       stream, err);
    if (status == FSDP_OK && h->gathered != NULL) { /* without rows to gather, unpacking reads the shards */
        status =
            param_group_gather(group, device_of(h), shards, row_of(h), h->amax, h->gathered, stream, err);
        h->gave_up = status != FSDP_OK && layout_of(h)->unit->policy.all_gather != NULL;
    }
    return status == FSDP_OK ? context->device.ops->synchronize(stream, err) : status;
}

/* The rows are complete: make whole parameters of them. */
static enum fsdp_status finish(struct fsdp_unshard_handle *h, enum fsdp_status status, struct fsdp_err *err)
{
    struct device_stream *stream = h->model->context->streams[PLAN_COMPUTE];

    h->under_way = false;
    if (status == FSDP_OK) {
        void *const whole[] = { h->whole, (char *)h->whole + plan_part_offset(layout_of(h), PLAN_BOTH_WAYS) };

        param_group_unpack(&h->model->groups[h->group], device_of(h), h->gathered, layout_of(h)->W, row_of(h),
                           h->amax, whole, stream);
        status = device_of(h)->ops->synchronize(stream, err);
    }
    if (h->gave_up)
        model_break(h->model, status, err);
    h->gave_up = false;
    if (status == FSDP_OK)
        free_gathered(h);
    else
        drop(h);
    return status;
}

/*
 * Lends the second thread all groups that the model uses, because it agrees with other ranks in them; or
 * takes them back.
 */
static void lend_all(struct fsdp_model *model, bool lent)
{
    model_lend(model, lent);
    comm_lend(model->tensor, lent);
    comm_lend(model->context->comm, lent);
    model->context->gathering = lent ? model : NULL;
}

/*
 * Wait for what the model's second thread gathers. `later`: its failure is kept, and reported when its caller
 * waits for it.
 */
static enum fsdp_status settle(struct fsdp_model *model, bool later, struct fsdp_err *err)
{
    struct fsdp_err own = { 0 };
    enum fsdp_status status = overlap_finish(second_thread(model), &own);

    lend_all(model, false);
    for (int g = 0; g < model->layout.n_groups; g++) {
        struct fsdp_unshard_handle *h = &model->unsharded[g];

        if (!h->under_way)
            continue;
        status = finish(h, status, &own);
        if (later && status != FSDP_OK)
            h->missed = own;
    }
    return status == FSDP_OK || later ? FSDP_OK : fsdp_fail(err, status, "%s", own.message);
}

enum fsdp_status unshard_settle(struct fsdp_model *model, struct fsdp_err *err)
{
    struct fsdp_model *gathering = model->context->gathering;

    return gathering != NULL ? settle(gathering, gathering != model, err) : FSDP_OK;
}

void unshard_settle_all(struct fsdp_context *context)
{
    if (context->gathering != NULL)
        (void)settle(context->gathering, true, NULL);
}

void unshard_drop_all(struct fsdp_model *model)
{
    (void)unshard_settle(model, NULL); /* a failed group stays failed: the next collective says so */
    for (int g = 0; g < model->layout.n_groups && model->unsharded != NULL; g++)
        drop(&model->unsharded[g]);
}

void unshard_destroy(struct fsdp_model *model)
{
    unshard_drop_all(model);
    free(model->unsharded);
    model->unsharded = NULL;
}

const void *unshard_whole(const struct fsdp_model *model, int group)
{
    const struct fsdp_unshard_handle *h = &model->unsharded[group];

    return h->taken ? NULL : h->whole;
}

void unshard_take(struct fsdp_model *model, int group)
{
    model->unsharded[group].taken = true;
}

void unshard_give_back(struct fsdp_model *model)
{
    for (int g = 0; g < model->layout.n_groups; g++)
        if (model->unsharded[g].taken)
            drop(&model->unsharded[g]);
}

static struct fsdp_unshard_handle *find(struct fsdp_model *model, const struct fsdp_module *unit)
{
    for (int g = 0; g < model->layout.n_groups && unit != NULL && unit->sharded; g++)
        if (model->layout.groups[g].unit == module_group(unit) && !model->layout.groups[g].local)
            return &model->unsharded[g];
    return NULL;
}

static enum fsdp_status make_room(struct fsdp_unshard_handle *h, struct fsdp_err *err)
{
    const struct plan_group *group = layout_of(h);
    struct device *device = device_of(h);
    enum fsdp_status status = device->ops->alloc(device, plan_whole_bytes(group), &h->whole, err);

    if (status == FSDP_OK && gathered_bytes(group) > 0)
        status = device->ops->alloc(device, gathered_bytes(group), &h->gathered, err);
    if (status == FSDP_OK)
        status = device->ops->alloc(device, row_bytes(group), &h->row, err);
    if (status == FSDP_OK)
        status = device->ops->alloc(device, amax_bytes(group), &h->amax, err);
    if (status != FSDP_OK) {
        fsdp_wrap(err, "unsharding \"%s\"", group->unit->path);
        drop(h);
    }
    return status;
}

enum fsdp_status fsdp_module_unshard(struct fsdp_model *model, const struct fsdp_module *unit, bool async_op,
                                     struct fsdp_unshard_handle **handle, struct fsdp_err *err)
{
    REQUIRE(model, err);

    struct fsdp_unshard_handle *h = find(model, unit);
    const bool waits = !async_op || second_thread(model) == NULL;
    enum fsdp_status status = FSDP_OK;

    if (handle != NULL)
        *handle = h;
    if (h != NULL && model->training.next_call != 0) /* on all ranks */
        return fsdp_fail(err, FSDP_ERR_ARG, "unsharding \"%s\" where a forward is waiting for its backward",
                         unit->path);
    if (h != NULL && (!layout_of(h)->gathers || h->whole != NULL || h->under_way))
        return FSDP_OK;
    if (waits || h == NULL)
        status = unshard_settle(model, err);
    /* a failure on this rank alone: on other ranks the module may be a unit */
    if (h == NULL && status == FSDP_OK) {
        status = fsdp_fail(err, FSDP_ERR_ARG, "unsharding \"%s\": it is no unit of the model",
                           unit != NULL ? unit->path : "");
        return model_agree(model, NULL, 0, status, err);
    }
    if (status == FSDP_OK)
        status = model_draw(model, err);
    if (status != FSDP_OK)
        return status;
    if (model->context->gathering != model)
        unshard_settle_all(model->context);
    h->own = h->missed = (struct fsdp_err){ 0 };
    h->own.status = make_room(h, &h->own);
    if (waits)
        return finish(h, gather(h, 0, err), err);
    h->under_way = true;
    lend_all(model, true);
    overlap_give(second_thread(model), gather, h, 0);
    return h->own.status == FSDP_OK ? FSDP_OK : fsdp_fail(err, h->own.status, "%s", h->own.message);
}

enum fsdp_status fsdp_unshard_handle_wait(struct fsdp_unshard_handle *handle, struct fsdp_err *err)
{
    struct fsdp_err missed;

    if (handle == NULL)
        return FSDP_OK;
    if (handle->under_way)
        return unshard_settle(handle->model, err);
    missed = handle->missed;
    handle->missed = (struct fsdp_err){ 0 };
    return missed.status == FSDP_OK ? FSDP_OK : fsdp_fail(err, missed.status, "%s", missed.message);
}

void fsdp_module_reshard(struct fsdp_model *model, const struct fsdp_module *unit)
{
    struct fsdp_unshard_handle *h = model != NULL ? find(model, unit) : NULL;

    if (h == NULL && model != NULL && (unit == NULL || !unit->sharded || unit->root != model->root))
        module_fail(model->root, FSDP_ERR_ARG, "%s: \"%s\" is no unit of the model", __func__,
                    fsdp_module_path(unit));
    if (h == NULL)
        return;
    (void)fsdp_unshard_handle_wait(h, NULL); /* a failed group stays failed: the next collective says so */
    drop(h);
}

enum fsdp_status fsdp_parameter_unsharded(struct fsdp_model *model, const char *name, const void **data,
                                          enum fsdp_dtype *dtype, struct fsdp_err *err)
{
    REQUIRE(model, err);
    REQUIRE(name, err);
    REQUIRE(data, err);
    REQUIRE(dtype, err);

    enum fsdp_status status = unshard_settle(model, err);

    *data = NULL;
    if (status == FSDP_OK)
        status = model_draw(model, err);
    for (int i = 0; i < model->layout.n_params && status == FSDP_OK; i++) {
        const struct plan_param *param = &model->layout.params[i];
        const struct plan_group *group = &model->layout.groups[param->group];
        const char *whole = unshard_whole(model, param->group);
        size_t n_elems;

        if (strcmp(param->parameter->name, name) != 0)
            continue;
        *dtype = group->param_dtype;
        if (!group->gathers)
            *data = model_shard(model, FSDP_VALUE, i, &n_elems);
        else if (whole != NULL)
            *data = whole + plan_part_offset(group, param->part) +
                    param->whole_offset * fsdp_dtype_size(group->param_dtype);
        else
            return fsdp_fail(err, FSDP_ERR_ARG, "\"%s\" is not unsharded", name);
        return FSDP_OK;
    }
    return status != FSDP_OK ? status : fsdp_fail(err, FSDP_ERR_ARG, "there is no parameter \"%s\"", name);
}
