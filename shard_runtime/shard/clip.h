/*
 * The global norm of gradients that no rank holds whole: each rank measures its own rows, one all-reduce of two numbers for
 * each dimension that shards adds.
 */
#ifndef SHARD_CLIP_H
#define SHARD_CLIP_H

#include <stdbool.h>

#include <fsdp/comm.h>
#include <fsdp/status.h>

struct device_stream;

/** This rank's sum of |x|^p over some rows, or its largest |x| where p is infinite, and the ranks that hold the others. */
struct clip_part {
    struct fsdp_comm *comm;
    double sum;
};

/**
 * *norm: of order p, over all parts of all ranks, and then over the ranks of `last`, NULL where there is no such dimension.
 * *coefficient = min(1, max_norm / (norm + 1e-6)) as torch.nn.utils.clip_grad_norm_ has it, or 1 when max_norm is 0 or
 * infinite. Collective. Padding counts as the zeros it is. *failed: whether this rank has no sums; in the end, whether any of
 * these ranks has none. The norm is then no norm.
 */
enum fsdp_status clip_coefficient(const struct clip_part *parts, int n_parts, struct fsdp_comm *last,
                                  double p, double max_norm, double *norm, double *coefficient, bool *failed,
                                  struct device_stream *stream, struct fsdp_err *err);

#endif
