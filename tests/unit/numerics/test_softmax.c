#include <math.h>
#include <string.h>

#include "tests/unit/numerics/rows.h"

static const struct attention_desc shapes[] = {
    { 1, 1, 1, 4, true },   { 2, 3, 3, 4, false },  { 1, 7, 2, 4, true },   { 2, 16, 1, 4, true },
    { 1, 17, 3, 4, false }, { 2, 64, 2, 4, true },  { 2, 64, 1, 4, false }, { 1, 65, 2, 4, true },
    { 1, 100, 1, 4, true }, { 1, 257, 1, 4, true },
};
static const struct dropout off = { .p = 0 };

static size_t scores_of(const struct attention_desc *d)
{
    return d->batch * d->heads * d->seq * d->seq;
}

static void softmax_in_double(const double *s, double *p, size_t n)
{
    double largest = -INFINITY, sum = 0;

    for (size_t j = 0; j < n; j++)
        largest = fmax(largest, s[j]);
    for (size_t j = 0; j < n; j++)
        sum += p[j] = exp(s[j] - largest);
    for (size_t j = 0; j < n; j++)
        p[j] /= sum;
}

static void check_forward(const struct row_case *row, const struct attention_desc *d, const float *scores,
                          const float *p, const float *dropped, const struct dropout *dropout)
{
    double *s = row_zeros(d->seq * sizeof *s), *want = row_zeros(d->seq * sizeof *want);

    for (size_t i = 0; i < d->batch * d->heads * d->seq; i++) {
        const size_t n = d->causal ? i % d->seq + 1 : d->seq;

        for (size_t j = 0; j < d->seq; j++)
            s[j] = (double)scores[i * d->seq + j];
        softmax_in_double(s, want, n);
        for (size_t j = n; j < d->seq; j++)
            want[j] = 0;
        /* The difference of two scores below 40 rounds at 2e-6 / 2; exp, sum and division add a few 6e-8. */
        assert_near(row, "p", p + i * d->seq, want, d->seq, 2e-6, 2e-38);
        for (size_t j = 0; j < d->seq && dropped != NULL; j++)
            want[j] *= dropout_factor(dropout, i, j);
        if (dropped != NULL)
            assert_near(row, "dropped", dropped + i * d->seq, want, d->seq, 2e-6, 2e-38);
    }
}

ROWS_TEST(numerics_softmax, forward_masks_normalises_and_drops)
{
    const struct dropout on = { .p = 0.25f, .key = 99, .first_row = 1234567 };

    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        const size_t n = scores_of(&shapes[k]);
        float *scores = random_floats(k + 1, n, 5.0f), *p = copy_floats(scores, n),
              *dropped = random_floats(2, n, 1.0f);

        op_softmax(numerics, NULL, p, NULL, &shapes[k], &off);
        check_forward(row, &shapes[k], scores, p, NULL, &off);
        memcpy(p, scores, n * sizeof *p);
        op_softmax(numerics, NULL, p, dropped, &shapes[k], NULL);
        check_forward(row, &shapes[k], scores, p, dropped, &off);
        memcpy(p, scores, n * sizeof *p);
        op_softmax(numerics, NULL, p, dropped, &shapes[k], &on);
        check_forward(row, &shapes[k], scores, p, dropped, &on);
    }
}

ROWS_TEST(numerics_softmax, what_is_masked_is_not_read)
{
    const struct attention_desc d = { .batch = 1, .seq = 33, .heads = 1, .head_dim = 1, .causal = true };
    float *p = random_floats(1, 33 * 33, 1.0f), *dp = random_floats(2, 33 * 33, 1.0f);

    for (size_t i = 0; i < 33; i++)
        for (size_t j = i + 1; j < 33; j++)
            p[i * 33 + j] = dp[i * 33 + j] = NAN;

    op_softmax(numerics, NULL, p, NULL, &d, &off);
    for (size_t i = 0; i < 33 * 33; i++)
        cr_assert(isfinite(p[i]), "element %zu", i);
    if (strcmp(row->name, "ref") != 0) { /* the reference multiplies by p = 0, as the formula says */
        op_softmax_backward(numerics, NULL, p, dp, dp, &d, &off);
        for (size_t i = 0; i < 33 * 33; i++)
            cr_assert(isfinite(dp[i]), "gradient %zu", i);
    }
}

ROWS_TEST(numerics_softmax, scores_far_apart_and_huge_do_not_overflow)
{
    const struct attention_desc d = { .batch = 1, .seq = 4, .heads = 1, .head_dim = 1 };
    float p[16] = { 1e30f, -1e30f, 1e30f, 0, -200,   -100,   -50,    0,
                    3e38f, 0,      0,     0, -3e38f, -3e38f, -3e38f, -3e38f };
    float before[16];

    memcpy(before, p, sizeof p);

    op_softmax(numerics, NULL, p, NULL, &d, &off);

    check_forward(row, &d, before, p, NULL, &off);
}

ROWS_TEST(numerics_softmax, a_nan_score_reaches_its_whole_row)
{
    const struct attention_desc d = { .batch = 1, .seq = 20, .heads = 1, .head_dim = 1 };
    float *p = random_floats(1, 400, 1.0f);

    p[7 * 20 + 3] = NAN;

    op_softmax(numerics, NULL, p, NULL, &d, &off);

    for (size_t i = 0; i < 400; i++)
        cr_assert(isnan(p[i]) == (i / 20 == 7), "element %zu is %g", i, (double)p[i]);
}

/* d/ds_m of sum_j dp_j * factor_j * softmax(s)_j by central differences. */
static double slope(const double *s, const float *dp, const struct dropout *dropout, size_t row, size_t m,
                    size_t n)
{
    const double h = 1e-4;
    double moved[64], p[64], sum = 0; /* n: at most 50 */

    for (int sign = -1; sign <= 1; sign += 2) {
        for (size_t j = 0; j < n; j++)
            moved[j] = s[j] + (j == m ? sign * h : 0);
        softmax_in_double(moved, p, n);
        for (size_t j = 0; j < n; j++)
            sum += sign * (double)dp[j] * dropout_factor(dropout, row, j) * p[j];
    }
    return sum / (2 * h);
}

static void check_backward(const struct row_case *row, const struct attention_desc *d, const float *scores,
                           const float *dp, const float *ds, const struct dropout *dropout)
{
    double *s = row_zeros(d->seq * sizeof *s);

    for (size_t i = 0; i < d->batch * d->heads * d->seq; i++) {
        const size_t n = d->causal ? i % d->seq + 1 : d->seq;

        for (size_t j = 0; j < d->seq; j++)
            s[j] = (double)scores[i * d->seq + j];
        for (size_t j = 0; j < d->seq; j++) {
            const double want = j < n ? slope(s, dp + i * d->seq, dropout, i, j, n) : 0;

            /* p * (dp - mean): both of size 1 */
            assert_near(row, "ds", ds + i * d->seq + j, &want, 1, 2e-6, 5e-7);
        }
    }
}

ROWS_TEST(numerics_softmax, backward_is_the_slope_of_forward)
{
    static const struct attention_desc some[] = {
        { 1, 1, 1, 4, true },   { 2, 3, 3, 4, false }, { 1, 17, 2, 4, true },
        { 1, 33, 1, 4, false }, { 1, 50, 1, 4, true },
    };
    const struct dropout on = { .p = 0.25f, .key = 99, .first_row = 1234567 };

    for (size_t k = 0; k < sizeof some / sizeof *some; k++) {
        for (int with = 0; with < 2; with++) {
            const struct dropout *dropout = with ? &on : &off;
            const size_t n = scores_of(&some[k]);
            float *scores = random_floats(k + 1, n, 2.0f), *p = copy_floats(scores, n);
            float *dp = random_floats(k + 7, n, 1.0f), *ds = random_floats(3, n, 1.0f),
                  *dropped = copy_floats(ds, n);

            op_softmax(numerics, NULL, p, dropped, &some[k], dropout);
            op_softmax_backward(numerics, NULL, p, dp, ds, &some[k], dropout);
            check_backward(row, &some[k], scores, dp, ds, dropout);
            op_softmax_backward(numerics, NULL, p, dp, dp, &some[k], dropout);
            cr_assert_arr_eq(dp, ds, n * sizeof *ds, "in place differs");
        }
    }
}
