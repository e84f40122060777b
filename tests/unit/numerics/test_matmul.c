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
    p->want = row_zeros(p->c_elems * sizeof *p->want);
    p->bound = row_zeros(p->c_elems * sizeof *p->bound);
    oracle(p);
}

/*
 * A float32 sum of k products in any order and with any blocking is within k * eps of the sum of magnitudes.
 * Real kernels add pairwise or in 8 or more lanes and stay below sqrt(k). 4 + sqrt(k) leaves room for neither
 * a lost term nor a bf16 product.
 */
static void check_within(const struct row_case *row, struct problem *p, const char *what, double parts)
{
    const struct matmul_desc *d = &p->desc;

    for (size_t i = 0; i < p->c_elems; i++) {
        const double error = fabs((double)p->c[i] - p->want[i]);

        if (!(error <= parts * p->bound[i]))
            cr_assert(false,
                      "%s %s x%d: %s, batches %zux%zu, m %zu n %zu k %zu: element %zu is %.9g for %.9g",
                      row->name, row->isa, row->threads, what, d->outer, d->inner, d->m, d->n, d->k, i,
                      (double)p->c[i], p->want[i]);
    }
}

static void check(const struct row_case *row, struct problem *p, const char *what)
{
    check_within(row, p, what, 0x1p-24 * (4 + sqrt((double)p->desc.k)));
}

static void run(struct numerics *numerics, struct problem *p)
{
    struct fsdp_err err = { 0 };

    cr_assert(op_multiply(numerics, &p->desc, p->a, p->b, p->bias, p->c, &err) == FSDP_OK, "%s", err.message);
}

static void try_shape(struct numerics *numerics, const struct row_case *row, size_t m, size_t n, size_t k,
                      int flags)
{
    const bool ta = flags & 1, tb = flags & 2;
    struct matmul_desc desc = op_product(m, n, k, ta, tb);
    struct problem p;
    char what[64];

    desc.accumulate = flags & 4;
    desc.bias = !desc.accumulate && (flags & 8);
    desc.alpha = flags & 16 ? -0.125f : 1.0f;
    snprintf(what, sizeof what, "%c%c%s%s alpha %g", ta ? 'T' : 'N', tb ? 'T' : 'N',
             desc.accumulate ? " accumulate" : "", desc.bias ? " bias" : "", (double)desc.alpha);
    problem_init(&p, &desc);
    run(numerics, &p);
    check(row, &p, what);
}

ROWS_TEST(numerics_matmul, every_layout_and_size_is_right)
{
    static const size_t sizes[] = { 1, 2, 3, 7, 17, 64, 65 };
    size_t n_sizes = sizeof sizes / sizeof *sizes, turn = 0;

    /* Every (m, n, k) with one of the layouts and epilogues in turn: 343 triples and 32 flags share no
     * factor. */
    for (size_t m = 0; m < n_sizes; m++)
        for (size_t n = 0; n < n_sizes; n++)
            for (size_t k = 0; k < n_sizes; k++)
                try_shape(numerics, row, sizes[m], sizes[n], sizes[k], (int)(turn++ * 5 % 32));
    for (int flags = 0; flags < 32; flags++) {
        try_shape(numerics, row, 65, 33, 17, flags);
        try_shape(numerics, row, 1, 64, 31, flags);
        try_shape(numerics, row, 64, 1, 31, flags);
        try_shape(numerics, row, 64, 31, 1, flags);
    }
    try_shape(numerics, row, 64, 1000, 3, 10);
    try_shape(numerics, row, 3, 65, 1000, 8);
    try_shape(numerics, row, 1000, 7, 65, 5);
}

ROWS_TEST(numerics_matmul, empty_sizes_give_what_an_empty_sum_gives)
{
    for (int flags = 0; flags < 32; flags++) {
        try_shape(numerics, row, 5, 7, 0, flags); /* zero, the bias, or what was there */
        try_shape(numerics, row, 0, 7, 3, flags);
        try_shape(numerics, row, 5, 0, 3, flags);
        try_shape(numerics, row, 0, 0, 0, flags);
        try_shape(numerics, row, 1, 1, 1, flags);
    }
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
        struct matmul_desc desc = op_product(products[i].m, products[i].n, products[i].k, false, false);
        struct problem p;

        desc.outer = batch, desc.inner = heads;
        desc.a = products[i].a, desc.b = products[i].b, desc.c = products[i].c;
        desc.accumulate = accumulate;
        desc.alpha = 0.25f;
        problem_init(&p, &desc);
        run(numerics, &p);
        check(row, &p, products[i].what);
    }
}

ROWS_TEST(numerics_matmul, heads_inside_a_tensor_are_strides)
{
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        try_heads(numerics, row, 2, 3, 17, 7, accumulate);
        try_heads(numerics, row, 3, 2, 64, 16, accumulate);
        try_heads(numerics, row, 1, 4, 5, 1, accumulate);
        try_heads(numerics, row, 4, 1, 1, 8, accumulate);
        try_heads(numerics, row, 2, 2, 3, 64, accumulate);
    }
}

ROWS_TEST(numerics_matmul, rows_may_lie_apart)
{
    struct matmul_desc desc = op_product(9, 6, 11, false, true);
    struct problem p;

    desc.outer = 2;
    desc.a = (struct matmul_view){ 500, 0, 13, 1 };
    desc.b = (struct matmul_view){ 300, 0, 1, 12 };
    desc.c = (struct matmul_view){ 200, 0, 10, 1 };
    desc.bias = true;
    desc.alpha = 2.0f;
    problem_init(&p, &desc);
    run(numerics, &p);
    check(row, &p, "padded rows"); /* also that the padding of c is untouched: its bound is 0 */
}

ROWS_TEST(numerics_matmul, one_product_runs_on_many_buffers_with_the_same_bits)
{
    const struct matmul_desc desc = op_product(96, 80, 130, false, true);
    struct problem p;
    float *first;

    problem_init(&p, &desc);

    run(numerics, &p);
    first = p.c;
    for (int again = 0; again < 5; again++) {
        float *a = p.a, *b = p.b;

        p.a = copy_floats(a, 96 * 130);
        p.b = copy_floats(b, 130 * 80);
        p.c = random_floats(9, 96 * 80, 1.0f);
        run(numerics, &p);
        cr_assert_arr_eq(p.c, first, 96 * 80 * sizeof(float), "run %d", again);
    }
    p.c = first;
}

ROWS_TEST(numerics_matmul, broken_descriptions_are_refused_in_words)
{
    const struct matmul_desc good = op_product(4, 5, 6, false, false);
    struct matmul_desc broken[9];
    struct matmul *matmul;
    size_t scratch_bytes;

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
            numerics->ops->matmul_create(numerics, &broken[i], &matmul, &scratch_bytes, &err);

        cr_assert(status == (i == 3 || i == 8 ? FSDP_ERR_UNSUPPORTED : FSDP_ERR_ARG),
                  "description %zu gave %d", i, (int)status);
        cr_assert(matmul == NULL && strncmp(err.message, "matmul", 6) == 0, "description %zu: %s", i,
                  err.message);
    }
    numerics->ops->matmul_destroy(NULL);
}

#ifndef FSDP_WITHOUT_ONEDNN
/* float32 as three products of bfloat16, of rows that lie apart: all that a linear's products have. */
Test(numerics_split, onednn_s_products_are_as_close)
{
    const struct numerics_config config = {
        .threads = 1, .name = "onednn", .precision = FSDP_MATMUL_HIGH, .splits_anyway = true
    };
    static const struct row_case row = { "onednn", "", 1 };
    static const struct {
        size_t m, n, k;
        int flags; /* as of try_shape() */
        float alpha;
    } shapes[] = { { 65, 70, 129, 10, 1.0f }, { 64, 96, 33, 4, 1.0f }, { 40, 31, 64, 1, 1.0f },
                   { 40, 31, 64, 5, 0.5f },   { 3, 5, 7, 10, 0.25f },  { 256, 256, 512, 2, 1.0f } };
    struct numerics numerics;
    struct matmul *matmul;
    char line[256];
    size_t bytes;

    cr_assert(numerics_open(&numerics, &config, NULL) == FSDP_OK);
    if (!numerics.bf16_products)
        cr_skip_test("no products of bfloat16 on this CPU");
    numerics_describe(&numerics, line, sizeof line);
    cr_expect_not_null(strstr(line, "float32 as three products of bfloat16"), "%s", line);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const size_t m = shapes[i].m, n = shapes[i].n, k = shapes[i].k;
        const bool ta = shapes[i].flags & 1, tb = shapes[i].flags & 2;
        struct matmul_desc d = op_product(m, n, k, ta, tb);
        struct problem p;

        *(ta ? &d.a.col_stride : &d.a.row_stride) += 3;
        *(tb ? &d.b.col_stride : &d.b.row_stride) += 3;
        d.c.row_stride += 3;
        d.accumulate = shapes[i].flags & 4;
        d.bias = shapes[i].flags & 8;
        d.alpha = shapes[i].alpha;
        cr_assert(numerics.ops->matmul_create(&numerics, &d, &matmul, &bytes, NULL) == FSDP_OK);
        cr_assert(ge(sz, bytes, 4 * (m * k + k * n)), "the parts need room: %zu", bytes);
        numerics.ops->matmul_destroy(matmul);
        problem_init(&p, &d);
        run(&numerics, &p);
        /* The split's 3 * 2^-16, and sums in float32 of 3 k terms. */
        check_within(&row, &p, "split", 3 * 0x1p-16 + (double)(3 * k) * 0x1p-24);
    }
    numerics_close(&numerics);
}
#endif
