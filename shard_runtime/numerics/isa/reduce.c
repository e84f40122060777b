/*
 * Sums, in double. A column sum first adds short runs of rows in float32. A sum of powers adds products that
 * are exact in double. The order of a sum depends on neither the range nor the thread.
 */
#include "shard_runtime/numerics/isa/kernels.h"

void ROW(add)(const float *a, const float *b, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = a[i] + b[i];
}

enum { RUN_ROWS = 8, BLOCK_COLS = 512 };

/* total[j] += eight rows of x, added as a tree of float32 pairs. */
static void add_eight_rows(const float *restrict x, size_t stride, size_t cols, double *restrict total)
{
    const float *x1 = x + stride, *x2 = x + 2 * stride, *x3 = x + 3 * stride, *x4 = x + 4 * stride;
    const float *x5 = x + 5 * stride, *x6 = x + 6 * stride, *x7 = x + 7 * stride;

    for (size_t j = 0; j < cols; j++)
        total[j] += (double)(((x[j] + x1[j]) + (x2[j] + x3[j])) + ((x4[j] + x5[j]) + (x6[j] + x7[j])));
}

static void add_one_row(const float *restrict x, size_t cols, double *restrict total)
{
    for (size_t j = 0; j < cols; j++)
        total[j] += (double)x[j];
}

void ROW(column_sum)(const float *x, size_t stride, float *out, size_t rows, size_t cols, bool accumulate)
{
    for (size_t begin = 0; begin < cols; begin += BLOCK_COLS) {
        const size_t n = cols - begin < BLOCK_COLS ? cols - begin : BLOCK_COLS;
        double total[BLOCK_COLS];
        size_t i;

        for (size_t j = 0; j < n; j++)
            total[j] = accumulate ? (double)out[begin + j] : 0;
        for (i = 0; i + RUN_ROWS <= rows; i += RUN_ROWS)
            add_eight_rows(x + i * stride + begin, stride, n, total);
        for (; i < rows; i++)
            add_one_row(x + i * stride + begin, n, total);
        for (size_t j = 0; j < n; j++)
            out[begin + j] = (float)total[j];
    }
}

/* Sixteen sums side by side, whatever the width of the registers: the bits are the same in every set. */
double ROW(sum_squares)(const float *x, size_t n)
{
    enum { LANES = 16 };
    double lanes[LANES] = { 0 }, sum = 0;
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (size_t lane = 0; lane < LANES; lane++)
            lanes[lane] += (double)x[i + lane] * (double)x[i + lane];
    for (; i < n; i++)
        lanes[i % LANES] += (double)x[i] * (double)x[i];
    for (size_t lane = 0; lane < LANES; lane++)
        sum += lanes[lane];
    return sum;
}
