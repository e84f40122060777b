/*
 * Every rank of a tensor group holds the parameters that are not split, and updates its own copy. The
 * gradients of these copies are equal only where equal machines compute them. Checkpoints have the copies of
 * part 0 alone. So if machines differ, copies that drifted apart would not come back from a checkpoint.
 *
 * Then part 0 sends its copies to the others after every update. Optimizer state of the other parts is not
 * sent: what it decides is replaced. All ranks of the model do this if machines differ in any tensor group,
 * because ranks that reduce gradients together take part in the sums of other tensor groups.
 */
#include <string.h>

#include <fsdp/checkpoint.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/mesh.h"
#include "shard_runtime/engine/model.h"

enum fsdp_status copies_compare(struct fsdp_model *model, struct fsdp_err *err)
{
    const struct fsdp_context *context = model->context;
    char own[FSDP_MADE_WITH_BYTES] = "", first[FSDP_MADE_WITH_BYTES];
    struct fsdp_err words = { 0 };
    enum fsdp_status status;

    if (model->T == 1)
        return FSDP_OK;
    (void)fsdp_context_describe(context, own, sizeof own);
    memcpy(first, own, sizeof first);
    OK_OR_RETURN(fsdp_broadcast(model->tensor, first, sizeof first, 0, context->streams[PLAN_COMPUTE], err));
    status = strcmp(own, first) == 0 ? FSDP_OK
                                     : fsdp_fail(&words, FSDP_ERR_MISMATCH,
                                                 "computes with %s, rank %d of its tensor group with %s", own,
                                                 model->tensor_mesh->grid.ranks[0], first);
    status = model_agree(model, NULL, 0, status, &words);
    if (status != FSDP_OK && status != FSDP_ERR_MISMATCH)
        return fsdp_fail(err, status, "%s", words.message);
    memcpy(model->machines_differ, words.message, sizeof model->machines_differ);
    return FSDP_OK;
}

enum fsdp_status copies_equalise(const struct fsdp_model *model, struct fsdp_err *err)
{
    struct fsdp_context *context = model->context;
    struct device_stream *stream = context->streams[PLAN_COMPUTE];

    if (model->machines_differ[0] == '\0')
        return FSDP_OK;
    for (int i = 0; i < model->layout.n_params; i++) {
        const struct plan_param *param = &model->layout.params[i];
        size_t n_elems;
        float *shard = model_shard(model, FSDP_VALUE, i, &n_elems);

        if (!param->trains || param->parameter->split.n_parts > 1 || model->layout.groups[param->group].local)
            continue;
        OK_OR_RETURN(fsdp_broadcast(model->tensor, shard, n_elems * sizeof *shard, 0, stream, err));
        context_alive(context);
    }
    return context->device.ops->synchronize(stream, err);
}
