/*
 * fully_shard on a tree: marks only. Groups are formed when the model is built, from the nearest mark above
 * each parameter, which is why it is applied bottom-up without any bookkeeping.
 */
#include <fsdp/fully_shard.h>

#include "shard_runtime/core/module.h"

enum fsdp_status fsdp_fully_shard(struct fsdp_module *module, const struct fsdp_fully_shard_options *options,
                                  struct fsdp_err *err)
{
    enum fsdp_status status = fsdp_module_check(module, err);

    if (status != FSDP_OK)
        return status;
    if (module->sharded)
        return fsdp_fail(err, FSDP_ERR_ARG, "fully_shard: \"%s\" is a unit of sharding already",
                         module->path);
    if (module->forward == NULL)
        return fsdp_fail(
            err, FSDP_ERR_ARG,
            "fully_shard: \"%s\" is a container without a forward: shard its children and its parent",
            module->path);
    module->sharded = true;
    module->reshard_after_forward = options != NULL ? options->reshard_after_forward : FSDP_RESHARD_AUTO;
    return FSDP_OK;
}

void fsdp_module_set_reshard_after_forward(struct fsdp_module *module, bool reshard, bool recurse)
{
    if (module == NULL)
        return;
    if (module->sharded)
        module->reshard_after_forward = reshard ? FSDP_RESHARD_TRUE : FSDP_RESHARD_FALSE;
    for (size_t i = 0; recurse && i < module->n_children; i++)
        fsdp_module_set_reshard_after_forward(module->children[i], reshard, true);
}

void fsdp_module_set_reshard_after_backward(struct fsdp_module *module, bool reshard, bool recurse)
{
    if (module == NULL)
        return;
    module->keep_after_backward = !reshard;
    for (size_t i = 0; recurse && i < module->n_children; i++)
        fsdp_module_set_reshard_after_backward(module->children[i], reshard, true);
}
