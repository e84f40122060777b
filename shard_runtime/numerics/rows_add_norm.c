/* A residual sum and its norm, a row at a time: the sum is still in the nearest cache when it is normalised. */
#include <stdint.h>

#include "shard_runtime/numerics/dropout.h"
#include "shard_runtime/numerics/parallel.h"
#include "shard_runtime/numerics/rows_cut.h"

struct work {
    const struct row_kernels *kernels;
    const struct numerics_add_norm *n;
};

/* As rows_dropout and rows_add do it one after the other. */
static void sum_row(const struct work *w, size_t i)
{
    const size_t cols = w->n->cols;
    const float *a = (const float *)w->n->a + i * cols, *b = (const float *)w->n->b + i * cols;
    float *x = (float *)w->n->x + i * cols;

    if (!dropout_is_on(w->n->dropout)) {
        w->kernels->add(a, b, x, cols);
    } else if (x == a) {
        w->kernels->dropout(b, x, 1, cols, w->n->dropout, w->n->dropout->first_row + i, true);
    } else {
        w->kernels->dropout(b, x, 1, cols, w->n->dropout, w->n->dropout->first_row + i, false);
        w->kernels->add(x, a, x, cols);
    }
}

static void norm_row(const struct work *w, const float *x, const float *weight, const float *bias, float *y,
                     size_t i)
{
    if (w->n->mean == NULL)
        w->kernels->rms_norm(x, weight, y, w->n->rstd + i, 1, w->n->cols, w->n->eps);
    else
        w->kernels->layer_norm(x, weight, bias, y, w->n->mean + i, w->n->rstd + i, 1, w->n->cols, w->n->eps);
}

static void piece(void *context, size_t begin, size_t end)
{
    const struct work *w = context;
    const size_t cols = w->n->cols;

    for (size_t i = begin; i < end; i++) {
        sum_row(w, i);
        norm_row(w, (const float *)w->n->x + i * cols, w->n->weight, w->n->bias, (float *)w->n->y + i * cols,
                 i);
    }
}

/* The sum is rounded before it is normalised, as it is read by others. */
static void piece_bf16(void *context, size_t begin, size_t end)
{
    const struct work *w = context;
    const size_t cols = w->n->cols;
    float weight[NUMERICS_BF16_MAX_COLS], bias[NUMERICS_BF16_MAX_COLS];
    float x[NUMERICS_BF16_MAX_COLS], y[NUMERICS_BF16_MAX_COLS];

    w->kernels->from_bf16(w->n->weight, weight, cols);
    if (w->n->bias != NULL)
        w->kernels->from_bf16(w->n->bias, bias, cols);
    for (size_t i = begin; i < end; i++) {
        uint16_t *sum = (uint16_t *)w->n->x + i * cols;

        w->kernels->from_bf16((const uint16_t *)w->n->a + i * cols, x, cols);
        w->kernels->from_bf16((const uint16_t *)w->n->b + i * cols, y, cols);
        w->kernels->add(x, y, x, cols);
        w->kernels->to_bf16(x, sum, cols);
        w->kernels->from_bf16(sum, x, cols);
        norm_row(w, x, weight, bias, y, i);
        w->kernels->to_bf16(y, (uint16_t *)w->n->y + i * cols, cols);
    }
}

void rows_add_layer_norm(struct numerics *numerics, struct device_stream *stream, enum fsdp_dtype dtype,
                         const struct numerics_add_norm *add_norm)
{
    struct work w = { .kernels = kernels_of(numerics), .n = add_norm };

    (void)stream;
    parallel_for(numerics->threads, add_norm->rows, row_grain(add_norm->cols),
                 dtype == FSDP_BF16 ? piece_bf16 : piece, &w);
}
