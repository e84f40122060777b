/* Sums, rounded as NCCL's kernels are written to. */
#include "shard_runtime/core/bf16.h"
#include "tests/emulation/cuda/nccl/standin.h"

size_t standin_size(int type)
{
    return type == NCCL_UINT8                              ? 1
           : type == NCCL_BFLOAT16 || type == NCCL_FLOAT16 ? 2
           : type == NCCL_INT32 || type == NCCL_FLOAT32    ? 4
                                                           : 8;
}

static double get(int type, const void *data, size_t i)
{
    switch (type) {
    case NCCL_BFLOAT16:
        return (double)bf16_to_f32(((const uint16_t *)data)[i]);
    case NCCL_FLOAT64:
        return ((const double *)data)[i];
    case NCCL_INT64:
        return (double)((const int64_t *)data)[i];
    case NCCL_FLOAT32:
        return (double)((const float *)data)[i];
    default:
        abort();
    }
}

static void put(int type, void *data, size_t i, double value)
{
    if (type == NCCL_BFLOAT16)
        ((uint16_t *)data)[i] = bf16_of_f32((float)value);
    else if (type == NCCL_FLOAT64)
        ((double *)data)[i] = value;
    else if (type == NCCL_INT64)
        ((int64_t *)data)[i] = (int64_t)value;
    else
        ((float *)data)[i] = (float)value;
}

static double rounded(int type, double value)
{
    return type == NCCL_BFLOAT16  ? (double)bf16_to_f32(bf16_of_f32((float)value))
           : type == NCCL_FLOAT32 ? (double)(float)value
                                  : value;
}

/*
 * As NCCL multiplies and adds: in the type, each product and each sum rounded. A mean of floats is a sum of
 * products with 1 / n, which is of the type too.
 */
static double factor_of(const struct work *w)
{
    return w->head.op == NCCL_AVG && w->head.type != NCCL_INT64 ? rounded(w->head.type, 1.0 / w->comm->size)
                                                                : (double)w->head.factor;
}

/* `n_elems` of everybody, from element `first`, reduced in the order of the ranks. */
bool standin_reduce(const struct work *w, size_t first, size_t n_elems)
{
    const int type = w->head.type;
    const size_t size = standin_size(type);
    const double factor = factor_of(w);
    void *part = malloc(n_elems * size + 1);
    double *sums = calloc(n_elems + 1, sizeof *sums);
    bool same = true;

    if (part == NULL || sums == NULL)
        abort();
    for (int r = 0; r < w->comm->size && same; r++) {
        same = standin_fetch(w->comm, w->number, r, &w->head, first * size, part, n_elems * size);
        for (size_t i = 0; i < n_elems && same; i++) {
            const double value = rounded(type, get(type, part, i) * factor);

            if (w->head.op == NCCL_MAX)
                sums[i] = r == 0 || value > sums[i] ? value : sums[i];
            else
                sums[i] = rounded(type, sums[i] + value);
        }
    }
    for (size_t i = 0; i < n_elems && same; i++)
        put(type, w->recv, i, sums[i]);
    free(part);
    free(sums);
    return same;
}
