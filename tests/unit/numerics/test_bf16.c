/*
 * Operations on bfloat16 tensors: each must give what float32 gives on the same numbers, rounded once. The
 * float32 operations of the same row are the measure; they are held against doubles elsewhere.
 */
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "tests/unit/numerics/rows.h"

FAST_ROWS_TEST(numerics_bf16, conversions_are_core_s)
{
    float values[] = { 0,        -0.0f,  1,        1.00390625f, 1.01171875f, 3.4e38f,
                       -3.4e38f, 1e-40f, INFINITY, -INFINITY,   NAN };
    const size_t n = sizeof values / sizeof *values;
    uint16_t *narrow = narrow_of(values, n), zeros[16], out[16];

    for (size_t i = 0; i < n; i++)
        zeros[i] = 0x8000; /* -0: x + -0 is x, -0 included */
    op_add(numerics, NULL, FSDP_BF16, narrow, zeros, out, n);
    for (size_t i = 0; i + 1 < n; i++)
        cr_assert(out[i] == narrow[i], "%a became %a", (double)values[i], (double)bf16_to_f32(out[i]));
    cr_assert(bf16_to_f32(out[n - 1]) != bf16_to_f32(out[n - 1]), "a NaN stays one");
}

FAST_ROWS_TEST(numerics_bf16, elementwise_is_float32_rounded_once)
{
    for (size_t s = 0; s < n_odd_sizes; s++) {
        const size_t n = odd_sizes[s] * 37;
        uint16_t *a16, *b16, *out16 = row_zeros((n + 1) * sizeof *out16);
        float *a = narrow_floats(1, n, 2, &a16), *b = narrow_floats(2, n, 2, &b16),
              *out = row_zeros((n + 1) * sizeof *out);

        op_add(numerics, NULL, FSDP_F32, a, b, out, n);
        op_add(numerics, NULL, FSDP_BF16, a16, b16, out16, n);
        assert_rounded(row, "add", out16, out, n);
        for (int function = 0; function < NUMERICS_N_FUNCTIONS; function++) {
            const enum numerics_function f = (enum numerics_function)function;
            uint16_t *dx16 = narrow_of(a, n);

            op_activation(numerics, NULL, FSDP_F32, f, a, out, n);
            op_activation(numerics, NULL, FSDP_BF16, f, a16, out16, n);
            assert_rounded(row, "activation", out16, out, n);
            op_activation_backward(numerics, NULL, FSDP_F32, f, a, b, out, n);
            op_activation_backward(numerics, NULL, FSDP_BF16, f, dx16, b16, dx16, n); /* in place */
            assert_rounded(row, "activation_backward", dx16, out, n);
        }
    }
}

FAST_ROWS_TEST(numerics_bf16, column_sums)
{
    static const size_t rows_of[] = { 0, 1, 31, 33, 700 };

    for (size_t r = 0; r < 5; r++)
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            const size_t rows = rows_of[r], cols = 523;
            uint16_t *x16, *start16, *narrow;
            float *x = narrow_floats(3, rows * cols, 1, &x16), *start = narrow_floats(4, cols, 1, &start16);
            float *wide = copy_floats(start, cols);
            double *want = row_zeros(cols * sizeof *want);

            narrow = narrow_of(start, cols);
            for (size_t j = 0; j < cols; j++) {
                want[j] = accumulate ? (double)start[j] : 0;
                for (size_t i = 0; i < rows; i++)
                    want[j] += (double)x[i * cols + j];
            }
            op_column_sum(numerics, NULL, FSDP_BF16, x16, FSDP_F32, wide, rows, cols, accumulate);
            assert_near(row, "column_sum", wide, want, cols, 1e-6, 2e-5);
            op_column_sum(numerics, NULL, FSDP_BF16, x16, FSDP_BF16, narrow, rows, cols, accumulate);
            assert_rounded(row, "column_sum", narrow, wide, cols);
        }
}

FAST_ROWS_TEST(numerics_bf16, softmax_is_float32_rounded_once)
{
    static const size_t seqs[] = { 1, 3, 17, 64, 100 };

    for (size_t s = 0; s < 5; s++)
        for (int causal = 0; causal < 2; causal++) {
            const struct attention_desc d = { 2, seqs[s], 3, 8, causal };
            const size_t n = d.batch * d.heads * d.seq * d.seq;
            uint16_t *p16 = row_zeros(n * sizeof *p16), *unused;
            float *scores = random_floats(11, n, 3), *scores16 = copy_floats(scores, n);
            float *dp = random_floats(12, n, 1), *dp16 = copy_floats(dp, n),
                  *p = narrow_floats(13, n, 1, &unused);

            op_softmax(numerics, NULL, scores, NULL, &d, NULL);
            op_softmax_bf16(numerics, NULL, scores16, p16, &d);
            assert_rounded(row, "softmax", p16, scores, n);
            for (size_t i = 0; i < n; i++)
                p[i] = bf16_to_f32(p16[i]);
            op_softmax_backward(numerics, NULL, p, dp, dp, &d, NULL);
            op_softmax_backward_bf16(numerics, NULL, p16, dp16, &d);
            assert_rounded(row, "softmax_backward", p16, dp, n);
        }
}

struct shape {
    size_t m, n, k;
    bool a_transposed, b_transposed, bias, accumulate;
    enum fsdp_dtype c_dtype;
};

static struct matmul_desc desc_of(const struct shape *s, enum fsdp_dtype dtype)
{
    struct matmul_desc d = op_product(s->m, s->n, s->k, s->a_transposed, s->b_transposed);

    d.dtype = dtype;
    d.c_dtype = dtype == FSDP_F32 ? FSDP_F32 : s->c_dtype;
    d.bias = s->bias;
    d.accumulate = s->accumulate;
    return d;
}

/*
 * Products of bfloat16 are exact in float32: what differs is the order of the sums, and one rounding of the
 * result.
 */
static void compare_products(const struct row_case *row, struct numerics *numerics, const struct shape *s)
{
    const size_t n = s->m * s->n;
    uint16_t *a16, *b16, *bias16, *c16;
    float *a = narrow_floats(20, s->m * s->k, 1, &a16), *b = narrow_floats(21, s->k * s->n, 1, &b16);
    float *bias = narrow_floats(22, s->n, 1, &bias16), *c = narrow_floats(23, n, 1, &c16),
          *wide = copy_floats(c, n);
    double *want = row_zeros((n + 1) * sizeof *want);
    const struct matmul_desc d = desc_of(s, FSDP_F32), d16 = desc_of(s, FSDP_BF16);

    cr_assert(op_multiply(numerics, &d, a, b, bias, c, NULL) == FSDP_OK);
    cr_assert(op_multiply(numerics, &d16, a16, b16, bias16,
                          s->c_dtype == FSDP_F32 ? (void *)wide : (void *)c16, NULL) == FSDP_OK);
    for (size_t i = 0; i < n; i++) {
        want[i] = (double)c[i];
        if (s->c_dtype == FSDP_BF16)
            wide[i] = bf16_to_f32(c16[i]);
    }
    assert_near(row, "product", wide, want, n, s->c_dtype == FSDP_F32 ? 1e-5 : 0x1p-8, 1e-4);
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
    const struct matmul_desc d = desc_of(&shapes[0], FSDP_BF16);

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes && numerics->bf16_products; i++)
        compare_products(row, numerics, &shapes[i]);
    if (!numerics->bf16_products)
        cr_assert(op_multiply(numerics, &d, NULL, NULL, NULL, NULL, NULL) == FSDP_ERR_UNSUPPORTED);
}
