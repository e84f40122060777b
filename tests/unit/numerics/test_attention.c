/* Fused attention against the formulas of numerics.h on whole matrices, in double. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/rng.h"
#include "tests/unit/numerics/rows.h"

/* One block of queries, a few, and many; heads and samples that do and do not share a product. */
static const struct attention_desc shapes[] = {
    { 1, 1, 1, 4, true },    { 2, 3, 3, 4, false },   { 2, 64, 2, 8, true },
    { 3, 65, 4, 16, false }, { 1, 257, 3, 8, true },  { 2, 257, 1, 4, false },
    { 1, 600, 2, 4, true },  { 1, 1100, 1, 4, true }, { 1, 700, 3, 4, false },
};
static const struct dropout off = { .p = 0 }, on = { .p = 0.25f, .key = 99, .first_row = 1234567 };

enum { Q, K, V, OUT, N_TENSORS };

struct problem {
    struct fused_attention_desc desc;
    float *in[N_TENSORS], *d[N_TENSORS]; /* d[OUT]: the gradient that backward is given */
    float *lse;
    size_t rows, stride; /* all tensors have one stride */
    double *want[N_TENSORS], *want_d[N_TENSORS], *want_lse;
};

static double factor(const struct dropout *dropout, size_t row, size_t j)
{
    uint32_t words[4];

    if (dropout->p <= 0)
        return 1;
    rng_philox(dropout->key, dropout->first_row + row, j / 4, words);
    return (double)words[j % 4] < floor((1 - (double)dropout->p) * 0x1p32) ? 1 / (1 - (double)dropout->p) : 0;
}

/* --- the oracle: one sample's head --- */

static void matrices(const struct problem *p, const struct dropout *dropout, size_t b, size_t h)
{
    const struct attention_desc *d = &p->desc.shape;
    const size_t T = d->seq, E = d->head_dim, at = b * T * p->stride + h * E;
    double *P = calloc(T * T, sizeof *P), *D = calloc(T * T, sizeof *D), *dS = calloc(T * T, sizeof *dS);

    for (size_t i = 0; i < T; i++) {
        const size_t n = d->causal ? i + 1 : T, row = (b * d->heads + h) * T + i;
        double sum = 0, delta = 0;

        for (size_t j = 0; j < n; j++) {
            double s = 0;

            for (size_t e = 0; e < E; e++)
                s += (double)p->in[Q][at + i * p->stride + e] * (double)p->in[K][at + j * p->stride + e];
            sum += P[i * T + j] = exp((double)p->desc.scale * s); /* inputs are small: nothing overflows */
        }
        p->want_lse[row] = log(sum);
        for (size_t j = 0; j < n; j++) {
            double dD = 0;

            P[i * T + j] /= sum;
            D[i * T + j] = P[i * T + j] * factor(dropout, row, j);
            for (size_t e = 0; e < E; e++)
                dD += (double)p->d[OUT][at + i * p->stride + e] * (double)p->in[V][at + j * p->stride + e];
            dS[i * T + j] = dD * factor(dropout, row, j);
            delta += P[i * T + j] * dS[i * T + j];
        }
        for (size_t j = 0; j < n; j++)
            dS[i * T + j] = P[i * T + j] * (dS[i * T + j] - delta);
    }
    for (size_t i = 0; i < T; i++)
        for (size_t j = 0; j < T; j++)
            for (size_t e = 0; e < E; e++) {
                const size_t x = at + i * p->stride + e, y = at + j * p->stride + e;
                const double scale = (double)p->desc.scale;

                p->want[OUT][x] += D[i * T + j] * (double)p->in[V][y];
                p->want_d[V][y] += D[i * T + j] * (double)p->d[OUT][x];
                p->want_d[Q][x] += scale * dS[i * T + j] * (double)p->in[K][y];
                p->want_d[K][y] += scale * dS[i * T + j] * (double)p->in[Q][x];
            }
    free(P);
    free(D);
    free(dS);
}

static size_t elems_of(const struct problem *p)
{
    return p->desc.shape.batch * p->desc.shape.seq * p->stride;
}

/* What lies between the heads of one position and the next belongs to others. */
static bool is_between(const struct problem *p, size_t i)
{
    return i % p->stride >= p->desc.shape.heads * p->desc.shape.head_dim;
}

static void problem_init(struct problem *p, const struct attention_desc *shape, size_t gap,
                         const struct dropout *dropout)
{
    *p = (struct problem){ .stride = shape->heads * shape->head_dim + gap,
                           .rows = shape->batch * shape->heads * shape->seq };
    p->desc = (struct fused_attention_desc){ .shape = *shape,
                                             .dtype = FSDP_F32,
                                             .scale = 1 / sqrtf((float)shape->head_dim),
                                             .drops = dropout->p > 0,
                                             .q_stride = p->stride,
                                             .k_stride = p->stride,
                                             .v_stride = p->stride,
                                             .out_stride = p->stride };
    p->lse = random_floats(9, p->rows, 1.0f);
    p->want_lse = calloc(p->rows, sizeof *p->want_lse);
    for (int i = 0; i < N_TENSORS; i++) {
        p->in[i] = random_floats((uint64_t)i + 1, elems_of(p), 1.0f);
        p->d[i] = random_floats((uint64_t)i + 5, elems_of(p), 1.0f);
        p->want[i] = calloc(elems_of(p), sizeof(double));
        p->want_d[i] = calloc(elems_of(p), sizeof(double));
    }
}

static void problem_solve(struct problem *p, const struct dropout *dropout)
{
    for (size_t b = 0; b < p->desc.shape.batch; b++)
        for (size_t h = 0; h < p->desc.shape.heads; h++)
            matrices(p, dropout, b, h);
}

static void problem_fini(struct problem *p)
{
    for (int i = 0; i < N_TENSORS; i++) {
        free(p->in[i]);
        free(p->d[i]);
        free(p->want[i]);
        free(p->want_d[i]);
    }
    free(p->lse);
    free(p->want_lse);
}

/* --- one run, forward and backward, on buffers of the dtype; `which`: bits of the gradients that are wanted --- */

struct buffers {
    void *in[N_TENSORS], *d[N_TENSORS];
};

static void run(struct numerics *n, struct problem *p, struct buffers *b, const struct dropout *dropout,
                unsigned which)
{
    struct fused_attention *attention;
    size_t forward = 0, backward = 0;
    struct fsdp_err err = { 0 };
    void *scratch;

    cr_assert(n->ops->attention_create(n, &p->desc, &attention, &forward, &backward, &err) == FSDP_OK, "%s",
              err.message);
    scratch = aligned_alloc(64, ((forward > backward ? forward : backward) + 64) / 64 * 64);
    cr_assert_not_null(scratch);
    cr_assert(n->ops->attention_forward(attention, NULL,
                                        &(struct fused_attention_forward){ .q = b->in[Q],
                                                                           .k = b->in[K],
                                                                           .v = b->in[V],
                                                                           .out = b->in[OUT],
                                                                           .lse = p->lse,
                                                                           .dropout = dropout,
                                                                           .scratch = scratch },
                                        &err) == FSDP_OK,
              "%s", err.message);
    cr_assert(
        n->ops->attention_backward(attention, NULL,
                                   &(struct fused_attention_backward){ .q = b->in[Q],
                                                                       .k = b->in[K],
                                                                       .v = b->in[V],
                                                                       .out = b->in[OUT],
                                                                       .dout = b->d[OUT],
                                                                       .lse = p->lse,
                                                                       .dropout = dropout,
                                                                       .dq = which & 1u << Q ? b->d[Q] : NULL,
                                                                       .dk = which & 1u << K ? b->d[K] : NULL,
                                                                       .dv = which & 1u << V ? b->d[V] : NULL,
                                                                       .scratch = scratch },
                                   &err) == FSDP_OK,
        "%s", err.message);
    n->ops->attention_destroy(attention);
    free(scratch);
}

static struct buffers floats_of(const struct problem *p)
{
    struct buffers b;

    for (int i = 0; i < N_TENSORS; i++) {
        b.in[i] = p->in[i];
        b.d[i] = p->d[i];
    }
    return b;
}

/* The oracle has zeros between the heads: give it what was there, so that a byte written there shows. */
static void expect_between_untouched(const struct problem *p, double *want, const float *before)
{
    for (size_t i = 0; i < elems_of(p); i++)
        if (is_between(p, i))
            want[i] = (double)before[i];
}

static void check(const struct row_case *row, const struct problem *p, const float *out, float *const *d,
                  double relative, double of_norm)
{
    static const char *const names[] = { "dq", "dk", "dv" };

    assert_near(row, "lse", p->lse, p->want_lse, p->rows, relative, of_norm);
    assert_near(row, "out", out, p->want[OUT], elems_of(p), relative, of_norm);
    for (int i = Q; i <= V; i++)
        assert_near(row, names[i], d[i], p->want_d[i], elems_of(p), relative, of_norm);
}

ROWS_TEST(numerics_attention, forward_and_backward_are_the_formulas)
{
    struct numerics numerics;

    row_open(&numerics, row);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const struct dropout *dropout = s % 2 == 0 ? &on : &off;
        struct problem p;
        struct buffers b;

        problem_init(&p, &shapes[s], s % 3 * 4, dropout);
        problem_solve(&p, dropout);
        expect_between_untouched(&p, p.want[OUT], p.in[OUT]);
        for (int i = Q; i <= V; i++)
            expect_between_untouched(&p, p.want_d[i], p.d[i]);
        b = floats_of(&p);

        run(&numerics, &p, &b, dropout, 7);

        /* Sums of up to 1100 terms of about 1 in float32; P from the rounded lse is off by 2^-24 of |lse| < 8. */
        check(row, &p, p.in[OUT], p.d, 2e-5, 2e-5);
        problem_fini(&p);
    }
    numerics_close(&numerics);
}

ROWS_TEST(numerics_attention, each_gradient_alone_is_what_it_is_with_the_others)
{
    const struct attention_desc shape = { 2, 300, 2, 4, true };
    struct numerics numerics;
    struct problem p;
    struct buffers b;
    float *all[3];

    row_open(&numerics, row);
    problem_init(&p, &shape, 0, &on);
    b = floats_of(&p);
    run(&numerics, &p, &b, &on, 7);
    for (int i = Q; i <= V; i++)
        all[i] = copy_floats(p.d[i], elems_of(&p));

    for (int i = Q; i <= V; i++) {
        memset(p.d[i], 0, elems_of(&p) * sizeof(float));
        run(&numerics, &p, &b, &on, 1u << i);
        cr_assert(memcmp(p.d[i], all[i], elems_of(&p) * sizeof(float)) == 0, "gradient %d of %s", i,
                  row->name);
        free(all[i]);
    }
    problem_fini(&p);
    numerics_close(&numerics);
}

/* --- bfloat16 --- */

static void round_floats(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = bf16_to_f32(bf16_of_f32(x[i]));
}

static uint16_t *narrow(const float *x, size_t n)
{
    uint16_t *y = malloc(n * sizeof *y);

    cr_assert_not_null(y);
    for (size_t i = 0; i < n; i++)
        y[i] = bf16_of_f32(x[i]);
    return y;
}

static void widen(const uint16_t *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = bf16_to_f32(x[i]);
}

ROWS_TEST(numerics_attention, bfloat16_rounds_its_factors_and_results_only)
{
    struct numerics numerics;

    row_open(&numerics, row);
    if (!numerics.bf16_products)
        cr_skip_test("%s has no products of bfloat16 here", row->name);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const struct dropout *dropout = s % 2 == 0 ? &off : &on;
        struct problem p;
        struct buffers b;

        problem_init(&p, &shapes[s], 0, dropout);
        p.desc.dtype = FSDP_BF16;
        for (int i = 0; i < N_TENSORS; i++) {
            round_floats(p.in[i], elems_of(&p));
            round_floats(p.d[i], elems_of(&p));
            b.in[i] = narrow(p.in[i], elems_of(&p));
            b.d[i] = narrow(p.d[i], elems_of(&p));
        }
        problem_solve(&p, dropout);

        run(&numerics, &p, &b, dropout, 7);

        for (int i = 0; i < N_TENSORS; i++) {
            widen(b.in[i], p.in[i], elems_of(&p));
            widen(b.d[i], p.d[i], elems_of(&p));
        }
        /* Each D and dS is off by 2^-9 of itself, each result by 2^-9 more; sums of them are of terms of order 1. */
        check(row, &p, p.in[OUT], p.d, 0x1p-7, 0x1p-6);
        for (int i = 0; i < N_TENSORS; i++) {
            free(b.in[i]);
            free(b.d[i]);
        }
        problem_fini(&p);
    }
    numerics_close(&numerics);
}

/* --- what it asks for --- */

ROWS_TEST(numerics_attention, scratch_does_not_grow_with_the_square_of_the_sequence)
{
    struct numerics numerics;
    size_t backward[2] = { 0 };

    row_open(&numerics, row);
    for (size_t i = 0; i < 2; i++) {
        const size_t seq = (size_t)4096 << i;
        const struct fused_attention_desc desc = { .shape = { 2, seq, 4, 16, true },
                                                   .dtype = FSDP_F32,
                                                   .scale = 1,
                                                   .drops = true,
                                                   .q_stride = 64,
                                                   .k_stride = 64,
                                                   .v_stride = 64,
                                                   .out_stride = 64 };
        struct fused_attention *attention;
        size_t forward;

        cr_assert(numerics.ops->attention_create(&numerics, &desc, &attention, &forward, &backward[i],
                                                 NULL) == FSDP_OK);
        cr_assert(le(sz, forward, backward[i]));
        numerics.ops->attention_destroy(attention);
    }
    cr_assert(le(sz, backward[1], 2 * backward[0] + (1 << 20)), "%zu and %zu", backward[0], backward[1]);
    cr_assert(le(sz, backward[0], (size_t)8 << 20), "%zu", backward[0]);
    numerics_close(&numerics);
}

ROWS_TEST(numerics_attention, a_stride_too_short_is_refused)
{
    struct numerics numerics;

    row_open(&numerics, row);
    for (int i = 0; i < 5; i++) {
        const struct fused_attention_desc desc = { .shape = { 1, i == 4 ? 0 : 4, 2, 8, true },
                                                   .dtype = FSDP_F32,
                                                   .scale = 1,
                                                   .q_stride = i == 0 ? 15 : 16,
                                                   .k_stride = i == 1 ? 15 : 16,
                                                   .v_stride = i == 2 ? 15 : 16,
                                                   .out_stride = i == 3 ? 15 : 16 };
        struct fused_attention *attention;
        struct fsdp_err err = { 0 };
        size_t bytes;

        cr_assert(numerics.ops->attention_create(&numerics, &desc, &attention, &bytes, &bytes, &err) ==
                      FSDP_ERR_ARG,
                  "case %d", i);
        cr_assert_null(attention);
    }
    numerics_close(&numerics);
}
