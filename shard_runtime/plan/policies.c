#include "shard_runtime/plan/policies.h"

#include "shard_runtime/plan/hash.h"

static uint64_t with_list(uint64_t hash, const struct unit_list *list)
{
    hash = hash_word(hash, list->n_units);
    for (size_t i = 0; i < list->n_units; i++)
        hash = hash_word(hash, (uintptr_t)list->units[i]);
    return hash;
}

static void read_unit(struct policies *p, const struct unit_policy *policy, enum fsdp_gradient_sync sync)
{
    const bool every = policy->gradient_sync == UNIT_SYNC_AS_MODEL ? sync == FSDP_SYNC_EVERY
                                                                   : policy->gradient_sync == UNIT_SYNC_EVERY;

    p->settled = hash_word(p->settled, policy->reduces_unused + 2u * policy->separate_reduces);
    p->planned = hash_word(p->planned, (uint64_t)policy->reshard_after_forward);
    p->planned = hash_word(p->planned, (uint64_t)policy->reduce_buffers);
    p->planned = hash_bytes(p->planned, &policy->divide_factor, sizeof policy->divide_factor);
    p->planned = hash_word(p->planned, policy->force_sum + 2u * policy->not_in_backward +
                                           4u * (policy->hook != NULL) + 8u * (policy->post_hook != NULL));
    p->planned = with_list(p->planned, &policy->prefetch[0]);
    p->planned = with_list(p->planned, &policy->prefetch[1]);
    p->flags = hash_word(p->flags, every + 2u * policy->defers_all_reduce + 4u * policy->keep_after_backward);
}

struct policies policies_read(const struct fsdp_module *root, enum fsdp_gradient_sync sync)
{
    struct policies p = { HASH_BASIS, HASH_BASIS, HASH_BASIS };

    for (const struct fsdp_module *m = root; m != NULL; m = module_next(root, m)) {
        p.planned = hash_word(p.planned, (uint64_t)m->checkpoint);
        for (size_t i = 0; i < m->n_parameters; i++)
            p.settled = hash_word(p.settled, m->parameters[i]->frozen);
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
