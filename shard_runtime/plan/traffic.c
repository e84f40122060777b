#include "shard_runtime/plan/traffic.h"

/*
 * Bytes that ring algorithms send, on n ranks. A gather or a scatter sends all of the buffer except one of
 * its n rows. An all-reduce is a scatter and then a gather.
 */
static uint64_t ring_bytes(enum plan_collective collective, uint64_t n_ranks, uint64_t size_bytes)
{
    return collective == PLAN_COLLECTIVE_ALL_REDUCE ? 2 * size_bytes * (n_ranks - 1) / n_ranks
                                                    : size_bytes / n_ranks * (n_ranks - 1);
}

void plan_count_traffic(const struct plan *plan, uint64_t n_micro, struct plan_traffic *traffic)
{
    struct plan_collectives *const counts[] = { [PLAN_COLLECTIVE_ALL_GATHER] = &traffic->all_gather,
                                                [PLAN_COLLECTIVE_REDUCE_SCATTER] = &traffic->reduce_scatter,
                                                [PLAN_COLLECTIVE_ALL_REDUCE] = &traffic->all_reduce };

    *traffic = (struct plan_traffic){ 0 };
    for (int i = 0; i < plan->n_entries; i++) {
        const struct plan_entry *entry = &plan->entries[i];
        const enum plan_collective collective = plan_entry_collective(plan, entry);
        const struct plan_sent sent = plan_entry_sent(plan, entry);
        const uint64_t n_times = entry->when == PLAN_ALWAYS ? n_micro : 1;

        for (int o = 0; o < 2; o++) {
            if (sent.over[o].n_ranks <= 1)
                continue;
            counts[collective]->n_calls += n_times;
            counts[collective]->sent_bytes +=
                ring_bytes(collective, sent.over[o].n_ranks, n_times * sent.over[o].size_bytes);
        }
    }
}
