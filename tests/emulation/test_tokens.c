/* Embedding and cross-entropy. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/rng.h"
#include "tests/emulation/cases.h"

TestSuite(emulated_tokens, .fini = cases_end);

struct token_case {
    size_t rows, cols, seq, vocab;
    enum fsdp_dtype dtype, grad_dtype;
    bool positions;
    size_t of_one; /* the first so many rows are token 0's; 0: tokens are drawn */
    int32_t *tokens;
    struct operand table, at, out, dtable, dpositions;
    void *scratch;
};

static int32_t *random_tokens(size_t rows, size_t vocab, uint64_t seed)
{
    int32_t *tokens = case_bytes(rows * sizeof *tokens);

    for (size_t i = 0; i < rows; i++)
        tokens[i] = (int32_t)rng_below(seed, i, vocab);
    return tokens;
}

static int run_embedding(void *context)
{
    struct token_case *c = context;

    return kernel_embedding(NULL, c->tokens, c->table.data, c->positions ? c->at.data : NULL, c->out.data,
                            c->rows, c->cols, c->seq, c->dtype);
}

Test(emulated_tokens, embedding_is_refs_bit_for_bit)
{
    static const size_t cols[] = { 1, 5, 8, 64 };

    for (size_t v = 0; v < 16; v++) {
        struct token_case c = { .rows = 14,
                                .cols = cols[v % 4],
                                .seq = 7,
                                .vocab = 11,
                                .dtype = v / 4 % 2 ? FSDP_BF16 : FSDP_F32,
                                .positions = v / 8 };

        c.tokens = random_tokens(c.rows, c.vocab, v);
        c.table = operand_random(c.dtype, c.vocab * c.cols, 1, 1.0f);
        c.at = operand_random(c.dtype, c.seq * c.cols, 2, 1.0f);
        c.out = operand_empty(c.dtype, c.rows * c.cols);

        under_schedules(run_embedding, &c, &c.out, NULL);

        op_embedding(OP_REF, NULL, c.tokens, c.table.values, c.positions ? c.at.values : NULL, c.out.expected,
                     c.rows, c.cols, c.seq);
        expect_exact(&c.out, "embedding");
        cases_end();
    }
}

static int run_gradient(void *context)
{
    struct token_case *c = context;

    return kernel_embedding_backward(NULL, c->tokens, c->out.data, c->dtype, c->dtable.data,
                                     c->positions ? c->dpositions.data : NULL, c->grad_dtype, c->rows,
                                     c->cols, c->seq, c->scratch);
}

/*
 * A token of at most 32 rows has ref's bits. The rows of another are added in pieces of 32 in float32, and
 * the pieces in double. The bits are those, which are near the sum in double.
 */
static void expect_sum(const struct token_case *c, size_t token, size_t j, float before)
{
    const float got = c->dtable.values[token * c->cols + j];
    float in_order = before, piece = 0, want;
    double pieces = (double)before, sum = pieces, size = fabs(sum);
    size_t n = 0;

    for (size_t i = 0; i < c->rows; i++) {
        const float term = c->out.values[i * c->cols + j];

        if ((size_t)c->tokens[i] != token)
            continue;
        if (n > 0 && n % 32 == 0) {
            pieces += (double)piece;
            piece = 0;
        }
        in_order += term;
        piece += term;
        sum += (double)term;
        size += fabs((double)term);
        n++;
    }
    want = n <= 32 ? in_order : (float)(pieces + (double)piece);
    if (c->grad_dtype == FSDP_BF16)
        want = bf16_to_f32(bf16_of_f32(want));
    cr_assert(memcmp(&got, &want, sizeof got) == 0, "token %zu, %zu rows: %.9g, not %.9g", token, n,
              (double)got, (double)want);
    cr_assert(n <= 32 || fabs((double)got - sum) <= 32 * (double)roundoff(FSDP_F32) * size +
                                                        (double)roundoff(c->grad_dtype) * fabs(sum),
              "token %zu, %zu rows: %.9g is far from %.9g", token, n, (double)got, sum);
}

static void check_gradient(struct token_case c)
{
    c.tokens = random_tokens(c.rows, c.vocab, c.rows);
    for (size_t i = 0; c.of_one > 0 && i < c.rows; i++)
        c.tokens[i] = i < c.of_one ? 0 : 1 + c.tokens[i] % (int32_t)(c.vocab - 1);
    c.out = operand_random(c.dtype, c.rows * c.cols, 1, 1.0f);
    c.dtable = operand_random(c.grad_dtype, c.vocab * c.cols, 2, 1.0f);
    c.dpositions = operand_random(c.grad_dtype, c.seq * c.cols, 3, 1.0f);
    c.scratch = case_bytes(cuda_embedding_backward_bytes(c.rows, c.cols));

    under_schedules(run_gradient, &c, &c.dtable, &c.dpositions, NULL);

    for (size_t token = 0; token < c.vocab; token++)
        for (size_t j = 0; j < c.cols; j++)
            expect_sum(&c, token, j, c.dtable.expected[token * c.cols + j]);
    op_embedding_backward(OP_REF, NULL, c.tokens, c.out.values, c.dtable.expected,
                          c.positions ? c.dpositions.expected : NULL, c.rows, c.cols, c.seq);
    expect_exact(&c.dpositions, "dpositions");
    cases_end();
}

Test(emulated_tokens, embedding_backward_adds_in_refs_order)
{
    static const size_t rows[] = { 1, 3, 14, 21 };

    for (size_t v = 0; v < 16; v++)
        check_gradient((struct token_case){ .rows = rows[v % 4],
                                            .cols = v % 3 == 0 ? 130 : 5,
                                            .seq = rows[v % 4] % 7 == 0 ? 7 : rows[v % 4],
                                            .vocab = 9,
                                            .dtype = v / 4 % 2 ? FSDP_BF16 : FSDP_F32,
                                            .grad_dtype = v / 4 % 2 ? FSDP_BF16 : FSDP_F32,
                                            .positions = v / 8 });
}

/*
 * More rows than one sorted tile, and than two: full and partial merges. One token alone, and as many as
 * rows.
 */
Test(emulated_tokens, embedding_backward_sorts_runs_of_any_length)
{
    check_gradient(
        (struct token_case){ .rows = 1025, .cols = 2, .seq = 41, .vocab = 700, .dtype = FSDP_F32 });
    check_gradient(
        (struct token_case){ .rows = 1030, .cols = 1, .seq = 1030, .vocab = 1, .dtype = FSDP_BF16 });
    check_gradient(
        (struct token_case){ .rows = 3300, .cols = 1, .seq = 3300, .vocab = 1000, .dtype = FSDP_F32 });
}

/*
 * A token of so many rows: on both sides of a piece's end, first and after other tokens, alone in its sorted
 * keys and not. Groups of 4 columns and single ones.
 */
Test(emulated_tokens, embedding_backward_cuts_long_runs)
{
    static const size_t of_one[] = { 31, 32, 33, 63, 64, 65, 96, 200 };

    for (size_t v = 0; v < 16; v++)
        check_gradient((struct token_case){ .rows = 200,
                                            .cols = v % 2 ? 4 : 3,
                                            .seq = 40,
                                            .vocab = v % 3 == 0   ? 2
                                                     : v % 3 == 1 ? 5
                                                                  : 50,
                                            .dtype = FSDP_F32,
                                            .grad_dtype = v % 5 == 4 ? FSDP_BF16 : FSDP_F32,
                                            .positions = v % 4 == 0,
                                            .of_one = of_one[v / 2] });
}

struct loss_case {
    size_t rows, vocab, stride; /* stride 0: adjacent rows */
    enum fsdp_dtype dtype;
    bool in_place, gradient;
    float scale;
    int32_t *targets;
    struct operand logits, dlogits, sums; /* sums: a double and a uint64, as four float32 */
    void *scratch;
};

static int run_loss(void *context)
{
    struct loss_case *c = context;
    void *d = !c->gradient ? NULL : c->in_place ? c->logits.data : c->dlogits.data;

    const struct numerics_cross_entropy loss = { .dtype = c->dtype,
                                                 .logits = c->logits.data,
                                                 .targets = c->targets,
                                                 .dlogits = d,
                                                 .rows = c->rows,
                                                 .vocab = c->vocab,
                                                 .row_stride = c->stride,
                                                 .scale = c->scale };

    return kernel_cross_entropy(NULL, &loss, (double *)c->sums.data, (uint64_t *)c->sums.data + 1,
                                c->scratch);
}

static void check_loss(struct loss_case c)
{
    const size_t stride = c.stride > 0 ? c.stride : c.vocab, n = c.rows * stride, vocab = c.vocab;
    float *logits = case_floats(c.rows * vocab), *dlogits = case_floats(c.rows * vocab);
    struct operand *gradient = c.in_place ? &c.logits : &c.dlogits;
    double loss = 1.5, got;
    uint64_t n_targets = 3, n_got;
    char what[80];

    c.stride = stride;
    snprintf(what, sizeof what, "(%zu, %zu) %s%s", c.rows, vocab, fsdp_dtype_name(c.dtype),
             c.in_place ? " in place" : "");
    c.logits = operand_random(c.dtype, n, vocab, 3.0f);
    for (size_t i = 0; i < c.rows; i++) { /* NaN after each row */
        const size_t size = fsdp_dtype_size(c.dtype);

        memset((char *)c.logits.data + (i * stride + vocab) * size, 0xff, (stride - vocab) * size);
        memcpy(logits + i * vocab, c.logits.values + i * stride, vocab * sizeof *logits);
    }
    c.dlogits = operand_empty(c.dtype, c.gradient && !c.in_place ? n : 0);
    c.targets = random_tokens(c.rows, vocab, 5);
    for (size_t i = 2; i < c.rows; i += 5)
        c.targets[i] = -100;
    c.sums = operand_empty(FSDP_F32, 4);
    memcpy(c.sums.data, &loss, sizeof loss);
    memcpy((char *)c.sums.data + 8, &n_targets, sizeof n_targets);
    c.scratch = case_bytes(cuda_cross_entropy_bytes(c.rows));

    under_schedules(run_loss, &c, &c.sums, &c.dlogits, &c.logits, NULL);

    op_cross_entropy(OP_REF, NULL, logits, c.targets, c.gradient ? dlogits : NULL, c.rows, vocab, c.scale,
                     &loss, &n_targets);
    memcpy(&got, c.sums.data, sizeof got);
    memcpy(&n_got, (char *)c.sums.data + 8, sizeof n_got);
    cr_assert(fabs(got - loss) <= 1e-6 * loss, "%s: loss %.12g, not %.12g", what, got, loss);
    cr_assert_eq(n_got, n_targets);
    for (size_t i = 0; i < n && c.gradient; i++)
        gradient->expected[i] = i % stride < vocab ? dlogits[i / stride * vocab + i % stride] : 0.0f;
    if (c.gradient)
        expect_close(gradient, 4 * (double)roundoff(c.dtype) * (double)c.scale, what);
    cases_end();
}

/*
 * Adjacent rows, and rows that stand apart: after the last logit of a row is anything, here NaN, and its
 * gradient is zero.
 */
Test(emulated_tokens, cross_entropy_is_refs)
{
    static const size_t shapes[][2] = { { 1, 0 },    { 2, 0 },  { 7, 0 }, { 64, 0 },    { 513, 0 },
                                        { 1000, 0 }, { 1, 64 }, { 7, 9 }, { 300, 320 }, { 513, 576 } };

    for (size_t v = 0; v < 10 * 4; v++)
        check_loss((struct loss_case){ .rows = v % 10 == 0 ? 1 : 4,
                                       .vocab = shapes[v % 10][0],
                                       .stride = shapes[v % 10][1],
                                       .dtype = v / 10 % 2 ? FSDP_BF16 : FSDP_F32,
                                       .in_place = v / 20,
                                       .gradient = true,
                                       .scale = 0.125f });
}

Test(emulated_tokens, cross_entropy_without_gradient_and_over_many_rows)
{
    check_loss((struct loss_case){ .rows = 3, .vocab = 50, .dtype = FSDP_BF16, .scale = 1 });
    check_loss(
        (struct loss_case){ .rows = 300, .vocab = 8, .dtype = FSDP_F32, .scale = 1, .gradient = true });
}
