/*
 * LayerNorm, Ba, Kiros and Hinton, 2016, and RMSNorm, Zhang and Sennrich, 2019.
 *
 * A row of LayerNorm is read twice for its statistics, in float32 lanes of at most 64 terms that are added in
 * double. The first pass gives a mean c. The second sums d = x - c and d^2, which correct it: mean = c +
 * E[d], variance = E[d^2] - E[d]^2 (Chan, Golub and LeVeque, 1983). RMSNorm, and both backwards, sum in the
 * same way.
 */
#include <stdbool.h>

#include "shard_runtime/numerics/isa/kernels.h"
#include "shard_runtime/numerics/isa/vec.h"

enum {
    RUN = 64 * VL,
    RUN_ROWS = 16 /* rows added in float32 before the sums go on in double */
};

/* Returns the sum of x, or of its squares. It is inlined, so that `squares` is not tested inside the loop. */
static inline __attribute__((always_inline)) double sum_of(const float *x, size_t n, bool squares)
{
    double total = 0;

    for (size_t begin = 0; begin < n; begin += RUN) {
        const size_t end = n - begin < RUN ? n : begin + RUN;
        vf sum = vf_set(0);
        size_t j = begin;

        for (; j + VL <= end; j += VL) {
            const vf v = vf_load(x + j);

            sum = squares ? vf_fma(v, v, sum) : sum + v;
        }
        if (j < end) {
            const vf v = vf_load_part(x + j, end - j, 0);

            sum = squares ? vf_fma(v, v, sum) : sum + v;
        }
        total += vf_sum(sum);
    }
    return total;
}

static void sums_around(const float *x, float center, size_t n, double *sum_d, double *sum_dd)
{
    *sum_d = *sum_dd = 0;
    for (size_t begin = 0; begin < n; begin += RUN) {
        const size_t end = n - begin < RUN ? n : begin + RUN;
        vf sd = vf_set(0), sdd = vf_set(0);
        size_t j = begin;

        for (; j + VL <= end; j += VL) {
            const vf d = vf_load(x + j) - center;

            sd += d;
            sdd = vf_fma(d, d, sdd);
        }
        if (j < end) {
            const vf d = vf_load_part(x + j, end - j, center) - center;

            sd += d;
            sdd = vf_fma(d, d, sdd);
        }
        *sum_d += vf_sum(sd);
        *sum_dd += vf_sum(sdd);
    }
}

/*
 * Not inlined: GCC 12 makes slower code of it inside the loop over rows; the operation then takes 13 %
 * longer.
 */
static __attribute__((noinline)) void layer_norm_row(const float *restrict x, const float *restrict weight,
                                                     const float *restrict bias, float *restrict y,
                                                     float mean, float rstd, size_t cols)
{
    for (size_t j = 0; j < cols; j++)
        y[j] = (x[j] - mean) * rstd * weight[j] + bias[j];
}

static void layer_norm(const struct numerics_norm *run)
{
    const float *x = run->x, *weight = run->weight, *bias = run->bias;
    float *y = run->y, *mean = run->mean, *rstd = run->rstd;
    const size_t rows = run->rows, cols = run->cols;

    for (size_t i = 0; i < rows; i++) {
        const float *row = x + i * cols;
        const float center = (float)(sum_of(row, cols, false) / (double)cols);
        double off, variance;

        sums_around(row, center, cols, &off, &variance);
        off /= (double)cols;
        variance = variance / (double)cols - off * off;
        if (variance < 0) /* by rounding; a NaN stays */
            variance = 0;
        mean[i] = (float)((double)center + off);
        rstd[i] = (float)(1.0 / sqrt(variance + (double)run->eps));
        layer_norm_row(row, weight, bias, y + i * cols, mean[i], rstd[i], cols);
    }
}

static void rms_norm_row(const float *restrict x, const float *restrict weight, float *restrict y, float rstd,
                         size_t cols)
{
    for (size_t j = 0; j < cols; j++)
        y[j] = x[j] * rstd * weight[j];
}

static void rms_norm(const struct numerics_norm *run)
{
    for (size_t i = 0; i < run->rows; i++) {
        const float *row = (const float *)run->x + i * run->cols;
        const double mean_square = sum_of(row, run->cols, true) / (double)run->cols;

        run->rstd[i] = (float)(1.0 / sqrt(mean_square + (double)run->eps));
        rms_norm_row(row, run->weight, (float *)run->y + i * run->cols, run->rstd[i], run->cols);
    }
}

void ROW(norm)(const struct numerics_norm *run)
{
    if (run->mean == NULL)
        rms_norm(run);
    else
        layer_norm(run);
}

/*
 * Both backwards are one: RMSNorm's is LayerNorm's with a mean of 0, without the term of the mean and without
 * a bias.
 *
 * sum_j g and sum_j g * xhat of one row, with g = dy * weight and xhat = (x - mean) * rstd.
 */
static void sums_of_row(const float *dy, const float *x, const float *weight, float mean, float rstd,
                        size_t cols, double *sum_g, double *sum_gx)
{
    *sum_g = *sum_gx = 0;
    for (size_t begin = 0; begin < cols; begin += RUN) {
        const size_t end = cols - begin < RUN ? cols : begin + RUN;
        vf sg = vf_set(0), sgx = vf_set(0);
        size_t j = begin;

        for (; j + VL <= end; j += VL) {
            const vf g = vf_load(dy + j) * vf_load(weight + j);

            sg += g;
            sgx = vf_fma(g, (vf_load(x + j) - mean) * rstd, sgx);
        }
        if (j < end) {
            const vf g = vf_load_part(dy + j, end - j, 0) * vf_load_part(weight + j, end - j, 0);

            sg += g;
            sgx = vf_fma(g, (vf_load_part(x + j, end - j, mean) - mean) * rstd, sgx);
        }
        *sum_g += vf_sum(sg);
        *sum_gx += vf_sum(sgx);
    }
}

/*
 * Computes the backward of one row. Writes dx, unless that is NULL. Adds the row's part of dweight to
 * run_weight, and its part of dbias to run_bias, unless run_bias is NULL.
 */
static inline __attribute__((always_inline)) void
backward_row(const float *restrict dy, const float *restrict x, const float *restrict weight, float mean,
             float rstd, float mean_g, float mean_gx, float *dx, bool accumulate, float *restrict run_weight,
             float *restrict run_bias, size_t cols)
{
    size_t j = 0;

    for (; j + VL <= cols; j += VL) {
        const vf grad = vf_load(dy + j);
        const vf xhat = (vf_load(x + j) - mean) * rstd;
        const vf d = rstd * (vf_fma(grad, vf_load(weight + j), vf_set(-mean_g)) - xhat * mean_gx);

        vf_store(run_weight + j, vf_fma(grad, xhat, vf_load(run_weight + j)));
        if (run_bias != NULL)
            vf_store(run_bias + j, vf_load(run_bias + j) + grad);
        if (dx != NULL)
            vf_store(dx + j, accumulate ? vf_load(dx + j) + d : d);
    }
    if (j < cols) {
        const size_t n = cols - j;
        const vf grad = vf_load_part(dy + j, n, 0);
        const vf xhat = (vf_load_part(x + j, n, mean) - mean) * rstd;
        const vf d = rstd * (vf_fma(grad, vf_load_part(weight + j, n, 0), vf_set(-mean_g)) - xhat * mean_gx);

        vf_store_part(run_weight + j, vf_fma(grad, xhat, vf_load_part(run_weight + j, n, 0)), n);
        if (run_bias != NULL)
            vf_store_part(run_bias + j, vf_load_part(run_bias + j, n, 0) + grad, n);
        if (dx != NULL)
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

void ROW(norm_backward)(const struct numerics_norm_backward *run, double *dweight, double *dbias, float *work)
{
    const size_t cols = run->cols;
    float *const run_bias = run->mean == NULL ? NULL : work + cols;

    memset(dweight, 0, cols * sizeof *dweight);
    memset(work, 0, (run_bias == NULL ? 1 : 2) * cols * sizeof *work);
    if (run_bias != NULL)
        memset(dbias, 0, cols * sizeof *dbias);
    for (size_t i = 0; i < run->rows; i++) {
        const float *dy = (const float *)run->dy + i * cols, *x = (const float *)run->x + i * cols;
        float *dx = run->dx == NULL ? NULL : (float *)run->dx + i * cols;
        const float mean = run->mean == NULL ? 0 : run->mean[i], rstd = run->rstd[i];
        double sum_g, sum_gx;

        sums_of_row(dy, x, run->weight, mean, rstd, cols, &sum_g, &sum_gx);
        if (run->mean == NULL)
            sum_g = 0;
        /*
         * Both calls do the same. In the first, the compiler knows that no pointer is NULL, so its inlined
         * loop has no branches on them.
         */
        if (dx != NULL && run_bias != NULL)
            backward_row(dy, x, run->weight, mean, rstd, (float)(sum_g / (double)cols),
                         (float)(sum_gx / (double)cols), dx, run->accumulate_dx, work, work + cols, cols);
        else
            backward_row(dy, x, run->weight, mean, rstd, (float)(sum_g / (double)cols),
                         (float)(sum_gx / (double)cols), dx, run->accumulate_dx, work, run_bias, cols);
        if (i % RUN_ROWS != RUN_ROWS - 1 && i + 1 != run->rows)
            continue;
        flush(dweight, work, cols);
        if (run_bias != NULL)
            flush(dbias, run_bias, cols);
    }
}
