/*
 * Every operation of a numerics row once, on sizes large enough that each is cut over the threads. All
 * outputs are gathered in one buffer, to compare bits between runs and threads, and to watch for races.
 */
#ifndef TESTS_NUMERICS_EVERY_OP_H
#define TESTS_NUMERICS_EVERY_OP_H

#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/rng.h"
#include "shard_runtime/numerics/numerics.h"
#include "tests/support/oracles/operations.h"

enum {
    EVERY_ROWS = 297,
    EVERY_COLS = 131,
    EVERY_ELEMS = EVERY_ROWS * EVERY_COLS,
    EVERY_SEQ = 33,
    EVERY_HEADS = 12,
    EVERY_OUT = 16 * EVERY_ELEMS,
};

struct every_op {
    float *x, *y, *z, *out;
    int32_t *tokens;
    void *scratch;
    size_t n_out;
};

static inline float *every_floats(uint64_t seed, size_t n)
{
    float *x = malloc(n * sizeof *x);

    if (x == NULL)
        abort();
    rng_fill_normal(seed, 0, x, n, 1.0f);
    return x;
}

static inline void every_keep(struct every_op *e, const void *result, size_t n_floats)
{
    if (e->n_out + n_floats > EVERY_OUT)
        abort();
    memcpy(e->out + e->n_out, result, n_floats * sizeof(float));
    e->n_out += n_floats;
}

static inline void every_elementwise(struct every_op *e, struct numerics *n)
{
    const struct dropout dropout = { .p = 0.2f, .key = 11, .first_row = 1000 };
    double squares;

    op_add(n, NULL, FSDP_F32, e->x, e->y, e->z, EVERY_ELEMS);
    op_dropout(n, NULL, e->x, e->z, EVERY_ROWS, EVERY_COLS, &dropout, true);
    for (int function = 0; function < NUMERICS_N_FUNCTIONS; function++) {
        op_activation(n, NULL, FSDP_F32, (enum numerics_function)function, e->z, e->z, EVERY_ELEMS);
        op_activation_backward(n, NULL, FSDP_F32, (enum numerics_function)function, e->z, e->x, e->z,
                               EVERY_ELEMS);
    }
    every_keep(e, e->z, EVERY_ELEMS);
    op_column_sum(n, NULL, FSDP_F32, e->x, FSDP_F32, e->z, EVERY_ROWS * 3, EVERY_COLS / 3, false);
    every_keep(e, e->z, EVERY_COLS / 3);
    squares = op_sum_powers(n, NULL, e->x, EVERY_ELEMS, 2);
    every_keep(e, &squares, 2);
}

/* LayerNorm, and without a mean RMSNorm. */
static inline void every_norm(struct every_op *e, struct numerics *n)
{
    float *params = every_floats(5, 4 * EVERY_COLS), *stats = every_floats(6, 2 * EVERY_ROWS);

    for (int rms = 0; rms < 2; rms++) {
        float *mean = rms ? NULL : stats, *rstd = stats + EVERY_ROWS;

        op_norm(n, NULL, FSDP_F32, e->x, params, rms ? NULL : params + EVERY_COLS, e->z, mean, rstd,
                EVERY_ROWS, EVERY_COLS, 1e-5f);
        every_keep(e, e->z, EVERY_ELEMS);
        op_norm_backward(n, NULL, e->y, e->x, params, mean, rstd, e->z, true, params + 2 * EVERY_COLS,
                         rms ? NULL : params + 3 * EVERY_COLS, true, e->scratch, EVERY_ROWS, EVERY_COLS);
        every_keep(e, e->z, EVERY_ELEMS);
    }
    every_keep(e, params, 4 * EVERY_COLS);
    every_keep(e, stats, 2 * EVERY_ROWS);
    free(params);
    free(stats);
}

static inline void every_attention(struct every_op *e, struct numerics *n)
{
    const struct attention_desc heads = {
        .batch = 3, .seq = EVERY_SEQ, .heads = EVERY_HEADS, .head_dim = 4, .causal = true
    };
    const struct dropout dropout = { .p = 0.2f, .key = 12, .first_row = 77 };
    const size_t scores = 3 * EVERY_HEADS * EVERY_SEQ * EVERY_SEQ; /* just above EVERY_ELEMS */
    float *p = every_floats(7, scores), *dropped = every_floats(8, scores);

    op_softmax(n, NULL, p, dropped, &heads, &dropout);
    every_keep(e, p, scores);
    every_keep(e, dropped, scores);
    op_softmax_backward(n, NULL, p, dropped, dropped, &heads, &dropout);
    every_keep(e, dropped, scores);
    free(p);
    free(dropped);
}

static inline void every_fused_attention(struct every_op *e, struct numerics *n)
{
    struct fused_attention_desc desc = op_attention(
        (struct attention_desc){
            .batch = 3, .seq = EVERY_SEQ, .heads = EVERY_HEADS, .head_dim = 8, .causal = true },
        FSDP_F32, 96);
    const struct dropout dropout = { .p = 0.2f, .key = 12, .first_row = 77 };
    const size_t elems = 3 * EVERY_SEQ * 96, rows = 3 * EVERY_HEADS * EVERY_SEQ;
    float *out = every_floats(9, 4 * elems), *lse = every_floats(10, rows);
    void *const in[] = { e->x, e->y, e->x + 100 }, *const d[] = { out + elems, out + 2 * elems,
                                                                  out + 3 * elems };
    struct fused_attention *attention;
    size_t forward, backward;
    void *scratch;

    desc.drops = true;
    if (n->ops->attention_create(n, &desc, &attention, &forward, &backward, NULL) != FSDP_OK)
        abort();
    scratch = aligned_alloc(64, (backward + 64) / 64 * 64);
    if (op_attention_forward(n, attention, NULL, in, out, lse, &dropout, scratch, NULL) != FSDP_OK ||
        op_attention_backward(n, attention, NULL, in, out, e->y + 100, lse, &dropout, d, scratch, NULL) !=
            FSDP_OK)
        abort();
    every_keep(e, out, 4 * elems);
    every_keep(e, lse, rows);
    n->ops->attention_destroy(attention);
    free(out);
    free(lse);
    free(scratch);
}

static inline void every_end(struct every_op *e, struct numerics *n)
{
    const struct op_rates adamw = {
        .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1
    };
    const struct op_rates sgd = { .lr = 1e-2, .momentum = 0.9, .weight_decay = 0.01 };
    uint64_t n_targets = 0;
    double loss = 0;

    op_embedding(n, NULL, e->tokens, e->x, e->y, e->z, EVERY_ROWS, EVERY_COLS, EVERY_SEQ);
    every_keep(e, e->z, EVERY_ELEMS);
    op_embedding_backward(n, NULL, e->tokens, e->x, e->z, e->y, EVERY_ROWS, EVERY_COLS, EVERY_SEQ);
    every_keep(e, e->z, EVERY_ELEMS);
    every_keep(e, e->y, EVERY_SEQ * EVERY_COLS);
    op_cross_entropy(n, NULL, e->x, e->tokens, e->z, EVERY_ROWS, EVERY_COLS, 0.01f, &loss, &n_targets);
    every_keep(e, e->z, EVERY_ELEMS);
    every_keep(e, &loss, 2);
    memset(e->z, 0, EVERY_ELEMS * sizeof *e->z);
    op_adamw(n, NULL, e->x, e->y, e->z, e->z + EVERY_ELEMS, EVERY_ELEMS, &adamw, 0.5f, 1);
    op_sgd(n, NULL, e->x, e->y, e->z, EVERY_ELEMS, &sgd, 0.5f, 2);
    every_keep(e, e->x, EVERY_ELEMS);
    every_keep(e, e->z, EVERY_ELEMS);
}

/* Heads of products, as attention has them, and a plain product with a bias. */
static inline void every_product(struct every_op *e, struct numerics *n)
{
    struct matmul_desc descs[] = { op_product(EVERY_ROWS, 40, EVERY_COLS, false, true),
                                   op_product(EVERY_SEQ, EVERY_SEQ, 8, false, true) };
    const size_t elems[] = { EVERY_ROWS * 40, 12 * EVERY_SEQ * EVERY_SEQ };

    descs[0].bias = true;
    descs[1].outer = 3, descs[1].inner = 4;
    descs[1].a = (struct matmul_view){ EVERY_SEQ * 32, 8, 32, 1 };
    descs[1].b = (struct matmul_view){ EVERY_SEQ * 32, 8, 1, 32 };
    descs[1].c = (struct matmul_view){ 4 * EVERY_SEQ * EVERY_SEQ, EVERY_SEQ * EVERY_SEQ, EVERY_SEQ, 1 };
    descs[1].accumulate = true;
    descs[1].alpha = 0.25f;
    for (size_t i = 0; i < 2; i++) {
        if (op_multiply(n, &descs[i], e->x, e->y, e->x, e->z, NULL) != FSDP_OK)
            abort();
        every_keep(e, e->z, elems[i]);
    }
}

/* The results of everything, *n_out floats; free() ends them. Same inputs each time. */
static inline float *every_op_run(struct numerics *numerics, size_t *n_out)
{
    struct every_op e = { .x = every_floats(1, EVERY_ELEMS),
                          .y = every_floats(2, EVERY_ELEMS),
                          .z = every_floats(3, 2 * EVERY_ELEMS),
                          .out = malloc(EVERY_OUT * sizeof(float)),
                          .tokens = malloc(EVERY_ROWS * sizeof *e.tokens) };

    e.scratch = malloc(numerics->ops->norm_scratch(numerics, FSDP_F32, EVERY_ROWS, EVERY_COLS) + 1);
    if (e.out == NULL || e.tokens == NULL || e.scratch == NULL)
        abort();
    for (size_t i = 0; i < EVERY_ROWS; i++)
        e.tokens[i] = (int32_t)rng_below(4, i, EVERY_COLS); /* rows of the table and classes alike */
    every_product(&e, numerics);
    every_elementwise(&e, numerics);
    every_norm(&e, numerics);
    every_attention(&e, numerics);
    every_fused_attention(&e, numerics);
    every_end(&e, numerics);
    free(e.x);
    free(e.y);
    free(e.z);
    free(e.tokens);
    free(e.scratch);
    *n_out = e.n_out;
    return e.out;
}

#endif
