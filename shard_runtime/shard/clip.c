#include "shard_runtime/shard/clip.h"

#include <math.h>

static double coefficient_of(double norm, double max_norm)
{
    const double wanted = max_norm / (norm + 1e-6);

    if (!(max_norm > 0) || isinf(max_norm))
        return 1.0;
    /* Written so that a norm that is no number gives a coefficient that is none: it must not pass unseen. */
    return wanted >= 1.0 ? 1.0 : wanted;
}

enum fsdp_status clip_coefficient_p(struct fsdp_comm *comm, double part, double p, double max_norm,
                                    double *norm, double *coefficient, struct device_stream *stream,
                                    struct fsdp_err *err)
{
    const enum fsdp_reduce_op op = isinf(p) ? FSDP_MAX : FSDP_SUM;
    enum fsdp_status status = fsdp_all_reduce(comm, &part, 1, FSDP_F64, op, stream, err);

    if (status != FSDP_OK)
        return status;
    *norm = isinf(p) || p == 1 ? part : p == 2 ? sqrt(part) : pow(part, 1.0 / p);
    *coefficient = coefficient_of(*norm, max_norm);
    return FSDP_OK;
}

enum fsdp_status clip_coefficient(struct fsdp_comm *comm, double sum_squares, double max_norm, double *norm,
                                  double *coefficient, struct device_stream *stream, struct fsdp_err *err)
{
    return clip_coefficient_p(comm, sum_squares, 2, max_norm, norm, coefficient, stream, err);
}
