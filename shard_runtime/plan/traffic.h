/*
 * What a step sends, read from its plan. Bytes are those that one rank sends with ring algorithms, which is the least
 * that a collective of equal parts can do: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters
 * of workstations", 2009. A transport that shares memory moves fewer. The few bytes of the loss and the norm are
 * left out. Pure.
 */
#ifndef PLAN_TRAFFIC_H
#define PLAN_TRAFFIC_H

#include <stdint.h>

#include "shard_runtime/plan/plan.h"

struct plan_collectives {
    uint64_t n_calls, sent_bytes; /* of one rank, in one step */
};

struct plan_traffic {
    struct plan_collectives all_gather, reduce_scatter, all_reduce;
};

/** Of a step of `n_micro` micro-steps, at least 1. */
void plan_count_traffic(const struct plan *plan, uint64_t n_micro, struct plan_traffic *traffic);

#endif
