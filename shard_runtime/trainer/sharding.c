#include "shard_runtime/trainer/sharding.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/module.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/job/rules.h"
#include "shard_runtime/trainer/sharding_prefetch.h"

enum { MAX_LISTED = 64 }; /* the most modules in one group */

static const enum fsdp_activation_checkpoint checkpoint_modes[] = {
    [JOB_CHECKPOINT_NONE] = FSDP_CHECKPOINT_NONE,
    [JOB_CHECKPOINT_FULL] = FSDP_CHECKPOINT_FULL,
    [JOB_CHECKPOINT_SELECTIVE] = FSDP_CHECKPOINT_SELECTIVE,
};

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
        .float8_gather = job->parallel.float8_gather,
        .stochastic_rounding = job->parallel.stochastic_rounding,
    };
}

/* Modules that become one group, and the job's settings for that group. */
struct group {
    struct fsdp_module *modules[MAX_LISTED];
    size_t n;
    const struct job_rule *rule; /* the rule that made the group; NULL: none */
    struct job job;              /* the job with the rule's settings applied */
};

/* The module after `module` in the tree, parents before children. `module` NULL: the root. */
static struct fsdp_module *next_module(struct fsdp_module *root, struct fsdp_module *module)
{
    const struct fsdp_module *next = module == NULL ? root : module_next(root, module);

    return (struct fsdp_module *)(uintptr_t)next; /* the tree is our own, so it may be changed */
}

/*
 * The shard dimension of a parameter, from the first rule of parallel.placement that matches; 0 if none does.
 */
static int place(const char *name, int n_dims, const size_t *shape, void *user)
{
    const struct job_rules *rules = user;

    (void)n_dims;
    (void)shape;
    for (size_t i = 0; i < rules->n; i++)
        if (job_names_match_parameter(&rules->list[i].names, name)) {
            const struct job_value *dim = job_rule_value(&rules->list[i], "dim");

            return dim == NULL ? 0 : (int)dim->count;
        }
    return 0;
}

/*
 * Lists the names of the ignored parameters among those that the group will have. The caller frees *names; *n
 * is their number.
 */
static enum fsdp_status list_ignored(const struct group *group, const char ***names, size_t *n,
                                     struct fsdp_err *err)
{
    const struct job_names *ignored = group->job.parallel.ignored;
    size_t room = 0;

    *names = NULL;
    *n = 0;
    for (size_t i = 0; i < group->n && ignored != NULL; i++)
        for (struct fsdp_module *m = group->modules[i]; m != NULL; m = next_module(group->modules[i], m))
            room += m->n_parameters;
    if (room == 0)
        return FSDP_OK;
    *names = malloc(room * sizeof **names);
    if (*names == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for names of parameters");
    for (size_t i = 0; i < group->n; i++) {
        const struct fsdp_module *unit = module_unit(group->modules[i]);

        for (struct fsdp_module *m = group->modules[i]; m != NULL; m = next_module(group->modules[i], m))
            for (size_t p = 0; p < m->n_parameters && module_unit(m) == unit; p++)
                if (job_names_match_parameter(ignored, m->parameters[p]->name))
                    (*names)[(*n)++] = m->parameters[p]->name;
    }
    return FSDP_OK;
}

/* Sets the job's policies on a group that was just formed. */
static enum fsdp_status set_policy(const struct group *group, struct fsdp_err *err)
{
    const struct job *job = &group->job;
    const struct job_value *unshard =
        group->rule == NULL ? NULL : job_rule_value(group->rule, "unshard_in_backward");
    struct fsdp_module *module = group->modules[0];

    fsdp_module_set_reshard_after_backward(module, job->parallel.reshard_after_backward, false);
    fsdp_module_set_requires_all_reduce(module, job->parallel.all_reduce != JOB_ALL_REDUCE_LAST, false);
    fsdp_module_set_requires_gradient_sync(module, job->parallel.gradient_sync == JOB_SYNC_EVERY, false);
    fsdp_module_set_gradient_divide_factor(module, job->parallel.gradient_divide_factor, false);
    fsdp_module_set_force_sum_reduction_for_comms(module, job->parallel.force_sum_reduction, false);
    fsdp_module_set_separate_reduce_scatter_group(module, job->parallel.separate_reduce_scatter_group, false);
    if (unshard != NULL)
        fsdp_module_set_unshard_in_backward(module, unshard->flag);
    if (job->parallel.reduce_scatter_max_input_buffers <= 1)
        return FSDP_OK;
    return fsdp_module_set_reduce_scatter_max_input_buffers(
        module, (int)job->parallel.reduce_scatter_max_input_buffers, false, err);
}

static enum fsdp_status shard_group(const struct group *group, struct fsdp_device_mesh *mesh,
                                    struct fsdp_err *err)
{
    const struct job *job = &group->job;
    const struct fsdp_mixed_precision_policy precision = precision_of(job);
    const enum job_reshard reshard = job->parallel.reshard_after_forward;
    struct fsdp_fully_shard_options options = {
        .reshard_after_forward = reshard_of(reshard),
        .reshard_size = reshard >= JOB_RESHARD_TO ? (int)reshard - JOB_RESHARD_TO : 0,
        .mp_policy = &precision,
        .mesh = mesh,
        .shard_placement_fn = job->parallel.placement == NULL ? NULL : place,
        .placement_user = job->parallel.placement,
        /* An optimizer whose state is in a file updates parameters in host memory. */
        .offload_policy = job->parallel.offload != JOB_OFFLOAD_NONE ? FSDP_OFFLOAD_CPU : FSDP_OFFLOAD_NONE,
        .pin_memory = true,
    };
    const char **ignored;
    enum fsdp_status status = list_ignored(group, &ignored, &options.n_ignored_params, err);

    options.ignored_params = ignored;
    if (status == FSDP_OK)
        status = fsdp_fully_shard_modules(group->modules, group->n, &options, err);
    free(ignored);
    return status == FSDP_OK ? set_policy(group, err) : status;
}

/* A rule's activation checkpointing replaces the setting that all blocks have. */
static void wrap_for_rule(struct fsdp_module *module, const struct job_rule *rule)
{
    const struct job_value *mode = job_rule_value(rule, "activation_checkpoint");

    if (mode != NULL)
        fsdp_checkpoint_wrapper(module, checkpoint_modes[mode->choice]);
}

/*
 * Forms the groups of one rule. If the rule has one pattern, every module that matches becomes a group. If it
 * has several patterns, all modules that match form one group together.
 */
static enum fsdp_status apply_rule(struct fsdp_module *root, const struct job_rule *rule,
                                   const struct job *job, struct fsdp_device_mesh *mesh, struct fsdp_err *err)
{
    struct group group = { .rule = rule };

    job_rule_apply(rule, job, &group.job);
    for (size_t p = 0; p < rule->names.n; p++) {
        size_t found = 0;

        for (struct fsdp_module *m = next_module(root, NULL); m != NULL; m = next_module(root, m)) {
            if (m == root || !job_module_matches(rule->names.list[p], fsdp_module_path(m)))
                continue;
            found++;
            wrap_for_rule(m, rule);
            if (group.n == MAX_LISTED)
                return fsdp_fail(err, FSDP_ERR_CONFIG, "parallel.groups: more than %d modules in one group",
                                 (int)MAX_LISTED);
            group.modules[group.n++] = m;
            if (rule->names.n == 1) {
                OK_OR_RETURN(shard_group(&group, mesh, err));
                group.n = 0;
            }
        }
        if (found == 0)
            return fsdp_fail(err, FSDP_ERR_CONFIG, "parallel.groups: no module is called %s",
                             rule->names.list[p]);
    }
    return group.n > 0 ? shard_group(&group, mesh, err) : FSDP_OK;
}

static bool has_layers(const struct fsdp_module *root)
{
    return fsdp_module_child(root, "layers") != NULL;
}

/* Without rules in the job, makes each block a group. */
static enum fsdp_status apply_blocks(struct fsdp_module *root, const struct job *job,
                                     struct fsdp_device_mesh *mesh, struct fsdp_err *err)
{
    static const struct job_rule layers = { .names = { .n = 1, .list = { "layers.*" } } };
    static const struct job_rule h = { .names = { .n = 1, .list = { "h.*" } } };

    return apply_rule(root, has_layers(root) ? &layers : &h, job, mesh, err);
}

/* Checks that every pattern matches a parameter. A pattern that matches none is a mistake in the job. */
static enum fsdp_status check_names(const struct fsdp_module *root, const char *key,
                                    const struct job_names *names, struct fsdp_err *err)
{
    for (size_t i = 0; names != NULL && i < names->n; i++) {
        bool found = false;

        for (const struct fsdp_module *m = root; m != NULL && !found; m = module_next(root, m))
            for (size_t p = 0; p < m->n_parameters && !found; p++)
                found = job_parameter_matches(names->list[i], m->parameters[p]->name);
        if (!found)
            return fsdp_fail(err, FSDP_ERR_CONFIG, "%s: no parameter is called %s", key, names->list[i]);
    }
    return FSDP_OK;
}

/*
 * Freezes the parameters of model.frozen. Requires that ignored parameters are frozen too: their gradients
 * are not summed over the ranks, so the copies of the ranks would drift apart.
 */
static enum fsdp_status freeze(struct fsdp_module *root, const struct job *job, struct fsdp_err *err)
{
    OK_OR_RETURN(check_names(root, "model.frozen", job->model.frozen, err));
    OK_OR_RETURN(check_names(root, "parallel.ignored", job->parallel.ignored, err));
    for (size_t i = 0; job->parallel.placement != NULL && i < job->parallel.placement->n; i++)
        OK_OR_RETURN(check_names(root, "parallel.placement", &job->parallel.placement->list[i].names, err));
    for (struct fsdp_module *m = root; m != NULL; m = next_module(root, m))
        for (size_t p = 0; p < m->n_parameters; p++) {
            const char *name = m->parameters[p]->name;

            if (job_names_match_parameter(job->model.frozen, name))
                OK_OR_RETURN(fsdp_parameter_set_requires_grad(m, strrchr(name, '.') + 1, false, err));
            else if (job_names_match_parameter(job->parallel.ignored, name))
                return fsdp_fail(err, FSDP_ERR_CONFIG,
                                 "parallel.ignored: %s learns, and nothing sums its gradients over the "
                                 "ranks: name it in model.frozen too",
                                 name);
        }
    return FSDP_OK;
}

enum fsdp_status sharding_apply(struct fsdp_module *root, const struct job *job,
                                struct fsdp_device_mesh *mesh, struct fsdp_err *err)
{
    const struct job_rules *rules = job->parallel.groups;
    struct group rest = { .modules = { root }, .n = 1, .job = *job };
    enum fsdp_status status = freeze(root, job, err);

    if (status == FSDP_OK && rules == NULL)
        status = apply_blocks(root, job, mesh, err);
    for (size_t i = 0; rules != NULL && i < rules->n && status == FSDP_OK; i++)
        status = apply_rule(root, &rules->list[i], job, mesh, err);
    if (status == FSDP_OK)
        status = shard_group(&rest, mesh, err);
    if (status == FSDP_OK)
        status = sharding_prefetch(root, job, err);
    if (status == FSDP_ERR_ARG) /* the job is at fault, not this program */
        status = fsdp_fail(err, FSDP_ERR_CONFIG, "parallel: %s", err != NULL ? err->message : "");
    return status;
}

int sharding_fit_slices(struct fsdp_module *root, int W)
{
    int n_changed = 0;

    for (struct fsdp_module *m = root; m != NULL; m = next_module(root, m)) {
        if (!m->sharded || m->policy.reshard_after_forward != FSDP_RESHARD_TO ||
            W % m->policy.reshard_size == 0)
            continue;
        while (W % m->policy.reshard_size != 0) /* 1 divides every W */
            m->policy.reshard_size--;
        n_changed++;
    }
    return n_changed;
}

/* Wraps the first of every activation_checkpoint_every blocks. */
void sharding_checkpoint_blocks(struct fsdp_module *root, const struct job *job)
{
    const uint64_t every = job->parallel.activation_checkpoint_every;
    struct fsdp_module *layers = fsdp_module_child(root, has_layers(root) ? "layers" : "h");

    for (size_t i = 0; i<fsdp_module_child_count(layers); i += every> 0 ? every : 1)
        fsdp_checkpoint_wrapper(fsdp_module_child_at(layers, i),
                                checkpoint_modes[job->parallel.activation_checkpoint]);
}

int sharding_data_ranks(const struct job *job, int W)
{
    const int T = (int)job->parallel.tensor;

    return T > 1 && W > T ? W / T
           : T > 1        ? 1
                          : W; /* fewer ranks than a tensor group: sharding_meshes_open() refuses them */
}

int sharding_data_rank(const struct job *job, int rank)
{
    return job->parallel.tensor > 1 ? rank / (int)job->parallel.tensor : rank;
}

enum fsdp_status sharding_meshes_open(struct sharding_meshes *meshes, const struct job *job, int W,
                                      struct fsdp_context *context, struct fsdp_err *err)
{
    static const char *const names[] = { "replicate", "shard", "tensor" };
    const uint64_t R = job->parallel.replicate, T = job->parallel.tensor;

    *meshes = (struct sharding_meshes){ 0 };
    if (R <= 1 && T <= 1)
        return FSDP_OK;
    if (T > (uint64_t)W || (uint64_t)W % T != 0 || R > (uint64_t)W / T || (uint64_t)W / T % R != 0)
        return fsdp_fail(err, FSDP_ERR_CONFIG,
                         "parallel.replicate: %" PRIu64 " copies of the model%s do not divide %d ranks", R,
                         T > 1 ? " on groups of parallel.tensor" : "", W);
    OK_OR_RETURN(fsdp_init_device_mesh(&meshes->all, context, 3, (int[]){ (int)R, W / (int)(R * T), (int)T },
                                       names, err));
    OK_OR_RETURN(
        fsdp_device_mesh_slice(&meshes->data, meshes->all, R > 1 ? names : &names[1], R > 1 ? 2 : 1, err));
    if (T > 1)
        OK_OR_RETURN(fsdp_device_mesh_slice(&meshes->tensor, meshes->all, &names[2], 1, err));
    return FSDP_OK;
}

void sharding_meshes_close(struct sharding_meshes *meshes)
{
    fsdp_device_mesh_destroy(meshes->tensor);
    fsdp_device_mesh_destroy(meshes->data);
    fsdp_device_mesh_destroy(meshes->all);
    *meshes = (struct sharding_meshes){ 0 };
}

enum fsdp_status sharding_split(struct fsdp_module *root, struct fsdp_device_mesh *tensor,
                                struct fsdp_err *err)
{
    static const struct fsdp_parallel_rule rules[] = { { "layers.*.attention.w[qkv]", FSDP_COLWISE_PARALLEL },
                                                       { "layers.*.attention.wo", FSDP_ROWWISE_PARALLEL },
                                                       { "layers.*.feed_forward.w1", FSDP_COLWISE_PARALLEL },
                                                       { "layers.*.feed_forward.w2",
                                                         FSDP_ROWWISE_PARALLEL } };
    const enum fsdp_status status =
        fsdp_parallelize_module(root, tensor, rules, sizeof rules / sizeof *rules, err);

    return status == FSDP_ERR_ARG
               ? fsdp_fail(err, FSDP_ERR_CONFIG, "parallel.tensor: %s", err != NULL ? err->message : "")
               : status;
}
