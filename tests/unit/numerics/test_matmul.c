#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/numerics/rows.h"

/* A product with its buffers, laid out as `desc` says, plus the oracle's c. */
struct problem {
    struct matmul_desc desc;
    float *a, *b, *bias, *c;
    double *want, *bound; /* what c must be, and the sum of the magnitudes added to get there */
    size_t c_elems;
};

static size_t extent(const struct matmul_desc *desc, const struct matmul_view *v, size_t rows, size_t cols)
{
    if (rows == 0 || cols == 0)
        return 1;
    return (desc->outer - 1) * v->outer_stride + (desc->inner - 1) * v->inner_stride +
           (rows - 1) * v->row_stride + (cols - 1) * v->col_stride + 1;
}

static void oracle(struct problem *p)
{
    const struct matmul_desc *d = &p->desc;

    for (size_t i = 0; i < p->c_elems; i++) {
        p->want[i] = (double)p->c[i]; /* what lies between the rows of c must stay */
        p->bound[i] = 0;
    }
    for (size_t o = 0; o < d->outer; o++) {
        for (size_t in = 0; in < d->inner; in++) {
            const float *a = p->a + o * d->a.outer_stride + in * d->a.inner_stride;
            const float *b = p->b + o * d->b.outer_stride + in * d->b.inner_stride;
            const size_t c = o * d->c.outer_stride + in * d->c.inner_stride;

            for (size_t i = 0; i < d->m; i++) {
                for (size_t j = 0; j < d->n; j++) {
                    const size_t at = c + i * d->c.row_stride + j * d->c.col_stride;
                    double sum = d->accumulate ? (double)p->c[at] : d->bias ? (double)p->bias[j] : 0;
                    double size = fabs(sum);

                    for (size_t k = 0; k < d->k; k++) {
                        const double term = (double)d->alpha *
                                            (double)a[i * d->a.row_stride + k * d->a.col_stride] *
                                            (double)b[k * d->b.row_stride + j * d->b.col_stride];
                        sum += term;
                        size += fabs(term);
                    }
                    p->want[at] = sum;
                    p->bound[at] = size;
                }
            }
        }
    }
}

static void problem_init(struct problem *p, const struct matmul_desc *desc)
{
    p->desc = *desc;
    p->c_elems = extent(desc, &desc->c, desc->m, desc->n);
    p->a = random_floats(1, extent(desc, &desc->a, desc->m, desc->k), 1.0f);
    p->b = random_floats(2, extent(desc, &desc->b, desc->k, desc->n), 1.0f);
    p->bias = random_floats(3, desc->n, 1.0f);
    p->c = random_floats(4, p->c_elems, 1.0f);
    p->want = malloc(p->c_elems * sizeof *p->want);
    p->bound = malloc(p->c_elems * sizeof *p->bound);
    oracle(p);
}

static void problem_fini(struct problem *p)
{
    free(p->a);
    free(p->b);
    free(p->bias);
    free(p->c);
    free(p->want);
    free(p->bound);
}

/*
 * A float32 sum of k products in any order and with any blocking is within k * eps of the sum of magnitudes;
 * real kernels add pairwise or in 8 or more lanes and stay below sqrt(k). 4 + sqrt(k) leaves room for neither
 * a lost term nor a bf16 product.
 */
static void check(const struct row_case *row, struct problem *p, const char *what)
{
    const struct matmul_desc *d = &p->desc;

    for (size_t i = 0; i < p->c_elems; i++) {
        const double error = fabs((double)p->c[i] - p->want[i]);

        if (!(error <= 0x1p-24 * (4 + sqrt((double)d->k)) * p->bound[i]))
            cr_assert(false,
                      "%s %s x%d: %s, batches %zux%zu, m %zu n %zu k %zu: element %zu is %.9g for %.9g",
                      row->name, row->isa, row->threads, what, d->outer, d->inner, d->m, d->n, d->k, i,
                      (double)p->c[i], p->want[i]);
    }
}

static void run(struct numerics *numerics, struct problem *p)
{
    struct fsdp_err err = { 0 };
    struct matmul *matmul;
    void *scratch;
    size_t scratch_bytes;

    cr_assert(numerics->ops->matmul_create(numerics, &p->desc, &matmul, &scratch_bytes, &err) == FSDP_OK,
              "%s", err.message);
    scratch = aligned_alloc(64, (scratch_bytes + 64) / 64 * 64);
    cr_assert(numerics->ops->matmul_run(matmul, NULL, p->a, p->b, p->desc.bias ? p->bias : NULL, p->c,
                                        scratch, &err) == FSDP_OK,
              "%s", err.message);
    numerics->ops->matmul_destroy(matmul);
    free(scratch);
}

/* Row-major, or transposed: the stored matrix is (cols, rows). */
static struct matmul_view plain_view(size_t rows, size_t cols, bool transposed)
{
    return transposed ? (struct matmul_view){ 0, 0, 1, rows } : (struct matmul_view){ 0, 0, cols, 1 };
}

static void try_shape(struct numerics *numerics, const struct row_case *row, size_t m, size_t n, size_t k,
                      int flags)
{
    const bool ta = flags & 1, tb = flags & 2, accumulate = flags & 4, bias = !accumulate && (flags & 8);
    const struct matmul_desc desc = {
        .outer = 1,
        .inner = 1,
        .m = m,
        .n = n,
        .k = k,
        .a = plain_view(m, k, ta),
        .b = plain_view(k, n, tb),
        .c = plain_view(m, n, false),
        .dtype = FSDP_F32,
        .bias = bias,
        .accumulate = accumulate,
        .alpha = flags & 16 ? -0.125f : 1.0f,
    };
    struct problem p;
    char what[64];

    snprintf(what, sizeof what, "%c%c%s%s alpha %g", ta ? 'T' : 'N', tb ? 'T' : 'N',
             accumulate ? " accumulate" : "", bias ? " bias" : "", (double)desc.alpha);
    problem_init(&p, &desc);
    run(numerics, &p);
    check(row, &p, what);
    problem_fini(&p);
}

ROWS_TEST(numerics_matmul, every_layout_and_size_is_right)
{
    static const size_t sizes[] = { 1, 2, 3, 7, 17, 64, 65 };
    struct numerics numerics;
    size_t n_sizes = sizeof sizes / sizeof *sizes, turn = 0;

    row_open(&numerics, row);

    /* Every (m, n, k) with one of the layouts and epilogues in turn: 343 triples and 32 flags share no
     * factor. */
    for (size_t m = 0; m < n_sizes; m++)
        for (size_t n = 0; n < n_sizes; n++)
            for (size_t k = 0; k < n_sizes; k++)
                try_shape(&numerics, row, sizes[m], sizes[n], sizes[k], (int)(turn++ * 5 % 32));
    for (int flags = 0; flags < 32; flags++) {
        try_shape(&numerics, row, 65, 33, 17, flags);
        try_shape(&numerics, row, 1, 64, 31, flags);
        try_shape(&numerics, row, 64, 1, 31, flags);
        try_shape(&numerics, row, 64, 31, 1, flags);
    }
    try_shape(&numerics, row, 64, 1000, 3, 10);
    try_shape(&numerics, row, 3, 65, 1000, 8);
    try_shape(&numerics, row, 1000, 7, 65, 5);
    numerics_close(&numerics);
}

ROWS_TEST(numerics_matmul, empty_sizes_give_what_an_empty_sum_gives)
{
    struct numerics numerics;

    row_open(&numerics, row);

    for (int flags = 0; flags < 32; flags++) {
        try_shape(&numerics, row, 5, 7, 0, flags); /* zero, the bias, or what was there */
        try_shape(&numerics, row, 0, 7, 3, flags);
        try_shape(&numerics, row, 5, 0, 3, flags);
        try_shape(&numerics, row, 0, 0, 0, flags);
        try_shape(&numerics, row, 1, 1, 1, flags);
    }
    numerics_close(&numerics);
}

/* The products of attention over tensors of (batch, seq, heads, head_dim) and scores of (batch, heads, seq,
 * seq). */
static void try_heads(struct numerics *numerics, const struct row_case *row, size_t batch, size_t heads,
                      size_t seq, size_t head_dim, bool accumulate)
{
    const size_t dim = heads * head_dim;
    const struct matmul_view tokens = { seq * dim, head_dim, dim, 1 };
    const struct matmul_view tokens_t = { seq * dim, head_dim, 1, dim };
    const struct matmul_view scores = { heads * seq * seq, seq * seq, seq, 1 };
    const struct matmul_view scores_t = { heads * seq * seq, seq * seq, 1, seq };
    const struct {
        const char *what;
        size_t m, n, k;
        struct matmul_view a, b, c;
    } products[] = {
        { "q k^T", seq, seq, head_dim, tokens, tokens_t, scores },
        { "p v", seq, head_dim, seq, scores, tokens, tokens },
        { "p^T dy", seq, head_dim, seq, scores_t, tokens, tokens },
    };

    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        const struct matmul_desc desc = {
            .outer = batch,
            .inner = heads,
            .m = products[i].m,
            .n = products[i].n,
            .k = products[i].k,
            .a = products[i].a,
            .b = products[i].b,
            .c = products[i].c,
            .dtype = FSDP_F32,
            .accumulate = accumulate,
            .alpha = 0.25f,
        };
        struct problem p;

        problem_init(&p, &desc);
        run(numerics, &p);
        check(row, &p, products[i].what);
        problem_fini(&p);
    }
}

ROWS_TEST(numerics_matmul, heads_inside_a_tensor_are_strides)
{
    struct numerics numerics;

    row_open(&numerics, row);

    for (int accumulate = 0; accumulate < 2; accumulate++) {
        try_heads(&numerics, row, 2, 3, 17, 7, accumulate);
        try_heads(&numerics, row, 3, 2, 64, 16, accumulate);
        try_heads(&numerics, row, 1, 4, 5, 1, accumulate);
        try_heads(&numerics, row, 4, 1, 1, 8, accumulate);
        try_heads(&numerics, row, 2, 2, 3, 64, accumulate);
    }
    numerics_close(&numerics);
}

ROWS_TEST(numerics_matmul, rows_may_lie_apart)
{
    const struct matmul_desc desc = {
        .outer = 2,
        .inner = 1,
        .m = 9,
        .n = 6,
        .k = 11,
        .a = { 500, 0, 13, 1 },
        .b = { 300, 0, 1, 12 },
        .c = { 200, 0, 10, 1 },
        .dtype = FSDP_F32,
        .bias = true,
        .alpha = 2.0f,
    };
    struct numerics numerics;
    struct problem p;

    row_open(&numerics, row);
    problem_init(&p, &desc);

    run(&numerics, &p);

    check(row, &p, "padded rows"); /* also that the padding of c is untouched: its bound is 0 */
    problem_fini(&p);
    numerics_close(&numerics);
}

ROWS_TEST(numerics_matmul, one_product_runs_on_many_buffers_with_the_same_bits)
{
    const struct matmul_desc desc = {
        .outer = 1,
        .inner = 1,
        .m = 96,
        .n = 80,
        .k = 130,
        .a = { 0, 0, 130, 1 },
        .b = { 0, 0, 1, 130 },
        .c = { 0, 0, 80, 1 },
        .dtype = FSDP_F32,
        .alpha = 1.0f,
    };
    struct numerics numerics;
    struct problem p;
    float *first;

    row_open(&numerics, row);
    problem_init(&p, &desc);

    run(&numerics, &p);
    first = p.c;
    for (int again = 0; again < 5; again++) {
        float *a = p.a, *b = p.b;

        p.a = copy_floats(a, 96 * 130);
        p.b = copy_floats(b, 130 * 80);
        p.c = random_floats(9, 96 * 80, 1.0f);
        run(&numerics, &p);
        cr_assert_arr_eq(p.c, first, 96 * 80 * sizeof(float), "run %d", again);
        free(p.c);
        free(a);
        free(b);
    }
    p.c = first;
    problem_fini(&p);
    numerics_close(&numerics);
}

ROWS_TEST(numerics_matmul, broken_descriptions_are_refused_in_words)
{
    const struct matmul_desc good = {
        .outer = 1,
        .inner = 1,
        .m = 4,
        .n = 5,
        .k = 6,
        .a = { 0, 0, 6, 1 },
        .b = { 0, 0, 5, 1 },
        .c = { 0, 0, 5, 1 },
        .dtype = FSDP_F32,
        .alpha = 1.0f,
    };
    struct matmul_desc broken[9];
    struct numerics numerics;
    struct matmul *matmul;
    size_t scratch_bytes;

    row_open(&numerics, row);
    for (size_t i = 0; i < 9; i++)
        broken[i] = good;
    broken[0].outer = 0;
    broken[1].inner = 0;
    broken[2].bias = broken[2].accumulate = true;
    broken[3].dtype = FSDP_I32;
    broken[4].a = (struct matmul_view){ 0, 0, 12, 2 };
    broken[5].c = (struct matmul_view){ 0, 0, 1, 4 };
    broken[6].m = (size_t)1 << 62;
    broken[7].inner = 3;
    broken[7].b.inner_stride = SIZE_MAX / 2;
    broken[8].beside = MATMUL_SUMS_OF_A; /* of a row without such products */

    for (size_t i = 0; i < 9; i++) {
        struct fsdp_err err = { 0 };
        const enum fsdp_status status =
            numerics.ops->matmul_create(&numerics, &broken[i], &matmul, &scratch_bytes, &err);

        cr_assert(status == (i == 3 || i == 8 ? FSDP_ERR_UNSUPPORTED : FSDP_ERR_ARG),
                  "description %zu gave %d", i, (int)status);
        cr_assert(matmul == NULL && strncmp(err.message, "matmul", 6) == 0, "description %zu: %s", i,
                  err.message);
    }
    numerics.ops->matmul_destroy(NULL);
    numerics_close(&numerics);
}
