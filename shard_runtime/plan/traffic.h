/*
 * What a step sends, read from its plan. Bytes are those that one rank sends with ring algorithms. That is
 * the least for a collective of equal parts: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
 * clusters of workstations",
 * 2009. A transport over shared memory moves fewer. The few bytes of loss and norm are left out. This is
 *       pure.
 */
#ifndef PLAN_TRAFFIC_H
#define PLAN_TRAFFIC_H

#include <stdint.h>

#include "shard_runtime/plan/plan.h"

/** Calls of one collective by one rank in one step, and the bytes that it sends in them. */
struct plan_collectives {
    uint64_t n_calls, sent_bytes;
};

struct plan_traffic {
    struct plan_collectives all_gather, reduce_scatter, all_reduce;
};

/** Fill in *traffic for a step of `n_micro` micro-steps, at least 1. */
void plan_count_traffic(const struct plan *plan, uint64_t n_micro, struct plan_traffic *traffic);

#endif
