/*
 * Clipping by the global norm: each rank measures its rows, of what several ranks hold alike one of them, and sums over the
 * dimensions of the mesh make the whole of it.
 */
#include "shard_runtime/shard/clip.h"

#include <math.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/unshard.h"

enum { MAX_MESHES = 16, MAX_SPANS = 256 };

/* Spans of one place on the way to a sum of their powers, in their order. */
struct measure {
    const struct fsdp_model *model;
    enum shard_place place;
    double norm_type, sum;
    struct numerics_span spans[MAX_SPANS];
    size_t n_spans;
};

static void add_up(struct measure *m)
{
    struct fsdp_context *context = m->model->context;
    double sums[MAX_SPANS];

    numerics_sum_powers(place_numerics(context, m->place), context->streams[PLAN_COMPUTE], m->spans,
                        m->n_spans, m->norm_type, sums);
    for (size_t i = 0; i < m->n_spans; i++)
        m->sum = !isinf(m->norm_type)                 ? m->sum + sums[i]
                 : sums[i] > m->sum || isnan(sums[i]) ? sums[i]
                                                      : m->sum;
    m->n_spans = 0;
}

static void take(struct measure *m, enum shard_place place, const float *gradients, size_t n_elems)
{
    if (m->n_spans == MAX_SPANS || place != m->place)
        add_up(m);
    m->place = place;
    m->spans[m->n_spans++] = (struct numerics_span){ .x = gradients, .n_elems = n_elems };
}

/* Of the groups over one mesh. Where nothing is split that is, with one mesh, one piece of memory in each place. */
static double measure_mesh(const struct fsdp_model *model, const struct model_mesh *mesh, double norm_type)
{
    struct measure m = { .model = model, .norm_type = norm_type };

    for (int p = 0; p < N_PLACES && model->n_meshes == 1 && model->T == 1; p++)
        if (model->memory[p].reduced_elems > 0)
            take(&m, (enum shard_place)p, model->memory[p].gradients, model->memory[p].reduced_elems);
    for (int i = 0; i < model->layout.n_params && (model->n_meshes > 1 || model->T > 1); i++) {
        const struct plan_param *param = &model->layout.params[i];
        const bool counts = param->parameter->split.n_parts > 1 || model->tensor_rank == 0;
        const float *gradient;
        size_t n_elems;

        if (!param->trains || !counts || model->layout.groups[param->group].local ||
            model_mesh(model, param->group) != mesh)
            continue;
        gradient = model_shard(model, FSDP_GRADIENT, i, &n_elems);
        take(&m, model_place(model, param->group), gradient, n_elems);
    }
    add_up(&m);
    return m.sum;
}

static enum fsdp_status check(const struct fsdp_model *model, double max_norm, double norm_type,
                              struct fsdp_err *err)
{
    if (!model_has_gradients(model))
        return fsdp_fail(err, FSDP_ERR_ARG, "the model was made for evaluation only");
    if (!(max_norm >= 0) || !(norm_type >= 1))
        return fsdp_fail(err, FSDP_ERR_ARG,
                         !(max_norm >= 0) ? "max_norm must be 0 or more" : "norm_type must be 1 or more");
    return model_check_step_is_whole(model, err);
}

/* Whether some rank failed, which the sums have told to those that shard together: now to all. */
static enum fsdp_status tell_replicas(const struct fsdp_model *model, bool *failed, struct fsdp_err *err)
{
    int64_t any = *failed;
    enum fsdp_status status = FSDP_OK;

    if (model->meshes[0].R > 1)
        status = fsdp_all_reduce(model->meshes[0].replicas, &any, 1, FSDP_I64, FSDP_MAX,
                                 model->context->streams[PLAN_COMPUTE], err);
    *failed = any != 0;
    return status;
}

enum fsdp_status fsdp_clip_grad_norm_of(struct fsdp_model *model, double max_norm, double norm_type,
                                        double *norm, struct fsdp_err *err)
{
    REQUIRE(model, err);
    REQUIRE(norm, err);

    const double scale = model->loss_scale * model->grad_scale;
    struct device_stream *stream = model->context->streams[PLAN_COMPUTE];
    struct clip_part parts[MAX_MESHES];
    enum fsdp_status own, status;
    struct fsdp_err sums = { 0 };
    double all, coefficient;
    bool failed;

    if (model->n_meshes > MAX_MESHES)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "clipping over %d meshes", model->n_meshes);
    own = unshard_settle(model, err);
    if (own == FSDP_OK)
        own = check(model, max_norm, norm_type, err);
    for (int i = 0; i < model->n_meshes; i++) {
        parts[i] = (struct clip_part){ .comm = model->meshes[i].shards };
        if (own == FSDP_OK)
            parts[i].sum = measure_mesh(model, &model->meshes[i], norm_type) *
                           (isinf(norm_type) ? scale : pow(scale, norm_type));
    }
    /* A device that failed gives sums that are no numbers: that is said, and not taken for a run that diverges. */
    status = model->context->device.ops->synchronize(stream, err);
    if (status != FSDP_OK)
        return status;
    failed = own != FSDP_OK;
    status = clip_coefficient(parts, model->n_meshes, model->tensor, norm_type, max_norm, &all, &coefficient,
                              &failed, stream, &sums);
    if (status == FSDP_OK)
        status = tell_replicas(model, &failed, &sums);
    if (status != FSDP_OK)
        return own != FSDP_OK ? own : fsdp_fail(err, status, "%s", sums.message);
    if (failed)
        return model_agree(model, NULL, 0, own, err);
    *norm = all;
    model->grad_scale *= coefficient;
    return FSDP_OK;
}

enum fsdp_status fsdp_clip_grad_norm(struct fsdp_model *model, double max_norm, double *norm,
                                     struct fsdp_err *err)
{
    REQUIRE(model, err);
    REQUIRE(norm, err);

    return fsdp_clip_grad_norm_of(model, max_norm, 2, norm, err);
}
