/*
 * LayerNorm, Ba et al., 2016, equations 3 and 4, over one row at a time: mu and sigma of its elements.
 * RMSNorm, Zhang and Sennrich, 2019, is the same with mu = 0 and without a bias.
 */
#include "shard_runtime/numerics/ref.h"

#include <math.h>

static double mean_of(const float *row, size_t cols)
{
    double mu = 0;

    for (size_t j = 0; j < cols; j++)
        mu += (double)row[j] / (double)cols;
    return mu;
}

void ref_norm(struct numerics *numerics, struct device_stream *stream, const struct numerics_norm *run)
{
    const float *x = run->x, *weight = run->weight, *bias = run->bias;
    float *y = run->y;

    (void)numerics, (void)stream;
    for (size_t i = 0; i < run->rows; i++, x += run->cols, y += run->cols) {
        const double mu = run->mean == NULL ? 0 : mean_of(x, run->cols);
        double variance = 0, r;

        for (size_t j = 0; j < run->cols; j++)
            variance += ((double)x[j] - mu) * ((double)x[j] - mu) / (double)run->cols;
        r = 1 / sqrt(variance + (double)run->eps);
        for (size_t j = 0; j < run->cols; j++) {
            const double scaled = ((double)x[j] - mu) * r * (double)weight[j];

            y[j] = (float)(bias == NULL ? scaled : scaled + (double)bias[j]);
        }
        if (run->mean != NULL)
            run->mean[i] = (float)mu;
        run->rstd[i] = (float)r;
    }
}

/*
 * With xhat = (x - mu) * r and g = dy * weight, the derivative of the row through mu and sigma is
 *   dx = r * (g - mean_j(g) - xhat * mean_j(g * xhat)).
 * Of RMSNorm, which has no mu, mean_j(g) falls away.
 */
static void norm_dx(const struct numerics_norm_backward *run, size_t i)
{
    const float *dy = (const float *)run->dy + i * run->cols, *x = (const float *)run->x + i * run->cols;
    const float *weight = run->weight;
    const double mu = run->mean == NULL ? 0 : (double)run->mean[i], r = (double)run->rstd[i];
    float *dx = (float *)run->dx + i * run->cols;
    double mean_g = 0, mean_gx = 0;

    for (size_t j = 0; j < run->cols; j++) {
        const double g = (double)dy[j] * (double)weight[j];

        mean_g += run->mean == NULL ? 0 : g / (double)run->cols;
        mean_gx += g * ((double)x[j] - mu) * r / (double)run->cols;
    }
    for (size_t j = 0; j < run->cols; j++) {
        const double g = (double)dy[j] * (double)weight[j];
        const double d = r * (g - mean_g - ((double)x[j] - mu) * r * mean_gx);

        dx[j] = run->accumulate_dx ? (float)((double)dx[j] + d) : (float)d;
    }
}

void ref_norm_backward(struct numerics *numerics, struct device_stream *stream,
                       const struct numerics_norm_backward *run)
{
    const float *dy = run->dy, *x = run->x;
    float *dweight = run->dweight, *dbias = run->dbias;

    (void)numerics, (void)stream;
    for (size_t j = 0; j < run->cols; j++) {
        double w = dweight != NULL && run->accumulate_dweight ? (double)dweight[j] : 0;
        double b = dbias != NULL && run->accumulate_dbias ? (double)dbias[j] : 0;

        for (size_t i = 0; i < run->rows; i++) {
            const double g = (double)dy[i * run->cols + j], mu = run->mean == NULL ? 0 : (double)run->mean[i];

            w += g * ((double)x[i * run->cols + j] - mu) * (double)run->rstd[i];
            b += g;
        }
        if (dweight != NULL)
            dweight[j] = (float)w;
        if (dbias != NULL)
            dbias[j] = (float)b;
    }
    for (size_t i = 0; run->dx != NULL && i < run->rows; i++)
        norm_dx(run, i);
}

void ref_add_norm(struct numerics *numerics, struct device_stream *stream,
                  const struct numerics_add_norm *run)
{
    const struct dropout none = { .p = 0 };
    const struct numerics_norm norm = { .x = run->x,
                                        .weight = run->weight,
                                        .bias = run->bias,
                                        .y = run->y,
                                        .mean = run->mean,
                                        .rstd = run->rstd,
                                        .rows = run->rows,
                                        .cols = run->cols,
                                        .eps = run->eps };
    struct numerics_dropout dropped = { .x = run->b,
                                        .out = run->x,
                                        .rows = run->rows,
                                        .cols = run->cols,
                                        .mask = run->dropout != NULL ? run->dropout : &none,
                                        .accumulate = run->x == run->a };

    ref_dropout(numerics, stream, &dropped);
    if (!dropped.accumulate)
        ref_add(numerics, stream,
                &(struct numerics_add){
                    .a = run->a, .b = run->x, .out = run->x, .n_elems = run->rows * run->cols });
    ref_norm(numerics, stream, &norm);
}
