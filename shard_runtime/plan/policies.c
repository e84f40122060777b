#include "shard_runtime/plan/policies.h"

#include <string.h>

/* FNV-1a: Fowler, Noll and Vo; of 64-bit words. */
static uint64_t with(uint64_t hash, uint64_t word)
{
    for (int byte = 0; byte < 8; byte++)
        hash = (hash ^ (word >> 8 * byte & 0xff)) * 0x100000001b3u;
    return hash;
}

static uint64_t with_list(uint64_t hash, const struct unit_list *list)
{
    hash = with(hash, list->n_units);
    for (size_t i = 0; i < list->n_units; i++)
        hash = with(hash, (uintptr_t)list->units[i]);
    return hash;
}

static void read_unit(struct policies *p, const struct unit_policy *policy, enum fsdp_gradient_sync sync)
{
    const bool every = policy->gradient_sync == UNIT_SYNC_AS_MODEL ? sync == FSDP_SYNC_EVERY
                                                                   : policy->gradient_sync == UNIT_SYNC_EVERY;
    uint64_t factor;

    memcpy(&factor, &policy->divide_factor, sizeof factor);
    p->settled = with(p->settled, policy->reduces_unused + 2u * policy->separate_reduces);
    p->planned = with(p->planned, (uint64_t)policy->reshard_after_forward);
    p->planned = with(p->planned, (uint64_t)policy->reduce_buffers);
    p->planned = with(p->planned, factor);
    p->planned = with(p->planned, policy->force_sum + 2u * policy->not_in_backward +
                                      4u * (policy->hook != NULL) + 8u * (policy->post_hook != NULL));
    p->planned = with_list(p->planned, &policy->prefetch[0]);
    p->planned = with_list(p->planned, &policy->prefetch[1]);
    p->flags = with(p->flags, every + 2u * policy->defers_all_reduce + 4u * policy->keep_after_backward);
}

struct policies policies_read(const struct fsdp_module *root, enum fsdp_gradient_sync sync)
{
    const uint64_t basis = 0xcbf29ce484222325u;
    struct policies p = { basis, basis, basis };

    for (const struct fsdp_module *m = root; m != NULL; m = module_next(root, m)) {
        p.planned = with(p.planned, (uint64_t)m->checkpoint);
        for (size_t i = 0; i < m->n_parameters; i++)
            p.settled = with(p.settled, m->parameters[i]->frozen);
        if (m->sharded && m->leader == NULL)
            read_unit(&p, &m->policy, sync);
    }
    return p;
}

enum policies_verdict policies_compare(const struct policies *now, const struct policies *then, bool within,
                                       bool is_last, bool single)
{
    const bool same_flags = now->flags == then->flags;

    if (now->settled != then->settled)
        return POLICIES_SETTLED;
    if (within)
        return now->planned == then->planned && (same_flags || is_last) ? POLICIES_AS_PLANNED
                                                                        : POLICIES_TOO_LATE;
    return now->planned == then->planned && (same_flags || (is_last && single)) ? POLICIES_AS_PLANNED
                                                                                : POLICIES_NEED_PLAN;
}
