#include "shard_runtime/numerics/ref.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "shard_runtime/core/rng.h"
#include "shard_runtime/numerics/dropout.h"

void ref_column_sum(struct numerics *numerics, struct device_stream *stream, const float *x, float *out,
                    size_t rows, size_t cols, bool accumulate)
{
    (void)numerics;
    (void)stream;
    for (size_t j = 0; j < cols; j++) {
        double sum = accumulate ? (double)out[j] : 0;

        for (size_t i = 0; i < rows; i++)
            sum += (double)x[i * cols + j];
        out[j] = (float)sum;
    }
}

void ref_add(struct numerics *numerics, struct device_stream *stream, const float *a, const float *b,
             float *out, size_t n_elems)
{
    (void)numerics;
    (void)stream;
    for (size_t i = 0; i < n_elems; i++)
        out[i] = a[i] + b[i];
}

/* Element `e` of row `row` after dropout. */
static float drop(const struct dropout *dropout, uint64_t row, uint64_t e, float x)
{
    uint32_t words[4];

    if (!dropout_is_on(dropout))
        return x;
    rng_philox(dropout->key, row, e / 4, words);
    return words[e % 4] < dropout_keep_below(dropout) ? x * dropout_scale(dropout) : 0.0f;
}

void ref_dropout(struct numerics *numerics, struct device_stream *stream, const float *x, float *out,
                 size_t rows, size_t cols, const struct dropout *dropout, bool accumulate)
{
    (void)numerics;
    (void)stream;
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            const float y = drop(dropout, dropout->first_row + i, j, x[i * cols + j]);

            out[i * cols + j] = accumulate ? out[i * cols + j] + y : y;
        }
    }
}

/* Ba et al., 2016, equations 3 and 4, over one row: mu and sigma of its `cols` elements. */
void ref_layer_norm(struct numerics *numerics, struct device_stream *stream, const float *x,
                    const float *weight, const float *bias, float *y, float *mean, float *rstd, size_t rows,
                    size_t cols, float eps)
{
    (void)numerics;
    (void)stream;
    if (mean == NULL) {
        ref_rms_norm(x, weight, y, rstd, rows, cols, eps);
        return;
    }
    for (size_t i = 0; i < rows; i++) {
        const float *row = x + i * cols;
        double mu = 0, variance = 0, r;

        for (size_t j = 0; j < cols; j++)
            mu += (double)row[j] / (double)cols;
        for (size_t j = 0; j < cols; j++)
            variance += ((double)row[j] - mu) * ((double)row[j] - mu) / (double)cols;
        r = 1 / sqrt(variance + (double)eps);
        for (size_t j = 0; j < cols; j++)
            y[i * cols + j] = (float)(((double)row[j] - mu) * r * (double)weight[j] + (double)bias[j]);
        mean[i] = (float)mu;
        rstd[i] = (float)r;
    }
}

/*
 * With xhat = (x - mu) * r and g = dy * weight, the derivative of the row through mu and sigma is
 *   dx = r * (g - mean_j(g) - xhat * mean_j(g * xhat)).
 */
static void layer_norm_dx(const float *dy, const float *x, const float *weight, double mu, double r,
                          float *dx, bool accumulate, size_t cols)
{
    double mean_g = 0, mean_gx = 0;

    for (size_t j = 0; j < cols; j++) {
        const double g = (double)dy[j] * (double)weight[j];

        mean_g += g / (double)cols;
        mean_gx += g * ((double)x[j] - mu) * r / (double)cols;
    }
    for (size_t j = 0; j < cols; j++) {
        const double g = (double)dy[j] * (double)weight[j];
        const double d = r * (g - mean_g - ((double)x[j] - mu) * r * mean_gx);

        dx[j] = accumulate ? (float)((double)dx[j] + d) : (float)d;
    }
}

void ref_layer_norm_backward(struct numerics *numerics, struct device_stream *stream, const float *dy,
                             const float *x, const float *weight, const float *mean, const float *rstd,
                             float *dx, bool accumulate_dx, float *dweight, float *dbias,
                             bool accumulate_params, void *scratch, size_t rows, size_t cols)
{
    (void)numerics;
    (void)stream;
    (void)scratch;
    if (mean == NULL) {
        ref_rms_norm_backward(dy, x, weight, rstd, dx, accumulate_dx, dweight, accumulate_params, rows, cols);
        return;
    }
    for (size_t j = 0; j < cols; j++) {
        double w = accumulate_params ? (double)dweight[j] : 0;
        double b = accumulate_params ? (double)dbias[j] : 0;

        for (size_t i = 0; i < rows; i++) {
            const double g = (double)dy[i * cols + j];

            w += g * ((double)x[i * cols + j] - (double)mean[i]) * (double)rstd[i];
            b += g;
        }
        dweight[j] = (float)w;
        dbias[j] = (float)b;
    }
    for (size_t i = 0; i < rows; i++)
        layer_norm_dx(dy + i * cols, x + i * cols, weight, (double)mean[i], (double)rstd[i], dx + i * cols,
                      accumulate_dx, cols);
}

size_t ref_layer_norm_scratch(struct numerics *numerics, size_t rows, size_t cols)
{
    (void)numerics;
    (void)rows;
    (void)cols;
    return 0;
}

/* Phi, the cumulative distribution of the standard normal. erfc keeps its lower tail exact. */
static double normal_cdf(double x)
{
    return 0.5 * erfc(-x * M_SQRT1_2);
}

void ref_gelu(struct numerics *numerics, struct device_stream *stream, const float *x, float *y,
              size_t n_elems)
{
    (void)numerics;
    (void)stream;
    for (size_t i = 0; i < n_elems; i++)
        y[i] = (float)((double)x[i] * normal_cdf((double)x[i]));
}

/* d/dx x Phi(x) = Phi(x) + x phi(x), phi being the normal density. */
void ref_gelu_backward(struct numerics *numerics, struct device_stream *stream, const float *dy,
                       const float *x, float *dx, size_t n_elems)
{
    (void)numerics;
    (void)stream;
    for (size_t i = 0; i < n_elems; i++) {
        const double u = (double)x[i];
        const double density = exp(-0.5 * u * u) * 0.5 * M_SQRT1_2 * M_2_SQRTPI;

        dx[i] = (float)((double)dy[i] * (normal_cdf(u) + u * density));
    }
}

/* x/2 (1 + tanh(u)), the approximation of the same paper. As the logistic function of 2 u its lower tail is exact. */
static double tanh_cdf(double x)
{
    return 1 / (1 + exp(-2 * M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x)));
}

void ref_gelu_tanh(struct numerics *numerics, struct device_stream *stream, const float *x, float *y,
                   size_t n_elems)
{
    (void)numerics;
    (void)stream;
    for (size_t i = 0; i < n_elems; i++)
        y[i] = (float)((double)x[i] * tanh_cdf((double)x[i]));
}

void ref_gelu_tanh_backward(struct numerics *numerics, struct device_stream *stream, const float *dy,
                            const float *x, float *dx, size_t n_elems)
{
    (void)numerics;
    (void)stream;
    for (size_t i = 0; i < n_elems; i++) {
        const double v = (double)x[i], s = tanh_cdf(v);
        const double slope = 2 * M_2_SQRTPI * M_SQRT1_2 * (1 + 3 * 0.044715 * v * v);

        dx[i] = (float)((double)dy[i] * (s + v * s * (1 - s) * slope));
    }
}

void ref_softmax(struct numerics *numerics, struct device_stream *stream, float *scores, float *dropped,
                 const struct attention_desc *desc, const struct dropout *dropout)
{
    const size_t rows = desc->batch * desc->heads * desc->seq, cols = desc->seq;

    (void)numerics;
    (void)stream;
    assert(dropped != NULL || !dropout_is_on(dropout));
    for (size_t i = 0; i < rows; i++) {
        const size_t n = desc->causal ? i % desc->seq + 1 : cols; /* keys that query i may see */
        float *p = scores + i * cols;
        double largest = -INFINITY, sum = 0;

        for (size_t j = 0; j < n; j++)
            largest = fmax(largest, (double)p[j]);
        for (size_t j = 0; j < n; j++)
            sum += exp((double)p[j] - largest);
        for (size_t j = 0; j < cols; j++)
            p[j] = j < n ? (float)(exp((double)p[j] - largest) / sum) : 0.0f;
        for (size_t j = 0; dropped != NULL && j < cols; j++)
            dropped[i * cols + j] = drop(dropout, dropout == NULL ? 0 : dropout->first_row + i, j, p[j]);
    }
}

void ref_softmax_backward(struct numerics *numerics, struct device_stream *stream, const float *p,
                          const float *dp, float *ds, const struct attention_desc *desc,
                          const struct dropout *dropout)
{
    const size_t rows = desc->batch * desc->heads * desc->seq, cols = desc->seq;

    (void)numerics;
    (void)stream;
    for (size_t i = 0; i < rows; i++) {
        const uint64_t row = dropout == NULL ? 0 : dropout->first_row + i;
        double sum = 0;

        for (size_t j = 0; j < cols; j++)
            sum += (double)p[i * cols + j] * (double)drop(dropout, row, j, dp[i * cols + j]);
        for (size_t j = 0; j < cols; j++)
            ds[i * cols + j] =
                (float)((double)p[i * cols + j] * ((double)drop(dropout, row, j, dp[i * cols + j]) - sum));
    }
}

void ref_embedding(struct numerics *numerics, struct device_stream *stream, const int32_t *tokens,
                   const float *table, const float *positions, float *out, size_t rows, size_t cols,
                   size_t seq)
{
    (void)numerics;
    (void)stream;
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            const float value = table[(size_t)tokens[i] * cols + j];

            out[i * cols + j] = positions == NULL ? value : value + positions[i % seq * cols + j];
        }
    }
}

void ref_embedding_backward(struct numerics *numerics, struct device_stream *stream, const int32_t *tokens,
                            const float *dout, float *dtable, float *dpositions, size_t rows, size_t cols,
                            size_t seq)
{
    (void)numerics;
    (void)stream;
    for (size_t i = 0; dtable != NULL && i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            dtable[(size_t)tokens[i] * cols + j] += dout[i * cols + j];
    for (size_t t = 0; dpositions != NULL && t < seq; t++) {
        for (size_t j = 0; j < cols; j++) {
            double sum = (double)dpositions[t * cols + j];

            for (size_t i = t; i < rows; i += seq)
                sum += (double)dout[i * cols + j];
            dpositions[t * cols + j] = (float)sum;
        }
    }
}

enum { IGNORED = -100 }; /* torch.nn.functional.cross_entropy's ignore_index */

/* The row's loss; dlogits may be NULL or logits itself. */
static double cross_entropy_row(const float *logits, int32_t target, float *dlogits, size_t vocab,
                                double scale)
{
    double largest = -INFINITY, sum = 0, loss;

    for (size_t j = 0; j < vocab; j++)
        largest = fmax(largest, (double)logits[j]);
    for (size_t j = 0; j < vocab; j++)
        sum += exp((double)logits[j] - largest);
    /* cppcheck-suppress invalidFunctionArg ; vocab is at least 1 */
    loss = log(sum) - ((double)logits[target] - largest);
    for (size_t j = 0; dlogits != NULL && j < vocab; j++)
        dlogits[j] = (float)((exp((double)logits[j] - largest) / sum - (j == (size_t)target)) * scale);
    return loss;
}

void ref_cross_entropy(struct numerics *numerics, struct device_stream *stream, const float *logits,
                       const int32_t *targets, float *dlogits, size_t rows, size_t vocab, float scale,
                       double *loss_sum, uint64_t *n_targets)
{
    (void)numerics;
    (void)stream;
    for (size_t i = 0; i < rows; i++) {
        float *out = dlogits == NULL ? NULL : dlogits + i * vocab;

        if (targets[i] == IGNORED) {
            if (out != NULL)
                memset(out, 0, vocab * sizeof *out);
            continue;
        }
        assert(targets[i] >= 0 && (size_t)targets[i] < vocab);
        *loss_sum += cross_entropy_row(logits + i * vocab, targets[i], out, vocab, (double)scale);
        (*n_targets)++;
    }
}
