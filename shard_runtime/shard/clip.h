/*
 * The global norm of gradients that no rank holds whole: each rank squares its own rows, one all-reduce adds.
 */
#ifndef SHARD_CLIP_H
#define SHARD_CLIP_H

#include <fsdp/comm.h>
#include <fsdp/status.h>

struct device_stream;

/**
 * *norm = sqrt(sum over all ranks of `sum_squares`); *coefficient = min(1, max_norm / (norm + 1e-6)) as
 * torch.nn.utils.clip_grad_norm_ has it, or 1 when max_norm is 0 or infinite. Collective: one all-reduce of
 * one double. Padding counts as the zeros it is.
 */
enum fsdp_status clip_coefficient(struct fsdp_comm *comm, double sum_squares, double max_norm, double *norm,
                                  double *coefficient, struct device_stream *stream, struct fsdp_err *err);

/** The same for the norm of order p: `part` is this rank's sum of |x|^p, or its largest |x| where p is infinite. */
enum fsdp_status clip_coefficient_p(struct fsdp_comm *comm, double part, double p, double max_norm,
                                    double *norm, double *coefficient, struct device_stream *stream,
                                    struct fsdp_err *err);

#endif
