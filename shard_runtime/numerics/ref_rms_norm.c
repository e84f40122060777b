/*
 * Zhang and Sennrich, "Root Mean Square Layer Normalization", NeurIPS 2019: what ref_layer_norm() and its backward do
 * without a mean.
 */
#include "shard_runtime/numerics/ref.h"

#include <math.h>

void ref_rms_norm(const float *x, const float *weight, float *y, float *rstd, size_t rows, size_t cols,
                  float eps)
{
    for (size_t i = 0; i < rows; i++) {
        const float *row = x + i * cols;
        double squares = 0, r;

        for (size_t j = 0; j < cols; j++)
            squares += (double)row[j] * (double)row[j] / (double)cols;
        r = 1 / sqrt(squares + (double)eps);
        for (size_t j = 0; j < cols; j++)
            y[i * cols + j] = (float)((double)row[j] * r * (double)weight[j]);
        rstd[i] = (float)r;
    }
}

/* With xhat = x * r and g = dy * weight, the derivative of the row through r is dx = r * (g - xhat * mean_j(g * xhat)). */
static void rms_norm_dx(const float *dy, const float *x, const float *weight, double r, float *dx,
                        bool accumulate, size_t cols)
{
    double mean_gx = 0;

    for (size_t j = 0; j < cols; j++)
        mean_gx += (double)dy[j] * (double)weight[j] * (double)x[j] * r / (double)cols;
    for (size_t j = 0; j < cols; j++) {
        const double d = r * ((double)dy[j] * (double)weight[j] - (double)x[j] * r * mean_gx);

        dx[j] = accumulate ? (float)((double)dx[j] + d) : (float)d;
    }
}

void ref_rms_norm_backward(const float *dy, const float *x, const float *weight, const float *rstd, float *dx,
                           bool accumulate_dx, float *dweight, bool accumulate_dweight, size_t rows,
                           size_t cols)
{
    for (size_t j = 0; j < cols; j++) {
        double w = accumulate_dweight ? (double)dweight[j] : 0;

        for (size_t i = 0; i < rows; i++)
            w += (double)dy[i * cols + j] * (double)x[i * cols + j] * (double)rstd[i];
        dweight[j] = (float)w;
    }
    for (size_t i = 0; i < rows; i++)
        rms_norm_dx(dy + i * cols, x + i * cols, weight, (double)rstd[i], dx + i * cols, accumulate_dx, cols);
}
