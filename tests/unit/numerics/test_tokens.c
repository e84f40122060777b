/* What stands at the two ends of a language model: embeddings and the loss. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/rng.h"
#include "tests/unit/numerics/rows.h"

static int32_t *random_tokens(uint64_t seed, size_t n, size_t vocab)
{
    int32_t *tokens = row_zeros((n + 1) * sizeof *tokens);

    for (size_t i = 0; i < n; i++)
        tokens[i] = (int32_t)rng_below(seed, i, vocab);
    return tokens;
}

static const struct {
    size_t rows, cols, seq, vocab;
} shapes[] = { { 1, 1, 1, 1 },     { 6, 7, 3, 5 },    { 64, 17, 16, 3 }, { 130, 65, 65, 1000 },
               { 1000, 64, 8, 7 }, { 7, 1000, 7, 2 }, { 5, 130, 8, 4 } };

ROWS_TEST(numerics_embedding, rows_are_table_plus_position)
{
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        const size_t rows = shapes[k].rows, cols = shapes[k].cols, seq = shapes[k].seq;
        int32_t *tokens = random_tokens(k, rows, shapes[k].vocab);
        float *table = random_floats(1, shapes[k].vocab * cols, 1.0f),
              *positions = random_floats(2, seq * cols, 1.0f);
        float *out = random_floats(3, rows * cols, 1.0f);

        for (int with = 0; with < 2; with++) {
            op_embedding(numerics, NULL, tokens, table, with ? positions : NULL, out, rows, cols, seq);
            for (size_t i = 0; i < rows; i++)
                for (size_t j = 0; j < cols; j++)
                    cr_assert(out[i * cols + j] == table[(size_t)tokens[i] * cols + j] +
                                                       (with ? positions[i % seq * cols + j] : 0.0f),
                              "row %zu column %zu", i, j);
        }
    }
}

ROWS_TEST(numerics_embedding, backward_adds_every_row_to_its_token_and_position)
{
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        const size_t rows = shapes[k].rows, cols = shapes[k].cols, seq = shapes[k].seq,
                     vocab = shapes[k].vocab;
        int32_t *tokens = random_tokens(k, rows, vocab);
        float *dout = random_floats(1, rows * cols, 1.0f);
        float *dtable = random_floats(2, vocab * cols, 1.0f),
              *dpositions = random_floats(3, seq * cols, 1.0f);
        double *table = row_zeros(vocab * cols * sizeof *table),
               *positions = row_zeros(seq * cols * sizeof *positions);

        for (size_t i = 0; i < vocab * cols; i++)
            table[i] = (double)dtable[i];
        for (size_t i = 0; i < seq * cols; i++)
            positions[i] = (double)dpositions[i];
        for (size_t i = 0; i < rows; i++) {
            for (size_t j = 0; j < cols; j++) {
                table[(size_t)tokens[i] * cols + j] += (double)dout[i * cols + j];
                positions[i % seq * cols + j] += (double)dout[i * cols + j];
            }
        }

        op_embedding_backward(numerics, NULL, tokens, dout, dtable, NULL, rows, cols, seq);
        op_embedding_backward(numerics, NULL, tokens, dout, NULL, dpositions, rows, cols, seq);

        /* Row by row in float32: up to 1000 roundings of sums near sqrt(1000), which wander as their root. */
        assert_near(row, "dtable", dtable, table, vocab * cols, 1e-6, 6e-8 * sqrt((double)rows) * 30);
        assert_near(row, "dpositions", dpositions, positions, seq * cols, 2e-7, 2e-7 * sqrt((double)rows));
    }
}

static double loss_of(const double *logits, size_t target, size_t vocab)
{
    double largest = -INFINITY, sum = 0;

    for (size_t j = 0; j < vocab; j++)
        largest = fmax(largest, logits[j]);
    for (size_t j = 0; j < vocab; j++)
        sum += exp(logits[j] - largest);
    return log(sum) + largest - logits[target];
}

static void try_loss(struct numerics *numerics, const struct row_case *row, size_t rows, size_t vocab,
                     float scale)
{
    float *logits = random_floats(rows, rows * vocab, 3.0f), *dlogits = random_floats(2, rows * vocab, 1.0f);
    int32_t *targets = random_tokens(vocab, rows, vocab);
    double *x = row_zeros(vocab * sizeof *x), sum = 0, loss = 0.5, again = 0;
    uint64_t n_targets = 3, n_again = 0, n = 0;

    for (size_t i = 2; i < rows; i += 3)
        targets[i] = -100;
    op_cross_entropy(numerics, NULL, logits, targets, dlogits, rows, vocab, scale, &loss, &n_targets);
    op_cross_entropy(numerics, NULL, logits, targets, NULL, rows, vocab, scale, &again, &n_again);

    for (size_t i = 0; i < rows; i++) {
        const bool ignored = targets[i] == -100;
        double total = 0;

        for (size_t j = 0; j < vocab; j++)
            x[j] = (double)logits[i * vocab + j];
        sum += ignored ? 0 : loss_of(x, (size_t)targets[i], vocab);
        n += !ignored;
        for (size_t j = 0; j < vocab; j++)
            total += exp(x[j] - x[0]);
        for (size_t j = 0; j < vocab; j++) {
            const double p = exp(x[j] - x[0]) / total;
            const double want = ignored ? 0 : (p - (j == (size_t)targets[i])) * (double)scale;

            /* The rounding of logits' differences up to 20 puts p off by 2e-6 of itself at most. */
            assert_near(row, "dlogits", dlogits + i * vocab + j, &want, 1, 2e-6, 1e-7 * fabs((double)scale));
        }
    }
    cr_assert(eq(u64, n_targets, n + 3));
    cr_assert(eq(u64, n_again, n));
    cr_assert(fabs(loss - 0.5 - sum) <= 2e-7 * (double)(n + 1), "%s %s: %zu x %zu: loss %.12g for %.12g",
              row->name, row->isa, rows, vocab, loss - 0.5, sum);
    cr_assert(fabs(again - sum) <= 2e-7 * (double)(n + 1), "loss alone: %.12g for %.12g", again, sum);
    op_cross_entropy(numerics, NULL, logits, targets, logits, rows, vocab, scale, &again, &n_again);
    cr_assert_arr_eq(logits, dlogits, rows * vocab * sizeof *logits, "in place differs");
}

ROWS_TEST(numerics_cross_entropy, loss_and_gradient_are_those_of_softmax)
{
    for (size_t r = 0; r < n_odd_sizes; r++)
        for (size_t c = 0; c < n_odd_sizes; c++)
            try_loss(numerics, row, odd_sizes[r] < 1000 ? odd_sizes[r] : 100, odd_sizes[c],
                     c % 2 ? 1.0f : 1.0f / 512);
    try_loss(numerics, row, 3, 50257, 1.0f);
}

ROWS_TEST(numerics_cross_entropy, nothing_to_learn_from_is_no_loss)
{
    const int32_t targets[2] = { -100, -100 };
    float logits[2 * 9] = { 0 }, dlogits[2 * 9];
    double loss = 0;
    uint64_t n = 0;

    memset(dlogits, 0xFF, sizeof dlogits);

    op_cross_entropy(numerics, NULL, logits, targets, dlogits, 2, 9, 1.0f, &loss, &n);
    op_cross_entropy(numerics, NULL, logits, targets, dlogits, 0, 9, 1.0f, &loss, &n);

    cr_assert(loss == 0 && n == 0);
    for (size_t i = 0; i < 18; i++)
        cr_assert(dlogits[i] == 0);
}
