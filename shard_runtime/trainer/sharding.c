#include "shard_runtime/trainer/sharding.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

#include "shard_runtime/core/module.h"
#include "shard_runtime/job/rules.h"

enum { MAX_LISTED = 64 }; /* modules of one list */

static enum fsdp_reshard reshard_of(enum job_reshard reshard)
{
    switch (reshard > JOB_RESHARD_TO ? JOB_RESHARD_TO : reshard) {
    case JOB_RESHARD_TRUE:
        return FSDP_RESHARD_TRUE;
    case JOB_RESHARD_FALSE:
        return FSDP_RESHARD_FALSE;
    case JOB_RESHARD_TO:
    case JOB_RESHARD_MOST:
        return FSDP_RESHARD_TO;
    case JOB_RESHARD_AUTO:
        break;
    }
    return FSDP_RESHARD_AUTO;
}

static struct fsdp_mixed_precision_policy precision_of(const struct job *job)
{
    static const int outputs[] = { [JOB_OUTPUT_AS_IS] = FSDP_DTYPE_NONE,
                                   [JOB_OUTPUT_FLOAT32] = FSDP_F32,
                                   [JOB_OUTPUT_BFLOAT16] = FSDP_BF16 };

    return (struct fsdp_mixed_precision_policy){
        .param_dtype = job->parallel.param_dtype == JOB_BFLOAT16 ? FSDP_BF16 : FSDP_F32,
        .reduce_dtype = job->parallel.reduce_dtype == JOB_BFLOAT16 ? FSDP_BF16 : FSDP_F32,
        .output_dtype = outputs[job->parallel.output_dtype],
        .cast_forward_inputs = job->parallel.cast_forward_inputs,
    };
}

/* One group of these modules, as `job` says: all of its settings, some of them a rule's own. */
static enum fsdp_status shard_group(struct fsdp_module *const *modules, size_t n, const struct job *job,
                                    struct fsdp_device_mesh *mesh, struct fsdp_err *err)
{
    const struct fsdp_mixed_precision_policy precision = precision_of(job);
    const enum job_reshard reshard = job->parallel.reshard_after_forward;
    const struct fsdp_fully_shard_options options = {
        .reshard_after_forward = reshard_of(reshard),
        .reshard_size = reshard >= JOB_RESHARD_TO ? (int)reshard - JOB_RESHARD_TO : 0,
        .mp_policy = &precision,
        .mesh = mesh,
        .offload_policy = job->parallel.offload == JOB_OFFLOAD_CPU ? FSDP_OFFLOAD_CPU : FSDP_OFFLOAD_NONE,
    };
    const enum fsdp_status status = fsdp_fully_shard_modules(modules, n, &options, err);

    if (status != FSDP_OK)
        return status;
    fsdp_module_set_reshard_after_backward(modules[0], job->parallel.reshard_after_backward, false);
    fsdp_module_set_requires_all_reduce(modules[0], job->parallel.all_reduce != JOB_ALL_REDUCE_LAST, false);
    fsdp_module_set_requires_gradient_sync(modules[0], job->parallel.gradient_sync == JOB_SYNC_EVERY, false);
    return FSDP_OK;
}

/* The module behind `module` in the tree, parents before children; NULL: the first, the root. */
static struct fsdp_module *next_module(struct fsdp_module *root, struct fsdp_module *module)
{
    const struct fsdp_module *next = module == NULL ? root : module_next(root, module);

    return (struct fsdp_module *)(uintptr_t)next; /* the tree is ours */
}

/* One pattern: every module of such a name is a group. Several: all that they match are one. */
static enum fsdp_status apply_rule(struct fsdp_module *root, const struct job_rule *rule,
                                   struct fsdp_device_mesh *mesh, struct fsdp_err *err)
{
    struct fsdp_module *listed[MAX_LISTED];
    enum fsdp_status status = FSDP_OK;

    for (size_t p = 0, n = 0, found = 0; p < rule->n_patterns && status == FSDP_OK; p++, found = 0) {
        for (struct fsdp_module *m = next_module(root, NULL); m != NULL && status == FSDP_OK;
             m = next_module(root, m)) {
            if (m == root || !job_rule_matches(rule->patterns[p], fsdp_module_path(m)))
                continue;
            found++;
            if (rule->n_patterns == 1)
                status = shard_group(&m, 1, &rule->job, mesh, err);
            else if (n < MAX_LISTED)
                listed[n++] = m;
        }
        if (status == FSDP_OK && (found == 0 || n == MAX_LISTED))
            return fsdp_fail(err, FSDP_ERR_CONFIG, "parallel.groups: %s module is called %s",
                             found == 0 ? "no" : "more than one list can hold", rule->patterns[p]);
        if (status == FSDP_OK && rule->n_patterns > 1 && p + 1 == rule->n_patterns)
            status = shard_group(listed, n, &rule->job, mesh, err);
    }
    return status;
}

enum fsdp_status sharding_apply(struct fsdp_module *root, const struct job *job,
                                struct fsdp_device_mesh *mesh, struct fsdp_err *err)
{
    const char *at =
        job->parallel.groups != NULL && job->parallel.groups[0] != '\0' ? job->parallel.groups : "layers.*";
    enum fsdp_status status;
    struct job_rule rule;
    bool there;

    do {
        status = job_rule_next(job, "parallel", &at, &rule, &there, err);
        if (status == FSDP_OK && there)
            status = apply_rule(root, &rule, mesh, err);
        if (status == FSDP_ERR_ARG) /* the rules ask for it, not we */
            status = fsdp_fail(err, FSDP_ERR_CONFIG, "parallel.groups: %s", err != NULL ? err->message : "");
    } while (status == FSDP_OK && there);
    return status == FSDP_OK ? shard_group(&root, 1, job, mesh, err) : status;
}

/* The first of every so many blocks. */
void sharding_checkpoint_blocks(struct fsdp_module *root, const struct job *job)
{
    static const enum fsdp_activation_checkpoint modes[] = { [JOB_CHECKPOINT_NONE] = FSDP_CHECKPOINT_NONE,
                                                             [JOB_CHECKPOINT_FULL] = FSDP_CHECKPOINT_FULL,
                                                             [JOB_CHECKPOINT_SELECTIVE] =
                                                                 FSDP_CHECKPOINT_SELECTIVE };
    const uint64_t every = job->parallel.activation_checkpoint_every;
    struct fsdp_module *layers = fsdp_module_child(root, "layers");

    for (size_t i = 0; i<fsdp_module_child_count(layers); i += every> 0 ? every : 1)
        fsdp_checkpoint_wrapper(fsdp_module_child_at(layers, i), modes[job->parallel.activation_checkpoint]);
}

enum fsdp_status sharding_mesh(struct fsdp_device_mesh **mesh, const struct job *job, int W,
                               struct fsdp_context *context, struct fsdp_err *err)
{
    static const char *const names[] = { "replicate", "shard" };
    const uint64_t R = job->parallel.replicate;

    *mesh = NULL;
    if (R <= 1)
        return FSDP_OK;
    if (R > (uint64_t)W || (uint64_t)W % R != 0)
        return fsdp_fail(err, FSDP_ERR_CONFIG,
                         "parallel.replicate: %" PRIu64 " copies of the model do not divide %d ranks", R, W);
    return fsdp_init_device_mesh(mesh, context, 2, (int[]){ (int)R, W / (int)R }, names, err);
}
