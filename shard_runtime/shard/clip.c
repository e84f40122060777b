#include "shard_runtime/shard/clip.h"

#include <math.h>

enum fsdp_status clip_coefficient(struct fsdp_comm *comm, double sum_squares, double max_norm, double *norm,
                                  double *coefficient, struct device_stream *stream, struct fsdp_err *err)
{
    enum fsdp_status status = fsdp_all_reduce(comm, &sum_squares, 1, FSDP_F64, FSDP_SUM, stream, err);

    if (status != FSDP_OK)
        return status;
    *norm = sqrt(sum_squares);
    *coefficient = 1.0;
    if (max_norm > 0 && !isinf(max_norm)) {
        const double wanted = max_norm / (*norm + 1e-6);

        /* Written so that a norm that is no number gives a coefficient that is none: it must not pass unseen.
         */
        *coefficient = wanted >= 1.0 ? 1.0 : wanted;
    }
    return FSDP_OK;
}
