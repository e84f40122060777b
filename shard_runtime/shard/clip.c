#include "shard_runtime/shard/clip.h"

#include <math.h>

#include "shard_runtime/core/require.h"

static double coefficient_of(double norm, double max_norm)
{
    const double wanted = max_norm / (norm + 1e-6);

    if (!(max_norm > 0) || isinf(max_norm))
        return 1.0;
    /* This form of the comparison lets a NaN norm give a NaN coefficient, so that the NaN is noticed. */
    return wanted >= 1.0 ? 1.0 : wanted;
}

/* Returns the larger number, or NaN if one of them is NaN: fmax() would hide it. */
static double larger(double a, double b)
{
    return a > b || isnan(a) ? a : b;
}

enum fsdp_status clip_coefficient(const struct clip_part *parts, int n_parts, struct fsdp_comm *last,
                                  double p, double max_norm, double *norm, double *coefficient, bool *failed,
                                  struct device_stream *stream, struct fsdp_err *err)
{
    const enum fsdp_reduce_op op = isinf(p) ? FSDP_MAX : FSDP_SUM;
    double both[2] = { 0, *failed }, all = 0;

    for (int i = 0; i < n_parts; i++) {
        both[0] = parts[i].sum;
        OK_OR_RETURN(fsdp_all_reduce(parts[i].comm, both, 2, FSDP_F64, op, stream, err));
        all = isinf(p) ? larger(both[0], all) : all + both[0];
    }
    both[0] = all;
    if (last != NULL)
        OK_OR_RETURN(fsdp_all_reduce(last, both, 2, FSDP_F64, op, stream, err));
    all = both[0];
    *failed = both[1] != 0;
    *norm = isinf(p) || p == 1 ? all : p == 2 ? sqrt(all) : pow(all, 1.0 / p);
    *coefficient = coefficient_of(*norm, max_norm);
    return FSDP_OK;
}
