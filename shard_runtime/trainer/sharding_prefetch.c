#include "shard_runtime/trainer/sharding_prefetch.h"

#include <stdint.h>
#include <stdlib.h>

#include "shard_runtime/core/module.h"
#include "shard_runtime/job/rules.h"

/* The groups of a tree without the root's, in the tree's order. The first module of a group stands for it. */
struct groups {
    struct fsdp_module **list, **chosen; /* `chosen` has room for the same number */
    size_t n;
};

static bool leads_group(const struct fsdp_module *root, const struct fsdp_module *m)
{
    return m != root && m->sharded && (m->leader == NULL || m->leader == m);
}

static enum fsdp_status list_groups(struct groups *groups, struct fsdp_module *root, struct fsdp_err *err)
{
    size_t n = 0;

    for (const struct fsdp_module *m = root; m != NULL; m = module_next(root, m))
        n += leads_group(root, m);
    *groups = (struct groups){ 0 };
    if (n == 0)
        return FSDP_OK;
    groups->list = calloc(2 * n, sizeof *groups->list);
    if (groups->list == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a list of groups");
    groups->chosen = groups->list + n;
    for (const struct fsdp_module *m = root; m != NULL; m = module_next(root, m))
        if (leads_group(root, m))
            /* the tree is our own, so it may be changed */
            groups->list[groups->n++] = (struct fsdp_module *)(uintptr_t)m;
    return FSDP_OK;
}

static enum fsdp_status set(struct fsdp_module *module, const struct groups *groups, size_t n, bool forward,
                            struct fsdp_err *err)
{
    return forward ? fsdp_module_set_modules_to_forward_prefetch(module, groups->chosen, n, err)
                   : fsdp_module_set_modules_to_backward_prefetch(module, groups->chosen, n, err);
}

/* Prefetches the next `depth` groups; in backward, the `depth` groups before. */
static enum fsdp_status prefetch_next(const struct groups *groups, size_t at, uint64_t depth, bool forward,
                                      struct fsdp_err *err)
{
    size_t n = 0;

    for (size_t i = 1; i <= depth; i++) {
        if (forward ? at + i >= groups->n : i > at)
            break;
        groups->chosen[n++] = groups->list[forward ? at + i : at - i];
    }
    return set(groups->list[at], groups, n, forward, err);
}

/* Returns whether the group of `leader` has a module that matches the pattern. */
static bool holds(const struct fsdp_module *root, const struct fsdp_module *leader, const char *pattern)
{
    for (const struct fsdp_module *m = root; m != NULL; m = module_next(root, m))
        if (m->sharded && (m == leader || m->leader == leader) && job_module_matches(pattern, m->path))
            return true;
    return false;
}

static enum fsdp_status prefetch_named(const struct fsdp_module *root, const struct groups *groups, size_t at,
                                       const struct job_names *names, bool forward, struct fsdp_err *err)
{
    size_t n = 0;

    for (size_t p = 0; p < names->n; p++) {
        bool found = false;

        for (size_t g = 0; g < groups->n; g++) {
            bool listed = !holds(root, groups->list[g], names->list[p]);

            found = found || !listed;
            for (size_t i = 0; i < n && !listed; i++)
                listed = groups->chosen[i] == groups->list[g];
            if (!listed)
                groups->chosen[n++] = groups->list[g];
        }
        if (!found)
            return fsdp_fail(err, FSDP_ERR_CONFIG,
                             "parallel.groups: %s is to be gathered early, and is no group", names->list[p]);
    }
    return set(groups->list[at], groups, n, forward, err);
}

/* The rule of the job that made the group; NULL: no rule did. */
static const struct job_rule *rule_of(const struct fsdp_module *group, const struct job *job)
{
    const struct job_rules *rules = job->parallel.groups;

    for (size_t i = 0; rules != NULL && i < rules->n; i++)
        for (size_t p = 0; p < rules->list[i].names.n; p++)
            if (job_module_matches(rules->list[i].names.list[p], group->path))
                return &rules->list[i];
    return NULL;
}

static enum fsdp_status prefetch(const struct fsdp_module *root, const struct groups *groups, size_t at,
                                 const struct job *job, bool forward, struct fsdp_err *err)
{
    const struct job_rule *rule = rule_of(groups->list[at], job);
    const struct job_names *names = rule == NULL ? NULL
                                    : forward    ? &rule->modules_to_forward_prefetch
                                                 : &rule->modules_to_backward_prefetch;
    struct job own = *job;
    uint64_t depth;

    if (names != NULL && names->n > 0)
        return prefetch_named(root, groups, at, names, forward, err);
    if (rule != NULL)
        job_rule_apply(rule, job, &own);
    depth = forward ? own.parallel.forward_prefetch : own.parallel.backward_prefetch;
    return depth == 0 ? FSDP_OK : prefetch_next(groups, at, depth, forward, err);
}

enum fsdp_status sharding_prefetch(struct fsdp_module *root, const struct job *job, struct fsdp_err *err)
{
    struct groups groups;
    enum fsdp_status status = list_groups(&groups, root, err);

    for (size_t i = 0; i < groups.n && status == FSDP_OK; i++) {
        status = prefetch(root, &groups, i, job, true, err);
        if (status == FSDP_OK)
            status = prefetch(root, &groups, i, job, false, err);
    }
    free(groups.list);
    return status;
}
