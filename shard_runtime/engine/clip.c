/*
 * Clipping by the global norm. Each rank measures its rows; if several ranks hold the same rows, one of them
 * counts. Sums over the dimensions of the mesh then give the norm of the whole.
 */
#include "shard_runtime/shard/clip.h"

#include <math.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/unshard.h"

enum { MAX_MESHES = 16 };

static enum fsdp_status check(const struct fsdp_model *model, double max_norm, double norm_type,
                              struct fsdp_err *err)
{
    if (!model_has_gradients(model))
        return fsdp_fail(err, FSDP_ERR_ARG, "the model was made for evaluation only");
    if (!(max_norm >= 0) || !(norm_type >= 1))
        return fsdp_fail(err, FSDP_ERR_ARG,
                         !(max_norm >= 0) ? "max_norm must be 0 or more" : "norm_type must be 1 or more");
    return gradients_check(model, err);
}

/*
 * The ranks that shard together know from their sums whether one of them failed. This tells the replicas too.
 */
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
        const struct model_mesh *mesh = &model->meshes[i];

        parts[i] = (struct clip_part){ .comm = mesh->shards };
        if (own == FSDP_OK)
            parts[i].sum = (norm_type == 2 ? mesh->squares : gradients_sum_powers(model, mesh, norm_type)) *
                           (isinf(norm_type) ? scale : pow(scale, norm_type));
    }
    /*
     * A failed device gives NaN. Report the device failure, so that the NaN is not reported as a loss that
     * diverges.
     */
    OK_OR_RETURN(model->context->device.ops->synchronize(stream, err));
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
    if (model->nonfinite_parameter >= 0)
        return gradients_fail_nonfinite(model, model->nonfinite_parameter, err);
    if (!isfinite(all))
        return fsdp_fail(err, FSDP_ERR_NOT_FINITE, "the gradients' norm of order %g is not finite",
                         norm_type);
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
