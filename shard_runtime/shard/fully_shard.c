/*
 * fully_shard on a tree: marks only. Groups are formed when the model is built, from the nearest mark above
 * each parameter, which is why it is applied bottom-up without any bookkeeping.
 */
#include <fsdp/fully_shard.h>

#include "shard_runtime/core/module.h"

struct fsdp_mixed_precision_policy fsdp_mixed_precision_defaults(void)
{
    return (struct fsdp_mixed_precision_policy){ .param_dtype = FSDP_DTYPE_NONE,
                                                 .reduce_dtype = FSDP_DTYPE_NONE,
                                                 .output_dtype = FSDP_DTYPE_NONE,
                                                 .cast_forward_inputs = true };
}

static enum fsdp_status check_dtype(const struct fsdp_module *module, const char *what, int dtype,
                                    struct fsdp_err *err)
{
    if (dtype == FSDP_DTYPE_NONE || dtype == FSDP_F32 || dtype == FSDP_BF16)
        return FSDP_OK;
    return fsdp_fail(err, FSDP_ERR_ARG, "fully_shard: %s of \"%s\" must be float32 or bfloat16", what,
                     module->path);
}

static enum fsdp_status check_precision(const struct fsdp_module *module,
                                        const struct fsdp_mixed_precision_policy *policy,
                                        struct fsdp_err *err)
{
    enum fsdp_status status = check_dtype(module, "param_dtype", policy->param_dtype, err);

    if (status == FSDP_OK)
        status = check_dtype(module, "reduce_dtype", policy->reduce_dtype, err);
    if (status == FSDP_OK)
        status = check_dtype(module, "output_dtype", policy->output_dtype, err);
    return status;
}

enum fsdp_status fsdp_fully_shard(struct fsdp_module *module, const struct fsdp_fully_shard_options *options,
                                  struct fsdp_err *err)
{
    struct unit_policy policy = { .precision = fsdp_mixed_precision_defaults() };
    enum fsdp_status status = fsdp_module_check(module, err);

    if (status != FSDP_OK)
        return status;
    if (options != NULL) {
        policy.reshard_after_forward = options->reshard_after_forward;
        policy.mesh = options->mesh;
        if (options->mp_policy != NULL)
            policy.precision = *options->mp_policy;
    }
    if (module->sharded)
        return fsdp_fail(err, FSDP_ERR_ARG, "fully_shard: \"%s\" is a unit of sharding already",
                         module->path);
    if (module->forward == NULL)
        return fsdp_fail(
            err, FSDP_ERR_ARG,
            "fully_shard: \"%s\" is a container without a forward: shard its children and its parent",
            module->path);
    status = check_precision(module, &policy.precision, err);
    if (status != FSDP_OK)
        return status;
    module->sharded = true;
    module->policy = policy;
    return FSDP_OK;
}
