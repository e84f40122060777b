/*
 * RMSNorm: Zhang and Sennrich, 2019. A row's squares, and in backward its products, are summed in float32 lanes of at most
 * 64 terms that are added in double.
 */
#include "shard_runtime/numerics/isa/kernels.h"
#include "shard_runtime/numerics/isa/vec.h"

enum { RUN = 64 * VL };

static double sum_of_squares(const float *x, size_t n)
{
    double total = 0;

    for (size_t begin = 0; begin < n; begin += RUN) {
        const size_t end = n - begin < RUN ? n : begin + RUN;
        vf sum = vf_set(0);
        size_t j = begin;

        for (; j + VL <= end; j += VL)
            sum = vf_fma(vf_load(x + j), vf_load(x + j), sum);
        if (j < end) {
            const vf v = vf_load_part(x + j, end - j, 0);

            sum = vf_fma(v, v, sum);
        }
        total += vf_sum(sum);
    }
    return total;
}

static void scale_row(const float *restrict x, const float *restrict weight, float *restrict y, float rstd,
                      size_t cols)
{
    for (size_t j = 0; j < cols; j++)
        y[j] = x[j] * rstd * weight[j];
}

void row_rms_norm(const float *x, const float *weight, float *y, float *rstd, size_t rows, size_t cols,
                  float eps)
{
    for (size_t i = 0; i < rows; i++) {
        const float *row = x + i * cols;

        rstd[i] = (float)(1.0 / sqrt(sum_of_squares(row, cols) / (double)cols + (double)eps));
        scale_row(row, weight, y + i * cols, rstd[i], cols);
    }
}

/* sum_j g * xhat of one row, with g = dy * weight and xhat = x * rstd. */
static double sum_of_row(const float *dy, const float *x, const float *weight, float rstd, size_t cols)
{
    double total = 0;

    for (size_t begin = 0; begin < cols; begin += RUN) {
        const size_t end = cols - begin < RUN ? cols : begin + RUN;
        vf sum = vf_set(0);
        size_t j = begin;

        for (; j + VL <= end; j += VL)
            sum = vf_fma(vf_load(dy + j) * vf_load(weight + j), vf_load(x + j) * rstd, sum);
        if (j < end)
            sum = vf_fma(vf_load_part(dy + j, end - j, 0) * vf_load_part(weight + j, end - j, 0),
                         vf_load_part(x + j, end - j, 0) * rstd, sum);
        total += vf_sum(sum);
    }
    return total;
}

/* dx of one row, and its part of dweight into the running sum. */
static void backward_row(const float *restrict dy, const float *restrict x, const float *restrict weight,
                         float rstd, float mean_gx, float *dx, bool accumulate, float *restrict run,
                         size_t cols)
{
    size_t j = 0;

    for (; j + VL <= cols; j += VL) {
        const vf grad = vf_load(dy + j), xhat = vf_load(x + j) * rstd;
        const vf d = rstd * (grad * vf_load(weight + j) - xhat * mean_gx);

        vf_store(run + j, vf_fma(grad, xhat, vf_load(run + j)));
        vf_store(dx + j, accumulate ? vf_load(dx + j) + d : d);
    }
    if (j < cols) {
        const size_t n = cols - j;
        const vf grad = vf_load_part(dy + j, n, 0), xhat = vf_load_part(x + j, n, 0) * rstd;
        const vf d = rstd * (grad * vf_load_part(weight + j, n, 0) - xhat * mean_gx);

        vf_store_part(run + j, vf_fma(grad, xhat, vf_load_part(run + j, n, 0)), n);
        vf_store_part(dx + j, accumulate ? vf_load_part(dx + j, n, 0) + d : d, n);
    }
}

static void flush(double *restrict total, float *restrict run, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        total[j] += (double)run[j];
        run[j] = 0;
    }
}

void row_rms_norm_backward(const float *dy, const float *x, const float *weight, const float *rstd, float *dx,
                           bool accumulate_dx, double *dweight, float *run, size_t rows, size_t cols)
{
    enum { RUN_ROWS = 16 }; /* rows added in float32 before the sums go on in double */

    memset(dweight, 0, cols * sizeof *dweight);
    memset(run, 0, cols * sizeof *run);
    for (size_t i = 0; i < rows; i++) {
        const size_t at = i * cols;
        const double sum_gx = sum_of_row(dy + at, x + at, weight, rstd[i], cols);

        backward_row(dy + at, x + at, weight, rstd[i], (float)(sum_gx / (double)cols), dx + at, accumulate_dx,
                     run, cols);
        if (i % RUN_ROWS == RUN_ROWS - 1 || i + 1 == rows)
            flush(dweight, run, cols);
    }
}
