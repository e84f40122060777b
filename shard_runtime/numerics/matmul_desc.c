#include "shard_runtime/numerics/matmul_desc.h"

#include "shard_runtime/core/checked.h"
#include "shard_runtime/core/require.h"

/* Adds (size - 1) * stride to *last, the offset of the last element. Returns false if that does not fit. */
static bool extend(size_t *last, size_t size, size_t stride)
{
    size_t step;

    return size <= 1 || (checked_mul(size - 1, stride, &step) && checked_add(*last, step, last));
}

static enum fsdp_status check_view(const struct matmul_desc *desc, const struct matmul_view *view,
                                   size_t rows, size_t cols, const char *name, struct fsdp_err *err)
{
    size_t last = 0, bytes;

    if (rows > 1 && cols > 1 && view->row_stride != 1 && view->col_stride != 1)
        return fsdp_fail(err, FSDP_ERR_ARG, "matmul: neither rows nor columns of %s are contiguous", name);
    if (!extend(&last, desc->outer, view->outer_stride) || !extend(&last, desc->inner, view->inner_stride) ||
        !extend(&last, rows, view->row_stride) || !extend(&last, cols, view->col_stride) ||
        !checked_mul(last, sizeof(double), &bytes) || bytes > PTRDIFF_MAX)
        return fsdp_fail(err, FSDP_ERR_ARG, "matmul: %s does not fit in memory", name);
    return FSDP_OK;
}

enum fsdp_status matmul_desc_check(const struct matmul_desc *desc, struct fsdp_err *err)
{
    if (desc->dtype != FSDP_F32 && desc->dtype != FSDP_BF16)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "matmul: no product of %s", fsdp_dtype_name(desc->dtype));
    if (desc->c_dtype != FSDP_F32 && desc->c_dtype != desc->dtype)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "matmul: no product of %s into %s",
                         fsdp_dtype_name(desc->dtype), fsdp_dtype_name(desc->c_dtype));
    if (desc->outer == 0 || desc->inner == 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "matmul: %zu x %zu batches", desc->outer, desc->inner);
    if (desc->beside != MATMUL_NOTHING)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "matmul: no product writes a second result");
    if (desc->bias && desc->accumulate)
        return fsdp_fail(err, FSDP_ERR_ARG, "matmul: bias together with accumulate");
    if (desc->m > PTRDIFF_MAX || desc->n > PTRDIFF_MAX || desc->k > PTRDIFF_MAX)
        return fsdp_fail(err, FSDP_ERR_ARG, "matmul: %zu x %zu x %zu", desc->m, desc->n, desc->k);
    if (desc->n > 1 && desc->c.col_stride != 1)
        return fsdp_fail(err, FSDP_ERR_ARG, "matmul: the columns of c are not contiguous");
    OK_OR_RETURN(check_view(desc, &desc->a, desc->m, desc->k, "a", err));
    OK_OR_RETURN(check_view(desc, &desc->b, desc->k, desc->n, "b", err));
    return check_view(desc, &desc->c, desc->m, desc->n, "c", err);
}
