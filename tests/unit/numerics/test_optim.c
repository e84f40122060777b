#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/numerics/rows.h"

enum { STEPS = 20 };

/* AdamW in double, the update of the paper with lr scaling the decay. */
static void adamw_in_double(double *p, double g, double *m, double *v, const struct adamw *h, int step)
{
    *p -= h->lr * h->weight_decay * *p;
    *m = h->beta1 * *m + (1 - h->beta1) * g;
    *v = h->beta2 * *v + (1 - h->beta2) * g * g;
    *p -= h->lr * (*m / (1 - pow(h->beta1, step))) / (sqrt(*v / (1 - pow(h->beta2, step))) + h->eps);
}

static void sgd_in_double(double *p, double g, double *buf, const struct sgd *h, int step)
{
    g += h->weight_decay * *p;
    *buf = step == 1 ? g : h->momentum * *buf + g;
    *p -= h->lr * *buf;
}

ROWS_TEST(numerics_optim, adamw_follows_the_paper_for_twenty_steps)
{
    const struct adamw h = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1 };
    struct numerics numerics;

    row_open(&numerics, row);
    for (size_t s = 0; s < n_odd_sizes; s++) {
        const size_t n = odd_sizes[s];
        float *p = random_floats(1, n, 1.0f), *m = calloc(n, sizeof *m), *v = calloc(n, sizeof *v);
        double *state = calloc(3 * n, sizeof *state);

        for (size_t i = 0; i < n; i++)
            state[i] = (double)p[i];
        for (int step = 1; step <= STEPS; step++) {
            float *g = random_floats((uint64_t)step + 10, n, 0.01f);

            numerics.ops->adamw(&numerics, NULL, p, g, m, v, n, &h, 0.5f, (uint64_t)step);
            for (size_t i = 0; i < n; i++)
                adamw_in_double(&state[i], (double)g[i] * 0.5, &state[n + i], &state[2 * n + i], &h, step);
            free(g);
        }
        /* Each of 20 steps rounds p twice (6e-8 of it) and an update of 1e-3 to a few 1e-7 of that. Had 1 -
         * beta2 been made in float32, v would be 1.3e-5 off. */
        assert_near(row, "param", p, state, n, STEPS * 1.2e-7, 1e-8);
        assert_near(row, "m", m, state + n, n, 1e-6, 1e-9);
        assert_near(row, "v", v, state + 2 * n, n, 2e-6, 1e-14);
        free(p);
        free(m);
        free(v);
        free(state);
    }
    numerics_close(&numerics);
}

ROWS_TEST(numerics_optim, sgd_follows_its_definition_for_twenty_steps)
{
    const struct sgd h = { .lr = 0.1, .momentum = 0.9, .weight_decay = 0.01 };
    struct numerics numerics;

    row_open(&numerics, row);
    for (size_t s = 0; s < n_odd_sizes; s++) {
        for (int with_momentum = 0; with_momentum < 2; with_momentum++) {
            const struct sgd used = { h.lr, with_momentum ? h.momentum : 0, h.weight_decay };
            const size_t n = odd_sizes[s];
            float *p = random_floats(1, n, 1.0f),
                  *buf = random_floats(2, n, 1.0f); /* step 1 must not read it */
            double *state = calloc(2 * n, sizeof *state);

            for (size_t i = 0; i < n; i++)
                state[i] = (double)p[i];
            for (int step = 1; step <= STEPS; step++) {
                float *g = random_floats((uint64_t)step + 10, n, 0.1f);

                numerics.ops->sgd(&numerics, NULL, p, g, with_momentum ? buf : NULL, n, &used, 2.0f,
                                  (uint64_t)step);
                for (size_t i = 0; i < n; i++)
                    sgd_in_double(&state[i], (double)g[i] * 2, &state[n + i], &used, step);
                free(g);
            }
            assert_near(row, "param", p, state, n, STEPS * 1.2e-7, STEPS * 3e-7); /* p passes 0 on its way */
            free(p);
            free(buf);
            free(state);
        }
    }
    numerics_close(&numerics);
}

FAST_ROWS_TEST(numerics_optim, updates_have_the_reference_rows_bits)
{
    enum { N = 30011 };
    const struct adamw h = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1 };
    const struct sgd sgd = { .lr = 0.1, .momentum = 0.9, .weight_decay = 0.01 };
    const struct row_case reference = { "ref", "", 1 };
    float *state[2][4];
    struct numerics numerics;

    for (int fast = 0; fast < 2; fast++) {
        row_open(&numerics, fast ? row : &reference);
        for (int k = 0; k < 4; k++)
            state[fast][k] = random_floats((uint64_t)k, N, 0.1f);
        for (size_t i = 0; i < N; i++)
            state[fast][3][i] = fabsf(state[fast][3][i]);
        for (int step = 1; step < 4; step++) {
            numerics.ops->adamw(&numerics, NULL, state[fast][0], state[fast][1], state[fast][2],
                                state[fast][3], N, &h, 0.7f, (uint64_t)step);
            numerics.ops->sgd(&numerics, NULL, state[fast][0], state[fast][1], state[fast][2], N, &sgd, 0.7f,
                              (uint64_t)step);
        }
        numerics_close(&numerics);
    }
    for (int k = 0; k < 4; k++)
        cr_assert_arr_eq(state[0][k], state[1][k], N * sizeof(float), "%s %s: state %d", row->name, row->isa,
                         k);
    for (int k = 0; k < 4; k++) {
        free(state[0][k]);
        free(state[1][k]);
    }
}

/* Where a row has no way of its own for lists: each tensor with its own rates, as if it were alone. */
ROWS_TEST(numerics_optim, a_list_is_its_tensors_one_by_one)
{
    enum { N_TENSORS = 5, N = 700 };
    const struct adamw h = { .lr = 7, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 7 };
    const struct sgd s = { .lr = 7, .momentum = 0.9, .weight_decay = 7 };
    struct numerics_update updates[2][N_TENSORS];
    struct numerics_span spans[N_TENSORS];
    float *state[2][4];
    double sums[N_TENSORS];
    struct numerics numerics;

    row_open(&numerics, row);
    for (int alone = 0; alone < 2; alone++) {
        for (int k = 0; k < 4; k++)
            state[alone][k] = random_floats((uint64_t)k, N, 0.1f);
        for (size_t i = 0; i < N; i++)
            state[alone][3][i] = fabsf(state[alone][3][i]);
        for (size_t i = 0, at = 0; i < N_TENSORS; at += 40 * i, i++) /* the first is empty */
            updates[alone][i] =
                (struct numerics_update){ .param = state[alone][0] + at,
                                          .grad = state[alone][1] + at,
                                          .state = { state[alone][2] + at, state[alone][3] + at },
                                          .n_elems = 40 * i,
                                          .lr = 1e-3 * (double)(i + 1),
                                          .weight_decay = i % 2 ? 0.1 : 0,
                                          .grad_scale = 0.5f + (float)i };
    }

    numerics_adamw(&numerics, NULL, updates[0], N_TENSORS, &h, 3);
    numerics_sgd(&numerics, NULL, updates[0], N_TENSORS, &s, 3);
    for (size_t i = 0; i < N_TENSORS; i++) {
        const struct numerics_update *u = &updates[1][i];
        const struct adamw own_h = { u->lr, h.beta1, h.beta2, h.eps, u->weight_decay };
        const struct sgd own_s = { u->lr, s.momentum, u->weight_decay };

        numerics.ops->adamw(&numerics, NULL, u->param, u->grad, u->state[0], u->state[1], u->n_elems, &own_h,
                            u->grad_scale, 3);
        numerics.ops->sgd(&numerics, NULL, u->param, u->grad, u->state[0], u->n_elems, &own_s, u->grad_scale,
                          3);
        spans[i] = (struct numerics_span){ u->grad, u->n_elems };
    }
    for (int k = 0; k < 4; k++)
        cr_assert_arr_eq(state[0][k], state[1][k], N * sizeof(float), "%s %s: state %d", row->name, row->isa,
                         k);
    for (double p = 1; p <= 3; p++) {
        numerics_sum_powers(&numerics, NULL, spans, N_TENSORS, p, sums);
        for (size_t i = 0; i < N_TENSORS; i++)
            cr_assert_eq(sums[i],
                         p == 2 ? numerics.ops->sum_squares(&numerics, NULL, spans[i].x, spans[i].n_elems)
                                : numerics.ops->sum_powers(&numerics, NULL, spans[i].x, spans[i].n_elems, p));
    }
    for (int k = 0; k < 4; k++) {
        free(state[0][k]);
        free(state[1][k]);
    }
    numerics_close(&numerics);
}

ROWS_TEST(numerics_optim, sum_of_squares_is_double_in_any_size)
{
    static const size_t sizes[] = { 0, 1, 3, 15, 16, 17, 65, 1000, 100003 };
    struct numerics numerics;

    row_open(&numerics, row);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        float *x = random_floats(s + 1, sizes[s], 1e3f);
        double want = 0, got;

        for (size_t i = 0; i < sizes[s]; i++)
            want += (double)x[i] * (double)x[i];
        got = numerics.ops->sum_squares(&numerics, NULL, x, sizes[s]);
        cr_assert(fabs(got - want) <= 1e-13 * want, "%zu elements: %.17g for %.17g", sizes[s], got, want);
        free(x);
    }
    numerics_close(&numerics);
}
