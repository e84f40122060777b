/*
 * Softmax of attention scores, row by row: with m the largest of the n keys that a query sees,
 * p_j = exp(s_j - m) / sum_k exp(s_k - m). Keys after a causal query get 0 and are never read.
 */
#include "shard_runtime/numerics/isa/drop.h"
#include "shard_runtime/numerics/isa/kernels.h"
#include "shard_runtime/numerics/isa/vec_math.h"

static float largest_of(const float *s, size_t n)
{
    vf largest = vf_set(-INFINITY);
    size_t j = 0;

    for (; j + VL <= n; j += VL)
        largest = vf_max(largest, vf_load(s + j));
    if (j < n)
        largest = vf_max(largest, vf_load_part(s + j, n - j, -INFINITY));
    return vf_largest(largest);
}

/* Returns log sum_j exp(s_j). */
static float softmax_row(float *s, size_t n)
{
    const float largest = largest_of(s, n);
    vf sum = vf_set(0);
    double total;
    float scale;
    size_t j = 0;

    for (; j + VL <= n; j += VL) {
        const vf e = vf_exp(vf_load(s + j) - largest);

        vf_store(s + j, e);
        sum += e;
    }
    if (j < n) {
        const vf e = vf_exp(vf_load_part(s + j, n - j, -INFINITY) - largest);

        vf_store_part(s + j, e, n - j);
        sum += e;
    }
    total = vf_sum(sum);
    scale = (float)(1.0 / total);
    for (j = 0; j + VL <= n; j += VL)
        vf_store(s + j, vf_load(s + j) * scale);
    if (j < n)
        vf_store_part(s + j, vf_load_part(s + j, n - j, 0) * scale, n - j);
    return (float)((double)largest + log(total));
}

static void set_zero(float *x, size_t n)
{
    memset(x, 0, n * sizeof *x);
}

void ROW(softmax)(float *scores, float *dropped, size_t begin, size_t end, size_t seq, bool causal,
                  const struct dropout *dropout)
{
    for (size_t i = begin; i < end; i++) {
        const size_t n = causal ? i % seq + 1 : seq;
        float *p = scores + i * seq;

        (void)softmax_row(p, n);
        set_zero(p + n, seq - n);
        if (dropped == NULL)
            continue;
        if (dropout_is_on(dropout))
            drop_row(p, dropped + i * seq, n, dropout, dropout->first_row + i, false);
        else
            memcpy(dropped + i * seq, p, n * sizeof *p);
        set_zero(dropped + i * seq + n, seq - n);
    }
}

float ROW(attention_softmax)(float *s, size_t n, size_t cols)
{
    const float lse = softmax_row(s, n);

    set_zero(s + n, cols - n);
    return lse;
}

void ROW(attention_again)(float *s, float lse, size_t n, size_t cols)
{
    size_t j = 0;

    for (; j + VL <= n; j += VL)
        vf_store(s + j, vf_exp(vf_load(s + j) - lse));
    if (j < n)
        vf_store_part(s + j, vf_exp(vf_load_part(s + j, n - j, 0) - lse), n - j);
    set_zero(s + n, cols - n);
}

static double dot(const float *a, const float *b, size_t n)
{
    vf sum = vf_set(0);
    size_t j = 0;

    for (; j + VL <= n; j += VL)
        sum = vf_fma(vf_load(a + j), vf_load(b + j), sum);
    if (j < n)
        sum = vf_fma(vf_load_part(a + j, n - j, 0), vf_load_part(b + j, n - j, 0), sum);
    return vf_sum(sum);
}

void ROW(softmax_backward)(const float *p, const float *dp, float *ds, size_t begin, size_t end, size_t seq,
                           bool causal, const struct dropout *dropout)
{
    for (size_t i = begin; i < end; i++) {
        const size_t n = causal ? i % seq + 1 : seq;
        const float *row = p + i * seq, *grad = dp + i * seq;
        float *out = ds + i * seq;
        float mean;
        size_t j = 0;

        if (dropout_is_on(dropout)) {
            drop_row(grad, out, n, dropout, dropout->first_row + i, false);
            grad = out;
        }
        mean = (float)dot(row, grad, n);
        for (; j + VL <= n; j += VL)
            vf_store(out + j, vf_load(row + j) * (vf_load(grad + j) - mean));
        if (j < n)
            vf_store_part(out + j,
                          vf_load_part(row + j, n - j, 0) * (vf_load_part(grad + j, n - j, 0) - mean), n - j);
        set_zero(out + n, seq - n);
    }
}
