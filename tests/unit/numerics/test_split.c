/* Products of float32 as three of bfloat16: what is left of a number, and how far a product is off. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/numerics/rows.h"
#include "tests/unit/numerics/rows.h"

FAST_ROWS_TEST(numerics_split, two_parts_are_the_number_to_16_bits)
{
    enum { N = 4099 };
    struct numerics numerics;
    float *x = random_floats(1, N, 100.0f);
    uint16_t high[N], low[N];

    row_open(&numerics, row);
    x[0] = INFINITY;
    x[1] = -INFINITY;
    x[2] = NAN;
    x[3] = 3.4e38f; /* rounds to infinity */
    x[4] = 0;
    ((const struct rows *)numerics.state)->kernels->split_bf16(x, high, low, N);

    for (size_t i = 4; i < N; i++) {
        const double sum = (double)bf16_to_f32(high[i]) + (double)bf16_to_f32(low[i]);

        cr_assert(high[i] == bf16_of_f32(x[i]));
        cr_assert(fabs(sum - (double)x[i]) <= 0x1p-16 * fabs((double)x[i]), "element %zu: %a of %a", i, sum,
                  (double)x[i]);
    }
    for (size_t i = 0; i < 4; i++)
        cr_assert(high[i] == bf16_of_f32(x[i]) && low[i] == 0, "element %zu", i);
    free(x);
    numerics_close(&numerics);
}

/* By plain loops, on every CPU: three of the four products are enough for 3 * 2^-16 of the terms' sizes. */
FAST_ROWS_TEST(numerics_split, three_products_are_within_three_parts_of_65536)
{
    enum { K = 777 };
    struct numerics numerics;
    float *a = random_floats(1, K, 1.0f), *b = random_floats(2, K, 1.0f);
    uint16_t a1[K], a2[K], b1[K], b2[K];
    double got = 0, want = 0, size = 0, one = 0;

    row_open(&numerics, row);
    ((const struct rows *)numerics.state)->kernels->split_bf16(a, a1, a2, K);
    ((const struct rows *)numerics.state)->kernels->split_bf16(b, b1, b2, K);
    for (size_t k = 0; k < K; k++) {
        const double high_a = (double)bf16_to_f32(a1[k]), high_b = (double)bf16_to_f32(b1[k]);

        got += high_a * high_b + high_a * (double)bf16_to_f32(b2[k]) + (double)bf16_to_f32(a2[k]) * high_b;
        one += high_a * high_b;
        want += (double)a[k] * (double)b[k];
        size += fabs((double)a[k] * (double)b[k]);
    }
    cr_assert(fabs(got - want) <= 3 * 0x1p-16 * size, "off by %g of %g", got - want, size);
    cr_assert(fabs(one - want) > fabs(got - want), "the small products do nothing");
    free(a);
    free(b);
    numerics_close(&numerics);
}

#ifndef FSDP_WITHOUT_ONEDNN
struct shape {
    size_t m, n, k;
    bool a_by_cols, b_by_cols, bias, accumulate;
    float alpha;
};

/* All layouts that a linear's three products have, and their epilogues. */
static const struct shape shapes[] = {
    { 65, 70, 129, false, true, true, false, 1.0f }, { 64, 96, 33, false, false, false, true, 1.0f },
    { 40, 31, 64, true, false, false, false, 1.0f }, { 40, 31, 64, true, false, false, true, 0.5f },
    { 3, 5, 7, false, true, true, false, 0.25f },    { 256, 256, 512, false, true, false, false, 1.0f },
};

static struct matmul_view view(size_t rows, size_t cols, bool by_cols)
{
    return (struct matmul_view){ .row_stride = by_cols ? 1 : cols + 3, .col_stride = by_cols ? rows + 3 : 1 };
}

static void check(struct numerics *n, const struct shape *s)
{
    const struct matmul_desc desc = { .outer = 1,
                                      .inner = 1,
                                      .m = s->m,
                                      .n = s->n,
                                      .k = s->k,
                                      .a = view(s->m, s->k, s->a_by_cols),
                                      .b = view(s->k, s->n, s->b_by_cols),
                                      .c = view(s->m, s->n, false),
                                      .dtype = FSDP_F32,
                                      .c_dtype = FSDP_F32,
                                      .bias = s->bias,
                                      .accumulate = s->accumulate,
                                      .alpha = s->alpha };
    float *a = random_floats(1, (s->m + 3) * (s->k + 3), 1.0f),
          *b = random_floats(2, (s->k + 3) * (s->n + 3), 1.0f), *bias = random_floats(3, s->n, 1.0f),
          *c = random_floats(4, s->m * (s->n + 3), 1.0f), *before = copy_floats(c, s->m * (s->n + 3));
    struct matmul *matmul;
    struct fsdp_err err = { 0 };
    size_t bytes;
    void *scratch;

    cr_assert(n->ops->matmul_create(n, &desc, &matmul, &bytes, &err) == FSDP_OK, "%s", err.message);
    cr_assert(ge(sz, bytes, 4 * (s->m * s->k + s->k * s->n)), "the parts need room: %zu", bytes);
    scratch = aligned_alloc(64, (bytes + 63) / 64 * 64);
    cr_assert(n->ops->matmul_run(matmul, NULL, a, b, s->bias ? bias : NULL, c, scratch, &err) == FSDP_OK);
    for (size_t i = 0; i < s->m; i++)
        for (size_t j = 0; j < s->n + 3; j++) {
            const size_t at = i * (s->n + 3) + j;
            double want = s->accumulate         ? (double)before[at]
                          : s->bias && j < s->n ? (double)bias[j]
                                                : 0,
                   size = fabs(want);

            if (j >= s->n) {
                cr_assert(memcmp(&c[at], &before[at], sizeof *c) == 0, "between the rows");
                continue;
            }
            for (size_t k = 0; k < s->k; k++) {
                const double term = (double)s->alpha *
                                    (double)a[i * desc.a.row_stride + k * desc.a.col_stride] *
                                    (double)b[k * desc.b.row_stride + j * desc.b.col_stride];

                want += term;
                size += fabs(term);
            }
            /* The split's 3 * 2^-16, and sums in float32 of 3 k terms. */
            cr_assert(fabs((double)c[at] - want) <= (3 * 0x1p-16 + (double)(3 * s->k) * 0x1p-24) * size,
                      "%zu x %zu x %zu: (%zu, %zu) is %g for %g", s->m, s->n, s->k, i, j, (double)c[at],
                      want);
        }
    n->ops->matmul_destroy(matmul);
    free(a);
    free(b);
    free(bias);
    free(c);
    free(before);
    free(scratch);
}

Test(numerics_split, onednn_s_products_are_as_close)
{
    const struct numerics_config config = {
        .threads = 1, .name = "onednn", .precision = FSDP_MATMUL_HIGH, .splits_anyway = true
    };
    struct numerics numerics;
    char line[256];

    cr_assert(numerics_open(&numerics, &config, NULL) == FSDP_OK);
    if (!numerics.bf16_products) {
        numerics_close(&numerics);
        cr_skip_test("no products of bfloat16 on this CPU");
    }
    cr_expect(strstr(numerics_describe(&numerics, line, sizeof line),
                     "float32 as three products of bfloat16") != NULL,
              "%s", line);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check(&numerics, &shapes[i]);
    numerics_close(&numerics);
}

/* Asked for where it would only cost time, it changes no bit, and says so; not asked for, nobody speaks of it. */
Test(numerics_split, without_amx_it_is_said_that_nothing_changes)
{
    struct numerics_config config = { .threads = 1, .name = "onednn", .precision = FSDP_MATMUL_HIGH };
    struct numerics numerics;
    char line[256];
    bool splits, says_so, says_not;

    cr_assert(numerics_open(&numerics, &config, NULL) == FSDP_OK);
    numerics_describe(&numerics, line, sizeof line);
    splits = numerics.splits_products;
    says_so = strstr(line, "as three products") != NULL;
    says_not = strstr(line, "high without effect: no AMX") != NULL;
    cr_expect(says_so == splits, "%s", line);
    cr_expect(says_not != splits, "%s", line);
    numerics_close(&numerics);
    config.precision = FSDP_MATMUL_HIGHEST;
    cr_assert(numerics_open(&numerics, &config, NULL) == FSDP_OK);
    says_so = strstr(numerics_describe(&numerics, line, sizeof line), "high") != NULL;
    splits = numerics.splits_products;
    cr_expect(says_so == false && splits == false, "%s", line);
    numerics_close(&numerics);
}
#endif
