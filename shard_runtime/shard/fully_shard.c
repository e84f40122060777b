/*
 * fully_shard() on a tree of modules. It only marks modules as units. Groups are formed when the model is
 * built: a parameter belongs to the nearest unit above it. So units can be marked bottom-up without any
 * bookkeeping.
 */
#include <fsdp/fully_shard.h>

#include <string.h>

#include "shard_runtime/core/module.h"

#include "shard_runtime/core/require.h"

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
    OK_OR_RETURN(check_dtype(module, "param_dtype", policy->param_dtype, err));
    OK_OR_RETURN(check_dtype(module, "reduce_dtype", policy->reduce_dtype, err));
    OK_OR_RETURN(check_dtype(module, "output_dtype", policy->output_dtype, err));
    if (policy->stochastic_rounding && (policy->param_dtype != FSDP_BF16 || policy->float8_gather))
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "fully_shard: stochastic_rounding of \"%s\" needs param_dtype bfloat16, without "
                         "float8_gather",
                         module->path);
    return FSDP_OK;
}

static enum fsdp_status check_module(const struct fsdp_module *module, struct fsdp_err *err)
{
    OK_OR_RETURN(fsdp_module_check(module, err));
    if (module->sharded)
        return fsdp_fail(err, FSDP_ERR_ARG, "fully_shard: \"%s\" is a unit of sharding already",
                         module->path);
    if (module->forward == NULL)
        return fsdp_fail(
            err, FSDP_ERR_ARG,
            "fully_shard: \"%s\" is a container without a forward: shard its children and its parent",
            module->path);
    return FSDP_OK;
}

static bool is_listed(const struct fsdp_parameter *parameter, const struct fsdp_fully_shard_options *options)
{
    for (size_t i = 0; options != NULL && i < options->n_ignored_params; i++)
        if (options->ignored_params[i] != NULL && strcmp(options->ignored_params[i], parameter->name) == 0)
            return true;
    return false;
}

/*
 * Asks the user's function along which dimension the parameter is cut. The number of ranks is not known yet.
 */
static enum fsdp_status place(struct fsdp_parameter *parameter,
                              const struct fsdp_fully_shard_options *options, struct fsdp_err *err)
{
    int dim;

    if (options == NULL || options->shard_placement_fn == NULL)
        return FSDP_OK;
    dim = options->shard_placement_fn(parameter->name, parameter->n_dims, parameter->shape,
                                      options->placement_user);
    if (dim < -parameter->n_dims || dim >= parameter->n_dims)
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "fully_shard: \"%s\" of %d dimensions is placed along dimension %d", parameter->name,
                         parameter->n_dims, dim);
    parameter->shard_dim = dim < 0 ? dim + parameter->n_dims : dim;
    return FSDP_OK;
}

/* Marks the unit's parameters: those below it that are not in a unit that was marked before. */
static enum fsdp_status mark_parameters(const struct fsdp_module *unit,
                                        const struct fsdp_fully_shard_options *options, size_t *n_ignored,
                                        struct fsdp_err *err)
{
    for (const struct fsdp_module *m = unit; m != NULL; m = module_next(unit, m))
        for (size_t i = 0; i < m->n_parameters; i++)
            if (module_unit(m) == unit) {
                struct fsdp_parameter *parameter = m->parameters[i];

                parameter->ignored = is_listed(parameter, options);
                *n_ignored += parameter->ignored;
                OK_OR_RETURN(place(parameter, options, err));
            }
    return FSDP_OK;
}

static enum fsdp_status shard(struct fsdp_module *const *modules, size_t n_modules,
                              const struct fsdp_fully_shard_options *options, struct fsdp_err *err)
{
    struct unit_policy policy = { .precision = fsdp_mixed_precision_defaults() };
    size_t n_ignored = 0;

    if (options != NULL && options->n_ignored_params > 0 && options->ignored_params == NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "fsdp_fully_shard_modules: options->ignored_params is NULL");
    if (options != NULL) {
        policy.reshard_after_forward = options->reshard_after_forward;
        policy.reshard_size = options->reshard_size;
        policy.mesh = options->mesh;
        policy.offload = options->offload_policy;
        policy.pin_memory = options->pin_memory;
        if (options->mp_policy != NULL)
            policy.precision = *options->mp_policy;
    }
    for (size_t i = 0; i < n_modules; i++) {
        OK_OR_RETURN(check_module(modules[i], err));
        if (n_modules > 1 && modules[i]->parent == NULL)
            return fsdp_fail(err, FSDP_ERR_ARG, "fully_shard: the root cannot be one of a list");
        for (size_t j = 0; j < i; j++)
            if (modules[j] == modules[i] || modules[j]->root != modules[i]->root)
                return fsdp_fail(err, FSDP_ERR_ARG,
                                 "fully_shard: \"%s\" is twice in the list, or of another tree",
                                 modules[i]->path);
    }
    if ((unsigned)policy.reshard_after_forward > FSDP_RESHARD_TO ||
        (unsigned)policy.offload > FSDP_OFFLOAD_CPU)
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "fully_shard: \"%s\" has reshard_after_forward %d and offload_policy %d",
                         modules[0]->path, (int)policy.reshard_after_forward, (int)policy.offload);
    if (policy.reshard_after_forward == FSDP_RESHARD_TO && policy.reshard_size < 1)
        return fsdp_fail(err, FSDP_ERR_ARG, "fully_shard: \"%s\" resharded to %d ranks", modules[0]->path,
                         policy.reshard_size);
    OK_OR_RETURN(check_precision(modules[0], &policy.precision, err));
    for (size_t i = 0; i < n_modules; i++) {
        modules[i]->sharded = true;
        modules[i]->leader = n_modules > 1 ? modules[0] : NULL;
        modules[i]->policy = policy;
    }
    for (size_t i = 0; i < n_modules; i++)
        OK_OR_RETURN(mark_parameters(modules[i], options, &n_ignored, err));
    if (options != NULL && n_ignored < options->n_ignored_params)
        return fsdp_fail(err, FSDP_ERR_ARG, "fully_shard: of %zu ignored parameters %zu are in \"%s\"",
                         options->n_ignored_params, n_ignored, modules[0]->path);
    return FSDP_OK;
}

enum fsdp_status fsdp_fully_shard_modules(struct fsdp_module *const *modules, size_t n_modules,
                                          const struct fsdp_fully_shard_options *options,
                                          struct fsdp_err *err)
{
    REQUIRE(modules, err);

    struct fsdp_module *first = n_modules > 0 ? modules[0] : NULL;
    struct fsdp_err own = { 0 };

    if (n_modules == 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "fully_shard: an empty list");
    if (shard(modules, n_modules, options, &own) == FSDP_OK) {
        if (first->root->refusal.at == first)
            first->root->refusal = (struct module_refusal){ 0 };
        return FSDP_OK;
    }
    /*
     * The mesh of the root is kept even after a failure: fsdp_model_create() needs it to tell the root's
     * ranks of the failure (tree_agree()).
     */
    if (first != NULL && first->parent == NULL && !first->sharded && options != NULL)
        first->policy.mesh = options->mesh;
    return module_refuse(first, first, &own, err);
}

enum fsdp_status fsdp_fully_shard(struct fsdp_module *module, const struct fsdp_fully_shard_options *options,
                                  struct fsdp_err *err)
{
    return fsdp_fully_shard_modules(&module, 1, options, err);
}
