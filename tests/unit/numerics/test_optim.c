#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/numerics/rows.h"

enum { STEPS = 20 };

/* AdamW in double, the update of the paper with lr scaling the decay. */
static void adamw_in_double(double *p, double g, double *m, double *v, const struct op_rates *h, int step)
{
    *p -= h->lr * h->weight_decay * *p;
    *m = h->beta1 * *m + (1 - h->beta1) * g;
    *v = h->beta2 * *v + (1 - h->beta2) * g * g;
    *p -= h->lr * (*m / (1 - pow(h->beta1, step))) / (sqrt(*v / (1 - pow(h->beta2, step))) + h->eps);
}

static void sgd_in_double(double *p, double g, double *buf, const struct op_rates *h, int step)
{
    g += h->weight_decay * *p;
    *buf = step == 1 ? g : h->momentum * *buf + g;
    *p -= h->lr * *buf;
}

ROWS_TEST(numerics_optim, adamw_follows_the_paper_for_twenty_steps)
{
    const struct op_rates h = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1 };

    for (size_t s = 0; s < n_odd_sizes; s++) {
        const size_t n = odd_sizes[s];
        float *p = random_floats(1, n, 1.0f), *m = row_zeros(n * sizeof *m), *v = row_zeros(n * sizeof *v);
        double *state = row_zeros((3 * n) * sizeof *state);

        for (size_t i = 0; i < n; i++)
            state[i] = (double)p[i];
        for (int step = 1; step <= STEPS; step++) {
            float *g = random_floats((uint64_t)step + 10, n, 0.01f);

            op_adamw(numerics, NULL, p, g, m, v, n, &h, 0.5f, (uint64_t)step);
            for (size_t i = 0; i < n; i++)
                adamw_in_double(&state[i], (double)g[i] * 0.5, &state[n + i], &state[2 * n + i], &h, step);
        }
        /* Each of 20 steps rounds p twice (6e-8 of it) and an update of 1e-3 to a few 1e-7 of that. Had 1 -
         * beta2 been made in float32, v would be 1.3e-5 off. */
        assert_near(row, "param", p, state, n, STEPS * 1.2e-7, 1e-8);
        assert_near(row, "m", m, state + n, n, 1e-6, 1e-9);
        assert_near(row, "v", v, state + 2 * n, n, 2e-6, 1e-14);
    }
}

ROWS_TEST(numerics_optim, sgd_follows_its_definition_for_twenty_steps)
{
    const struct op_rates h = { .lr = 0.1, .momentum = 0.9, .weight_decay = 0.01 };

    for (size_t s = 0; s < n_odd_sizes; s++) {
        for (int with_momentum = 0; with_momentum < 2; with_momentum++) {
            const struct op_rates used = { .lr = h.lr,
                                           .momentum = with_momentum ? h.momentum : 0,
                                           .weight_decay = h.weight_decay };
            const size_t n = odd_sizes[s];
            float *p = random_floats(1, n, 1.0f),
                  *buf = random_floats(2, n, 1.0f); /* step 1 must not read it */
            double *state = row_zeros((2 * n) * sizeof *state);

            for (size_t i = 0; i < n; i++)
                state[i] = (double)p[i];
            for (int step = 1; step <= STEPS; step++) {
                float *g = random_floats((uint64_t)step + 10, n, 0.1f);

                op_sgd(numerics, NULL, p, g, with_momentum ? buf : NULL, n, &used, 2.0f, (uint64_t)step);
                for (size_t i = 0; i < n; i++)
                    sgd_in_double(&state[i], (double)g[i] * 2, &state[n + i], &used, step);
            }
            assert_near(row, "param", p, state, n, STEPS * 1.2e-7, STEPS * 3e-7); /* p passes 0 on its way */
        }
    }
}

/* Parameters, gradients, and the two moments, of which the second is positive. */
static void make_state(float *state[4], size_t n)
{
    for (uint64_t k = 0; k < 4; k++)
        state[k] = random_floats(k, n, 0.1f);
    for (size_t i = 0; i < n; i++)
        state[3][i] = fabsf(state[3][i]);
}

static void assert_same_state(const struct row_case *row, float *state[2][4], size_t n)
{
    for (int k = 0; k < 4; k++)
        cr_assert_arr_eq(state[0][k], state[1][k], n * sizeof(float), "%s %s: state %d", row->name, row->isa,
                         k);
}

FAST_ROWS_TEST(numerics_optim, updates_have_the_reference_rows_bits)
{
    enum { N = 30011 };
    const struct op_rates h = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1 };
    const struct op_rates sgd = { .lr = 0.1, .momentum = 0.9, .weight_decay = 0.01 };
    float *state[2][4];

    for (int fast = 0; fast < 2; fast++) {
        struct numerics *n = fast ? numerics : OP_REF;

        make_state(state[fast], N);
        for (int step = 1; step < 4; step++) {
            op_adamw(n, NULL, state[fast][0], state[fast][1], state[fast][2], state[fast][3], N, &h, 0.7f,
                     (uint64_t)step);
            op_sgd(n, NULL, state[fast][0], state[fast][1], state[fast][2], N, &sgd, 0.7f, (uint64_t)step);
        }
    }
    assert_same_state(row, state, N);
}

/* Each tensor with its own rates, as if it were alone. */
ROWS_TEST(numerics_optim, a_list_is_its_tensors_one_by_one)
{
    enum { N_TENSORS = 5, N = 700 };
    struct op_rates h = { .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .momentum = 0.9 };
    struct numerics_update updates[N_TENSORS];
    struct numerics_span spans[N_TENSORS];
    float *state[2][4];
    double sums[N_TENSORS];

    make_state(state[0], N);
    make_state(state[1], N);
    for (size_t i = 0, at = 0; i < N_TENSORS; at += 40 * i, i++) { /* the first is empty */
        float **one = state[1];

        h.lr = 1e-3 * (double)(i + 1);
        h.weight_decay = i % 2 ? 0.1 : 0;
        updates[i] = op_update(state[0][0] + at, state[0][1] + at, state[0][2] + at, state[0][3] + at, 40 * i,
                               &h, 0.5f + (float)i);
        op_adamw(numerics, NULL, one[0] + at, one[1] + at, one[2] + at, one[3] + at, 40 * i, &h,
                 0.5f + (float)i, 3);
        op_sgd(numerics, NULL, one[0] + at, one[1] + at, one[2] + at, 40 * i, &h, 0.5f + (float)i, 3);
        spans[i] = (struct numerics_span){ .data = one[1] + at, .n_elems = 40 * i };
    }
    OP(adamw, numerics, NULL, .updates = updates, .n_updates = N_TENSORS, .beta1 = h.beta1, .beta2 = h.beta2,
       .eps = h.eps, .step = 3);
    OP(sgd, numerics, NULL, .updates = updates, .n_updates = N_TENSORS, .momentum = h.momentum, .step = 3);
    assert_same_state(row, state, N);
    for (double p = 1; p <= 3; p++) {
        numerics->ops->sum_powers(numerics, NULL, &(struct numerics_sum_powers){ spans, N_TENSORS, p, sums });
        for (size_t i = 0; i < N_TENSORS; i++)
            cr_assert_eq(sums[i], op_sum_powers(numerics, NULL, spans[i].data, spans[i].n_elems, p));
    }
}

ROWS_TEST(numerics_optim, sum_of_squares_is_double_in_any_size)
{
    static const size_t sizes[] = { 0, 1, 3, 15, 16, 17, 65, 1000, 100003 };

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        float *x = random_floats(s + 1, sizes[s], 1e3f);
        double want = 0, got;

        for (size_t i = 0; i < sizes[s]; i++)
            want += (double)x[i] * (double)x[i];
        got = op_sum_powers(numerics, NULL, x, sizes[s], 2);
        cr_assert(fabs(got - want) <= 1e-13 * want, "%zu elements: %.17g for %.17g", sizes[s], got, want);
    }
}
