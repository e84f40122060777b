/* Fused attention against the formulas of numerics->h on whole matrices, in double. */
#include <math.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
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

/* The oracle: one sample's head */

static void matrices(const struct problem *p, const struct dropout *dropout, size_t b, size_t h)
{
    const struct attention_desc *d = &p->desc.shape;
    const size_t T = d->seq, E = d->head_dim, at = b * T * p->stride + h * E;
    double *P = row_zeros((T * T) * sizeof *P), *D = row_zeros((T * T) * sizeof *D),
           *dS = row_zeros((T * T) * sizeof *dS);

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
            D[i * T + j] = P[i * T + j] * dropout_factor(dropout, row, j);
            for (size_t e = 0; e < E; e++)
                dD += (double)p->d[OUT][at + i * p->stride + e] * (double)p->in[V][at + j * p->stride + e];
            dS[i * T + j] = dD * dropout_factor(dropout, row, j);
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
    p->desc = op_attention(*shape, FSDP_F32, p->stride);
    p->desc.out_stride = p->stride;
    p->desc.drops = dropout->p > 0;
    p->lse = random_floats(9, p->rows, 1.0f);
    p->want_lse = row_zeros(p->rows * sizeof *p->want_lse);
    for (int i = 0; i < N_TENSORS; i++) {
        p->in[i] = random_floats((uint64_t)i + 1, elems_of(p), 1.0f);
        p->d[i] = random_floats((uint64_t)i + 5, elems_of(p), 1.0f);
        p->want[i] = row_zeros(elems_of(p) * sizeof(double));
        p->want_d[i] = row_zeros(elems_of(p) * sizeof(double));
    }
}

static void problem_solve(struct problem *p, const struct dropout *dropout)
{
    for (size_t b = 0; b < p->desc.shape.batch; b++)
        for (size_t h = 0; h < p->desc.shape.heads; h++)
            matrices(p, dropout, b, h);
}

/* One run, forward and backward, on buffers of the dtype; `which`: bits of the gradients that are wanted */

struct buffers {
    void *in[N_TENSORS], *d[N_TENSORS];
};

static void run(struct numerics *n, struct problem *p, struct buffers *b, const struct dropout *dropout,
                unsigned which)
{
    void *const wanted[] = { which & 1u ? b->d[Q] : NULL, which & 2u ? b->d[K] : NULL,
                             which & 4u ? b->d[V] : NULL };
    struct fused_attention *attention;
    size_t forward = 0, backward = 0;
    struct fsdp_err err = { 0 };
    void *scratch;

    cr_assert(n->ops->attention_create(n, &p->desc, &attention, &forward, &backward, &err) == FSDP_OK, "%s",
              err.message);
    scratch = row_zeros(forward > backward ? forward : backward);
    cr_assert(op_attention_forward(n, attention, NULL, b->in, b->in[OUT], p->lse, dropout, scratch, &err) ==
                      FSDP_OK &&
                  op_attention_backward(n, attention, NULL, b->in, b->in[OUT], b->d[OUT], p->lse, dropout,
                                        wanted, scratch, &err) == FSDP_OK,
              "%s", err.message);
    n->ops->attention_destroy(attention);
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

        run(numerics, &p, &b, dropout, 7);

        /*
         * Sums of up to 1100 terms of about 1 in float32; P from the rounded lse is off by 2^-24 of |lse| <
         * 8.
         */
        check(row, &p, p.in[OUT], p.d, 2e-5, 2e-5);
    }
}

ROWS_TEST(numerics_attention, each_gradient_alone_is_what_it_is_with_the_others)
{
    const struct attention_desc shape = { 2, 300, 2, 4, true };
    struct problem p;
    struct buffers b;
    float *all[3];

    problem_init(&p, &shape, 0, &on);
    b = floats_of(&p);
    run(numerics, &p, &b, &on, 7);
    for (int i = Q; i <= V; i++)
        all[i] = copy_floats(p.d[i], elems_of(&p));

    for (int i = Q; i <= V; i++) {
        memset(p.d[i], 0, elems_of(&p) * sizeof(float));
        run(numerics, &p, &b, &on, 1u << i);
        cr_assert(memcmp(p.d[i], all[i], elems_of(&p) * sizeof(float)) == 0, "gradient %d of %s", i,
                  row->name);
    }
}

/* Bfloat16 */

static void widen(const uint16_t *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = bf16_to_f32(x[i]);
}

ROWS_TEST(numerics_attention, bfloat16_rounds_its_factors_and_results_only)
{
    if (!numerics->bf16_products)
        cr_skip_test("%s has no products of bfloat16 here", row->name);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const struct dropout *dropout = s % 2 == 0 ? &off : &on;
        struct problem p;
        struct buffers b;

        problem_init(&p, &shapes[s], 0, dropout);
        p.desc.dtype = FSDP_BF16;
        for (int i = 0; i < N_TENSORS; i++) {
            b.in[i] = narrow_of(p.in[i], elems_of(&p));
            b.d[i] = narrow_of(p.d[i], elems_of(&p));
            widen(b.in[i], p.in[i], elems_of(&p));
            widen(b.d[i], p.d[i], elems_of(&p));
        }
        problem_solve(&p, dropout);

        run(numerics, &p, &b, dropout, 7);

        for (int i = 0; i < N_TENSORS; i++) {
            widen(b.in[i], p.in[i], elems_of(&p));
            widen(b.d[i], p.d[i], elems_of(&p));
        }
        /*
         * Each D and dS is off by 2^-9 of itself, each result by 2^-9 more; sums of them are of terms of
         * order 1.
         */
        check(row, &p, p.in[OUT], p.d, 0x1p-7, 0x1p-6);
    }
}

/* What it asks for */

ROWS_TEST(numerics_attention, scratch_does_not_grow_with_the_square_of_the_sequence)
{
    size_t backward[2] = { 0 };

    for (size_t i = 0; i < 2; i++) {
        const size_t seq = (size_t)4096 << i;
        struct fused_attention_desc desc =
            op_attention((struct attention_desc){ 2, seq, 4, 16, true }, FSDP_F32, 64);
        struct fused_attention *attention;
        size_t forward;

        desc.drops = true;
        cr_assert(numerics->ops->attention_create(numerics, &desc, &attention, &forward, &backward[i],
                                                  NULL) == FSDP_OK);
        cr_assert(le(sz, forward, backward[i]));
        numerics->ops->attention_destroy(attention);
    }
    cr_assert(le(sz, backward[1], 2 * backward[0] + (1 << 20)), "%zu and %zu", backward[0], backward[1]);
    cr_assert(le(sz, backward[0], (size_t)8 << 20), "%zu", backward[0]);
}

ROWS_TEST(numerics_attention, a_stride_too_short_is_refused)
{
    for (int i = 0; i < 5; i++) {
        struct fused_attention_desc desc =
            op_attention((struct attention_desc){ 1, i == 4 ? 0 : 4, 2, 8, true }, FSDP_F32, 16);
        size_t *const strides[] = { &desc.q_stride, &desc.k_stride, &desc.v_stride, &desc.out_stride };
        struct fused_attention *attention;
        struct fsdp_err err = { 0 };
        size_t bytes;

        if (i < 4)
            *strides[i] = 15;
        cr_assert(numerics->ops->attention_create(numerics, &desc, &attention, &bytes, &bytes, &err) ==
                      FSDP_ERR_ARG,
                  "case %d", i);
        cr_assert_null(attention);
    }
}
