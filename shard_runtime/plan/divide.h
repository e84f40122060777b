/*
 * How the sum of gradients over the ranks becomes their mean: by which number it is divided, and in which
 * step. Collectives average if they can. A factor of the user's scales what goes in. If the user allows sums
 * only, what comes out is scaled. This is pure.
 */
#ifndef PLAN_DIVIDE_H
#define PLAN_DIVIDE_H

#include <stdbool.h>

#include <fsdp/comm.h>

struct plan_division {
    /*
     * The factor by which each rank's gradients are multiplied before they are summed. The collective does
     * that if it can (NCCL's PREMUL_SUM); otherwise packing does. 1 if `reduce` is a mean.
     */
    float before;
    enum fsdp_reduce_op reduce, all_reduce; /* over the ranks that shard, and over the replicas */
    float after;                            /* what reduced rows are multiplied with */
};

/**
 * Returns the division by `factor` (0: by W * R) for W ranks that shard and R replicas. force_sum:
 * collectives may only sum.
 */
struct plan_division plan_divide(int W, int R, double factor, bool force_sum);

#endif
