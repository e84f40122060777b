/*
 * By what, and where, the sum of gradients over the ranks is divided. Averaging is left to the collectives where it
 * can be; a factor of one's own scales what goes in; summing only scales what comes out. Pure.
 */
#ifndef PLAN_DIVIDE_H
#define PLAN_DIVIDE_H

#include <stdbool.h>

#include <fsdp/comm.h>

struct plan_division {
    /* What each rank's gradients are multiplied with before the sum, which `reduce` is then: by the collective where it can
     * (NCCL's PREMUL_SUM), else as they are packed. */
    float before;
    enum fsdp_reduce_op reduce, all_reduce;
    float after; /* what reduced rows are multiplied with */
};

/** Over W ranks that shard and R that replicate; factor 0: W * R. */
struct plan_division plan_divide(int W, int R, double factor, bool force_sum);

#endif
