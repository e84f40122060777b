/*
 * A plan as text: one line for each entry, then what the arena holds. It is for people and tests; plan_hash()
 * is for comparing the plans of two ranks.
 */
#include <stdio.h>

#include "shard_runtime/core/text.h"
#include "shard_runtime/plan/hash.h"
#include "shard_runtime/plan/plan.h"

const char *plan_unit_name(const struct plan *plan, int group)
{
    const char *path = plan->groups[group].unit->path;

    return path[0] == '\0' ? "(root)" : path;
}

static void print_entry(FILE *out, const struct plan *plan, int entry)
{
    const struct plan_entry *e = &plan->entries[entry];

    fprintf(out, "%4d %-7s %-8s %s", entry, plan_stream_name(e->stream), plan_entry_name(e->kind),
            plan_entry_subject(plan, e));
    if (plan_runs_again(e))
        fprintf(out, " again");
    if (plan->n_forwards > 1)
        fprintf(out, " call=%d", e->call);
    if (plan_is_operation(e) && e->op.with_before)
        fprintf(out, " fused");
    if (e->when != PLAN_ALWAYS)
        fprintf(out, " when=%s", e->when == PLAN_FIRST ? "first" : "last");
    for (int s = 0; s < PLAN_N_STREAMS; s++)
        if (e->waits[s] >= 0)
            fprintf(out, " wait=%d", e->waits[s]);
    if (e->records)
        fprintf(out, " record");
    for (int i = 0; i < e->n_accesses; i++) {
        const struct plan_access *access = &plan->accesses[e->first_access + i];

        fprintf(out, " %s%d@%zu", access->writes ? access->reads ? "+" : ">" : "<", access->buffer,
                plan->buffers[access->buffer].offset);
    }
    fputc('\n', out);
}

static void print_plan(FILE *out, const void *subject)
{
    const struct plan *plan = subject;

    fprintf(out, "# world %d, %d groups, %d entries. <: reads, >: writes, +: adds to buffer@offset\n",
            plan->options.W, plan->n_groups, plan->n_entries);
    for (int entry = 0; entry < plan->n_entries; entry++)
        print_entry(out, plan, entry);
    fprintf(out, "# arena %zu bytes; most at once: activations %zu, gathered %zu, reduced %zu, scratch %zu",
            plan->arena_bytes - plan->gradient_bytes, plan->class_bytes[PLAN_ACTIVATIONS],
            plan->class_bytes[PLAN_GATHERED], plan->class_bytes[PLAN_REDUCED],
            plan->class_bytes[PLAN_SCRATCH]);
    if (plan->gradient_bytes > 0)
        fprintf(out, "; after %zu bytes of gradient shards, in whose place they lie until these are written",
                plan->gradient_bytes);
    fputc('\n', out);
}

char *plan_text(const struct plan *plan)
{
    return text_of(print_plan, plan);
}

uint64_t plan_hash(const struct plan *plan)
{
    uint64_t hash = hash_word(HASH_BASIS, (uint64_t)plan->n_groups);

    for (int entry = 0; entry < plan->n_entries; entry++) {
        const struct plan_entry *e = &plan->entries[entry];

        const bool into_shards = e->kind == PLAN_REDUCE && e->reduce.into_shards;
        const int k = e->kind == PLAN_GATHER ? e->gather.k : 0;

        hash = hash_word(hash, (uint64_t)e->kind | (uint64_t)e->when << 8 | (uint64_t)e->stream << 16 |
                                   (uint64_t)into_shards << 24 | (uint64_t)(uint32_t)e->index << 32);
        hash = hash_word(hash, (uint64_t)(uint32_t)e->call | (uint64_t)(uint32_t)k << 32);
    }
    return hash;
}
