/*
 * Operations on bfloat16 tensors: each must give what float32 gives on the same numbers, rounded once. The float32
 * operations of the same row are the measure; they are held against doubles elsewhere.
 */
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "tests/unit/numerics/rows.h"

static uint16_t *narrow_of(const float *x, size_t n)
{
    uint16_t *narrow = malloc(n * sizeof *narrow + 1);

    for (size_t i = 0; i < n; i++)
        narrow[i] = bf16_of_f32(x[i]);
    return narrow;
}

/* Random numbers that bfloat16 holds, in both dtypes. */
static float *numbers(uint64_t seed, size_t n, float std, uint16_t **narrow)
{
    float *x = random_floats(seed, n, std);

    *narrow = narrow_of(x, n);
    for (size_t i = 0; i < n; i++)
        x[i] = bf16_to_f32((*narrow)[i]);
    return x;
}

static void assert_rounded(const struct row_case *row, const char *what, const uint16_t *got,
                           const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++)
        cr_assert(got[i] == bf16_of_f32(want[i]), "%s %s: %s: element %zu of %zu is %a, not %a rounded",
                  row->name, row->isa, what, i, n, (double)bf16_to_f32(got[i]), (double)want[i]);
}

static bool has_bf16(struct numerics *numerics)
{
    if (numerics->ops->bf16 != NULL)
        return true;
    numerics_close(numerics);
    return false;
}

FAST_ROWS_TEST(numerics_bf16, conversions_are_core_s)
{
    struct numerics numerics;
    float values[] = { 0,        -0.0f,  1,        1.00390625f, 1.01171875f, 3.4e38f,
                       -3.4e38f, 1e-40f, INFINITY, -INFINITY,   NAN };
    const size_t n = sizeof values / sizeof *values;
    uint16_t *narrow = narrow_of(values, n), zeros[16], out[16];

    row_open(&numerics, row);
    if (!has_bf16(&numerics))
        return;
    for (size_t i = 0; i < n; i++)
        zeros[i] = 0x8000; /* -0: x + -0 is x, -0 included */
    numerics.ops->bf16->add(&numerics, NULL, narrow, zeros, out, n);
    for (size_t i = 0; i + 1 < n; i++)
        cr_assert(out[i] == narrow[i], "%a became %a", (double)values[i], (double)bf16_to_f32(out[i]));
    cr_assert(bf16_to_f32(out[n - 1]) != bf16_to_f32(out[n - 1]), "a NaN stays one");
    free(narrow);
    numerics_close(&numerics);
}

FAST_ROWS_TEST(numerics_bf16, elementwise_is_float32_rounded_once)
{
    struct numerics numerics;

    row_open(&numerics, row);
    if (!has_bf16(&numerics))
        return;
    for (size_t s = 0; s < n_odd_sizes; s++) {
        const size_t n = odd_sizes[s] * 37;
        uint16_t *a16, *b16, *out16 = calloc(n + 1, sizeof *out16);
        float *a = numbers(1, n, 2, &a16), *b = numbers(2, n, 2, &b16), *out = calloc(n + 1, sizeof *out);

        numerics.ops->add(&numerics, NULL, a, b, out, n);
        numerics.ops->bf16->add(&numerics, NULL, a16, b16, out16, n);
        assert_rounded(row, "add", out16, out, n);
        numerics.ops->gelu(&numerics, NULL, a, out, n);
        numerics.ops->bf16->gelu(&numerics, NULL, a16, out16, n);
        assert_rounded(row, "gelu", out16, out, n);
        numerics.ops->gelu_tanh(&numerics, NULL, a, out, n);
        numerics.ops->bf16->gelu_tanh(&numerics, NULL, a16, out16, n);
        assert_rounded(row, "gelu_tanh", out16, out, n);
        numerics.ops->gelu_tanh_backward(&numerics, NULL, a, b, out, n);
        numerics.ops->bf16->gelu_tanh_backward(&numerics, NULL, a16, b16, out16, n);
        assert_rounded(row, "gelu_tanh_backward", out16, out, n);
        numerics.ops->gelu_backward(&numerics, NULL, a, b, out, n);
        numerics.ops->bf16->gelu_backward(&numerics, NULL, a16, b16, a16, n); /* in place */
        assert_rounded(row, "gelu_backward", a16, out, n);
        free(a16), free(b16), free(out16), free(a), free(b), free(out);
    }
    numerics_close(&numerics);
}

FAST_ROWS_TEST(numerics_bf16, column_sums)
{
    static const size_t rows_of[] = { 0, 1, 31, 33, 700 };
    struct numerics numerics;

    row_open(&numerics, row);
    if (!has_bf16(&numerics))
        return;
    for (size_t r = 0; r < 5; r++)
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            const size_t rows = rows_of[r], cols = 523;
            uint16_t *x16, *start16, *narrow;
            float *x = numbers(3, rows * cols, 1, &x16), *start = numbers(4, cols, 1, &start16);
            float *wide = copy_floats(start, cols);
            double *want = calloc(cols, sizeof *want);

            narrow = narrow_of(start, cols);
            for (size_t j = 0; j < cols; j++) {
                want[j] = accumulate ? (double)start[j] : 0;
                for (size_t i = 0; i < rows; i++)
                    want[j] += (double)x[i * cols + j];
            }
            numerics.ops->bf16->column_sum(&numerics, NULL, x16, wide, FSDP_F32, rows, cols, accumulate);
            assert_near(row, "column_sum", wide, want, cols, 1e-6, 2e-5);
            numerics.ops->bf16->column_sum(&numerics, NULL, x16, narrow, FSDP_BF16, rows, cols, accumulate);
            assert_rounded(row, "column_sum", narrow, wide, cols);
            free(x16), free(start16), free(narrow), free(x), free(start), free(wide), free(want);
        }
    numerics_close(&numerics);
}

static void compare_norms(const struct row_case *row, struct numerics *numerics, size_t rows, size_t cols,
                          bool accumulate)
{
    const size_t n = rows * cols;
    uint16_t *x16, *w16, *b16, *dy16, *dx16, *y16 = calloc(n, sizeof *y16), *dw16;
    float *x = numbers(5, n, 1, &x16), *w = numbers(6, cols, 1, &w16), *b = numbers(7, cols, 1, &b16);
    float *dy = numbers(8, n, 1, &dy16), *dx = numbers(9, n, 1, &dx16), *y = calloc(n, sizeof *y);
    float *dw = numbers(10, cols, 1, &dw16), *db = copy_floats(dw, cols), *db32 = copy_floats(dw, cols);
    float *mean = calloc(rows, sizeof *mean), *rstd = calloc(rows, sizeof *rstd);
    float *mean16 = calloc(rows, sizeof *mean), *rstd16 = calloc(rows, sizeof *rstd);
    void *scratch = malloc(numerics->ops->layer_norm_scratch(numerics, rows, cols));
    void *scratch16 = malloc(numerics->ops->bf16->layer_norm_scratch(numerics, rows, cols));
    double *want = calloc(cols, sizeof *want);

    numerics->ops->layer_norm(numerics, NULL, x, w, b, y, mean, rstd, rows, cols, 1e-5f);
    numerics->ops->bf16->layer_norm(numerics, NULL, x16, w16, b16, y16, mean16, rstd16, rows, cols, 1e-5f);
    assert_rounded(row, "layer_norm", y16, y, n);
    cr_assert(memcmp(mean, mean16, rows * sizeof *mean) == 0 &&
              memcmp(rstd, rstd16, rows * sizeof *rstd) == 0);
    numerics->ops->layer_norm_backward(numerics, NULL, dy, x, w, mean, rstd, dx, accumulate, dw, db,
                                       accumulate, scratch, rows, cols);
    numerics->ops->bf16->layer_norm_backward(numerics, NULL,
                                             &(struct numerics_bf16_norm){ .dy = dy16,
                                                                           .x = x16,
                                                                           .weight = w16,
                                                                           .mean = mean,
                                                                           .rstd = rstd,
                                                                           .dx = dx16,
                                                                           .accumulate_dx = accumulate,
                                                                           .dweight = dw16,
                                                                           .dbias = db32,
                                                                           .dweight_dtype = FSDP_BF16,
                                                                           .dbias_dtype = FSDP_F32,
                                                                           .accumulate_dweight = accumulate,
                                                                           .accumulate_dbias = accumulate },
                                             scratch16, rows, cols);
    assert_rounded(row, "layer_norm dx", dx16, dx, n);
    for (size_t j = 0; j < cols; j++)
        want[j] = (double)db[j];
    assert_near(row, "layer_norm dbias", db32, want, cols, 1e-6, 1e-5);
    for (size_t j = 0; j < cols; j++) { /* sums in another order may round to the neighbour */
        want[j] = (double)dw[j];
        db[j] = bf16_to_f32(dw16[j]);
    }
    assert_near(row, "layer_norm dweight", db, want, cols, 0x1p-8, 1e-5);
    free(x16), free(w16), free(b16), free(dy16), free(dx16), free(y16), free(dw16), free(x), free(w), free(b);
    free(dy), free(dx), free(y), free(dw), free(db), free(db32), free(mean), free(rstd), free(mean16);
    free(rstd16), free(scratch), free(scratch16), free(want);
}

FAST_ROWS_TEST(numerics_bf16, layer_norm_is_float32_rounded_once)
{
    struct numerics numerics;

    row_open(&numerics, row);
    if (!has_bf16(&numerics))
        return;
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        compare_norms(row, &numerics, 1, 1, accumulate);
        compare_norms(row, &numerics, 7, 19, accumulate);
        compare_norms(row, &numerics, 333, 65, accumulate);
        compare_norms(row, &numerics, 3, NUMERICS_BF16_MAX_COLS, accumulate);
    }
    numerics_close(&numerics);
}

FAST_ROWS_TEST(numerics_bf16, softmax_is_float32_rounded_once)
{
    static const size_t seqs[] = { 1, 3, 17, 64, 100 };
    struct numerics numerics;

    row_open(&numerics, row);
    if (!has_bf16(&numerics))
        return;
    for (size_t s = 0; s < 5; s++)
        for (int causal = 0; causal < 2; causal++) {
            const struct attention_desc d = { 2, seqs[s], 3, 8, causal };
            const size_t n = d.batch * d.heads * d.seq * d.seq;
            uint16_t *p16 = calloc(n, sizeof *p16), *unused;
            float *scores = random_floats(11, n, 3), *scores16 = copy_floats(scores, n);
            float *dp = random_floats(12, n, 1), *dp16 = copy_floats(dp, n), *p = numbers(13, n, 1, &unused);

            numerics.ops->softmax(&numerics, NULL, scores, NULL, &d, NULL);
            numerics.ops->bf16->softmax(&numerics, NULL, scores16, p16, &d);
            assert_rounded(row, "softmax", p16, scores, n);
            for (size_t i = 0; i < n; i++)
                p[i] = bf16_to_f32(p16[i]);
            numerics.ops->softmax_backward(&numerics, NULL, p, dp, dp, &d, NULL);
            numerics.ops->bf16->softmax_backward(&numerics, NULL, p16, dp16, &d);
            assert_rounded(row, "softmax_backward", p16, dp, n);
            free(p16), free(unused), free(scores), free(scores16), free(dp), free(dp16), free(p);
        }
    numerics_close(&numerics);
}

struct shape {
    size_t m, n, k;
    bool a_transposed, b_transposed, bias, accumulate;
    enum fsdp_dtype c_dtype;
};

static void fill(const struct shape *shape, struct matmul_desc *d, enum fsdp_dtype dtype)
{
    *d = (struct matmul_desc){
        .outer = 1,
        .inner = 1,
        .m = shape->m,
        .n = shape->n,
        .k = shape->k,
        .a = { 0, 0, shape->a_transposed ? 1 : shape->k, shape->a_transposed ? shape->m : 1 },
        .b = { 0, 0, shape->b_transposed ? 1 : shape->n, shape->b_transposed ? shape->k : 1 },
        .c = { 0, 0, shape->n, 1 },
        .dtype = dtype,
        .c_dtype = dtype == FSDP_F32 ? FSDP_F32 : shape->c_dtype,
        .bias = shape->bias,
        .accumulate = shape->accumulate,
        .alpha = 1.0f
    };
}

static void multiply(struct numerics *numerics, const struct matmul_desc *d, const void *a, const void *b,
                     const void *bias, void *c)
{
    struct fsdp_err err = { 0 };
    struct matmul *matmul;
    size_t scratch_bytes;
    void *scratch;

    cr_assert(numerics->ops->matmul_create(numerics, d, &matmul, &scratch_bytes, &err) == FSDP_OK, "%s",
              err.message);
    scratch = aligned_alloc(64, (scratch_bytes + 64) / 64 * 64);
    cr_assert(numerics->ops->matmul_run(matmul, NULL, a, b, bias, c, scratch, &err) == FSDP_OK, "%s",
              err.message);
    numerics->ops->matmul_destroy(matmul);
    free(scratch);
}

/* Products of bfloat16 are exact in float32: what differs is the order of the sums, and one rounding of the result. */
static void compare_products(const struct row_case *row, struct numerics *numerics, const struct shape *s)
{
    const size_t n = s->m * s->n;
    uint16_t *a16, *b16, *bias16, *c16;
    float *a = numbers(20, s->m * s->k, 1, &a16), *b = numbers(21, s->k * s->n, 1, &b16);
    float *bias = numbers(22, s->n, 1, &bias16), *c = numbers(23, n, 1, &c16), *wide = copy_floats(c, n);
    double *want = calloc(n + 1, sizeof *want);
    struct matmul_desc d, d16;

    fill(s, &d, FSDP_F32);
    fill(s, &d16, FSDP_BF16);
    multiply(numerics, &d, a, b, bias, c);
    multiply(numerics, &d16, a16, b16, bias16, s->c_dtype == FSDP_F32 ? (void *)wide : (void *)c16);
    for (size_t i = 0; i < n; i++) {
        want[i] = (double)c[i];
        if (s->c_dtype == FSDP_BF16)
            wide[i] = bf16_to_f32(c16[i]);
    }
    assert_near(row, "product", wide, want, n, s->c_dtype == FSDP_F32 ? 1e-5 : 0x1p-8, 1e-4);
    free(a16), free(b16), free(bias16), free(c16), free(a), free(b), free(bias), free(c), free(wide),
        free(want);
}

FAST_ROWS_TEST(numerics_bf16, products)
{
    struct shape shapes[] = {
        { 33, 47, 65, false, true, true, false, FSDP_BF16 },
        { 33, 65, 47, false, false, false, false, FSDP_BF16 },
        { 33, 65, 47, false, false, false, true, FSDP_BF16 },
        { 47, 65, 33, true, false, false, false, FSDP_F32 },
        { 47, 65, 33, true, false, false, true, FSDP_F32 },
        { 47, 65, 33, true, false, false, true, FSDP_BF16 },
        { 1, 1, 1, false, true, true, false, FSDP_BF16 },
        { 5, 3, 0, false, true, true, false, FSDP_BF16 },
        { 5, 3, 0, false, true, false, false, FSDP_F32 },
    };
    struct matmul_desc d;
    struct matmul *matmul;
    struct numerics numerics;
    size_t scratch_bytes;

    row_open(&numerics, row);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes && numerics.bf16_products; i++)
        compare_products(row, &numerics, &shapes[i]);
    if (!numerics.bf16_products) {
        fill(&shapes[0], &d, FSDP_BF16);
        cr_assert(numerics.ops->matmul_create(&numerics, &d, &matmul, &scratch_bytes, NULL) ==
                  FSDP_ERR_UNSUPPORTED);
    }
    numerics_close(&numerics);
}

FAST_ROWS_TEST(numerics_bf16, a_sum_and_its_norm_in_one_pass_change_no_bit)
{
    enum { ROWS = 65, COLS = 131, N = ROWS * COLS };
    struct numerics numerics;
    uint16_t *a, *b, *weight, *bias, sum[N], want[N], x[N], got[N];
    float *const wide[] = { numbers(1, N, 1.0f, &a), numbers(2, N, 1.0f, &b), numbers(3, COLS, 1.0f, &weight),
                            numbers(4, COLS, 1.0f, &bias) };
    float mean[2][ROWS], rstd[2][ROWS];

    row_open(&numerics, row);
    if (has_bf16(&numerics)) {
        const struct numerics_add_norm both = { .a = a,
                                                .b = b,
                                                .x = x,
                                                .y = got,
                                                .weight = weight,
                                                .bias = bias,
                                                .mean = mean[1],
                                                .rstd = rstd[1],
                                                .rows = ROWS,
                                                .cols = COLS,
                                                .eps = 1e-5f };

        numerics.ops->bf16->add(&numerics, NULL, a, b, sum, N);
        numerics.ops->bf16->layer_norm(&numerics, NULL, sum, weight, bias, want, mean[0], rstd[0], ROWS, COLS,
                                       1e-5f);

        numerics.ops->add_layer_norm(&numerics, NULL, FSDP_BF16, &both);

        cr_assert(memcmp(x, sum, sizeof x) == 0 && memcmp(got, want, sizeof got) == 0);
        cr_assert(memcmp(mean[0], mean[1], sizeof mean[0]) == 0 &&
                  memcmp(rstd[0], rstd[1], sizeof rstd[0]) == 0);
        numerics_close(&numerics);
    }
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        free(wide[i]);
    free(a);
    free(b);
    free(weight);
    free(bias);
}
