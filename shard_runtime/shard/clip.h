/*
 * The global norm of gradients that no rank holds whole. Each rank measures its own rows; then one all-reduce
 * of two numbers for each dimension of the mesh that shards adds them up.
 */
#ifndef SHARD_CLIP_H
#define SHARD_CLIP_H

#include <stdbool.h>

#include <fsdp/comm.h>
#include <fsdp/status.h>

struct device_stream;

/**
 * This rank's sum of |x|^p over some rows, or its largest |x| if p is infinite, and the ranks with the other
 * rows.
 */
struct clip_part {
    struct fsdp_comm *comm;
    double sum;
};

/**
 * Computes the norm of all gradients, and the factor that clips it to max_norm. Collective over the ranks of
 * all parts and of `last`.
 *
 *   parts, n_parts  this rank's sums; each is added over its `comm`
 *   last            over which the total is added once more; NULL: there is no such dimension
 *   p               order of the norm, 1 or more, or infinite
 *   norm            receives the norm; padding counts as the zeros it is
 *   coefficient     receives min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ computes it;
 *                   1 if max_norm is 0 or infinite
 *   failed          in: this rank has no sums. Out: one of these ranks has none, and *norm is not a norm
 *
 * Returns the failure of a collective; the results are then not set.
 */
enum fsdp_status clip_coefficient(const struct clip_part *parts, int n_parts, struct fsdp_comm *last,
                                  double p, double max_norm, double *norm, double *coefficient, bool *failed,
                                  struct device_stream *stream, struct fsdp_err *err);

#endif
