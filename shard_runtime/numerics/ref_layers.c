#include "shard_runtime/numerics/ref.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "shard_runtime/core/rng.h"
#include "shard_runtime/numerics/attention_desc.h"
#include "shard_runtime/numerics/dropout.h"

void ref_column_sum(struct numerics *numerics, struct device_stream *stream,
                    const struct numerics_column_sum *run)
{
    const float *x = run->x;
    float *out = run->out;

    (void)numerics, (void)stream;
    for (size_t j = 0; j < run->cols; j++) {
        double sum = run->accumulate ? (double)out[j] : 0;

        for (size_t i = 0; i < run->rows; i++)
            sum += (double)x[i * run->cols + j];
        out[j] = (float)sum;
    }
}

void ref_add(struct numerics *numerics, struct device_stream *stream, const struct numerics_add *run)
{
    const float *a = run->a, *b = run->b;
    float *out = run->out;

    (void)numerics, (void)stream;
    for (size_t i = 0; i < run->n_elems; i++)
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

void ref_dropout(struct numerics *numerics, struct device_stream *stream, const struct numerics_dropout *run)
{
    (void)numerics, (void)stream;
    for (size_t i = 0; i < run->rows; i++)
        for (size_t j = 0; j < run->cols; j++) {
            const size_t at = i * run->cols + j;
            const float y = drop(run->mask, run->mask->first_row + i, j, run->x[at]);

            run->out[at] = run->accumulate ? run->out[at] + y : y;
        }
}

/*
 * Phi, the cumulative distribution function of the standard normal distribution. erfc keeps its lower tail
 * exact.
 */
static double normal_cdf(double x)
{
    return 0.5 * erfc(-x * M_SQRT1_2);
}

/*
 * The approximation of Phi in the same paper, (1 + tanh(u)) / 2, computed as the logistic function of 2 u. So
 * its lower tail is exact.
 */
static double tanh_cdf(double x)
{
    return 1 / (1 + exp(-2 * M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x)));
}

static double gelu(double x)
{
    return x * normal_cdf(x);
}

/* d/dx x Phi(x) = Phi(x) + x phi(x), phi being the normal density. */
static double gelu_slope(double x)
{
    const double density = exp(-0.5 * x * x) * 0.5 * M_SQRT1_2 * M_2_SQRTPI;

    return normal_cdf(x) + x * density;
}

static double gelu_tanh(double x)
{
    return x * tanh_cdf(x);
}

static double gelu_tanh_slope(double x)
{
    const double s = tanh_cdf(x);
    const double slope = 2 * M_2_SQRTPI * M_SQRT1_2 * (1 + 3 * 0.044715 * x * x);

    return s + x * s * (1 - s) * slope;
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

/* s + x s (1 - s), s being the logistic function. */
static double silu_slope(double x)
{
    const double s = 1 / (1 + exp(-x));

    return s + x * s * (1 - s);
}

static const struct {
    double (*of)(double x);
    double (*slope)(double x);
} functions[NUMERICS_N_FUNCTIONS] = {
    [NUMERICS_GELU] = { gelu, gelu_slope },
    [NUMERICS_GELU_TANH] = { gelu_tanh, gelu_tanh_slope },
    [NUMERICS_SILU] = { silu, silu_slope },
};

void ref_activation(struct numerics *numerics, struct device_stream *stream,
                    const struct numerics_activation *run)
{
    const float *x = run->x;
    float *y = run->y;

    (void)numerics, (void)stream;
    for (size_t i = 0; i < run->n_elems; i++)
        y[i] = (float)functions[run->function].of((double)x[i]);
}

void ref_activation_backward(struct numerics *numerics, struct device_stream *stream,
                             const struct numerics_activation_backward *run)
{
    const float *dy = run->dy, *x = run->x;
    float *dx = run->dx;

    (void)numerics, (void)stream;
    for (size_t i = 0; i < run->n_elems; i++)
        dx[i] = (float)((double)dy[i] * functions[run->function].slope((double)x[i]));
}

void ref_softmax(struct numerics *numerics, struct device_stream *stream, const struct numerics_softmax *run)
{
    const struct attention_desc *d = run->shape;
    const size_t rows = d->batch * d->heads * d->seq, cols = d->seq;

    (void)numerics, (void)stream;
    assert(run->dropped != NULL || !dropout_is_on(run->dropout));
    for (size_t i = 0; i < rows; i++) {
        const size_t n = attention_keys(d, i % d->seq);
        const uint64_t row = run->dropout == NULL ? 0 : run->dropout->first_row + i;
        float *p = run->scores + i * cols;
        double largest = -INFINITY, sum = 0;

        for (size_t j = 0; j < n; j++)
            largest = fmax(largest, (double)p[j]);
        for (size_t j = 0; j < n; j++)
            sum += exp((double)p[j] - largest);
        for (size_t j = 0; j < cols; j++)
            p[j] = j < n ? (float)(exp((double)p[j] - largest) / sum) : 0.0f;
        for (size_t j = 0; run->dropped != NULL && j < cols; j++)
            run->dropped[i * cols + j] = drop(run->dropout, row, j, p[j]);
    }
}

void ref_softmax_backward(struct numerics *numerics, struct device_stream *stream,
                          const struct numerics_softmax_backward *run)
{
    const struct attention_desc *d = run->shape;
    const size_t rows = d->batch * d->heads * d->seq, cols = d->seq;

    (void)numerics, (void)stream;
    for (size_t i = 0; i < rows; i++) {
        const uint64_t row = run->dropout == NULL ? 0 : run->dropout->first_row + i;
        const float *p = (const float *)run->p + i * cols, *dp = run->dp + i * cols;
        float *ds = (float *)run->ds + i * cols;
        double sum = 0;

        for (size_t j = 0; j < cols; j++)
            sum += (double)p[j] * (double)drop(run->dropout, row, j, dp[j]);
        for (size_t j = 0; j < cols; j++)
            ds[j] = (float)((double)p[j] * ((double)drop(run->dropout, row, j, dp[j]) - sum));
    }
}

void ref_embedding(struct numerics *numerics, struct device_stream *stream,
                   const struct numerics_embedding *run)
{
    const size_t cols = run->cols;

    (void)numerics, (void)stream;
    for (size_t i = 0; i < run->rows; i++)
        for (size_t j = 0; j < cols; j++) {
            const float value = run->table[(size_t)run->tokens[i] * cols + j];

            run->out[i * cols + j] =
                run->positions == NULL ? value : value + run->positions[i % run->seq * cols + j];
        }
}

void ref_embedding_backward(struct numerics *numerics, struct device_stream *stream,
                            const struct numerics_embedding_backward *run)
{
    const size_t cols = run->cols;

    (void)numerics, (void)stream;
    for (size_t i = 0; run->dtable != NULL && i < run->rows; i++)
        for (size_t j = 0; j < cols; j++)
            run->dtable[(size_t)run->tokens[i] * cols + j] += run->dout[i * cols + j];
    for (size_t t = 0; run->dpositions != NULL && t < run->seq; t++) {
        for (size_t j = 0; j < cols; j++) {
            double sum = (double)run->dpositions[t * cols + j];

            for (size_t i = t; i < run->rows; i += run->seq)
                sum += (double)run->dout[i * cols + j];
            run->dpositions[t * cols + j] = (float)sum;
        }
    }
}

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

void ref_cross_entropy(struct numerics *numerics, struct device_stream *stream,
                       const struct numerics_cross_entropy *run)
{
    (void)numerics, (void)stream;
    for (size_t i = 0; i < run->rows; i++) {
        const float *logits = (const float *)run->logits + i * run->row_stride;
        float *out = run->dlogits == NULL ? NULL : (float *)run->dlogits + i * run->row_stride;

        if (run->targets[i] == NUMERICS_IGNORED_TARGET) {
            if (out != NULL)
                memset(out, 0, run->vocab * sizeof *out);
            continue;
        }
        assert(run->targets[i] >= 0 && (size_t)run->targets[i] < run->vocab);
        *run->loss_sum += cross_entropy_row(logits, run->targets[i], out, run->vocab, (double)run->scale);
        (*run->n_targets)++;
    }
}
