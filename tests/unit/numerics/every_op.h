/*
 * Every operation of a numerics row once, on sizes large enough that each is cut over the threads, with all
 * outputs gathered in one buffer: to compare bits between runs and threads, and to watch for races.
 */
#ifndef TESTS_NUMERICS_EVERY_OP_H
#define TESTS_NUMERICS_EVERY_OP_H

#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/rng.h"
#include "shard_runtime/numerics/numerics.h"

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

    n->ops->add(n, NULL, e->x, e->y, e->z, EVERY_ELEMS);
    n->ops->dropout(n, NULL, e->x, e->z, EVERY_ROWS, EVERY_COLS, &dropout, true);
    n->ops->gelu(n, NULL, e->z, e->z, EVERY_ELEMS);
    n->ops->gelu_backward(n, NULL, e->z, e->x, e->z, EVERY_ELEMS);
    n->ops->gelu_tanh(n, NULL, e->z, e->z, EVERY_ELEMS);
    n->ops->gelu_tanh_backward(n, NULL, e->z, e->x, e->z, EVERY_ELEMS);
    every_keep(e, e->z, EVERY_ELEMS);
    n->ops->column_sum(n, NULL, e->x, e->z, EVERY_ROWS * 3, EVERY_COLS / 3, false);
    every_keep(e, e->z, EVERY_COLS / 3);
    squares = n->ops->sum_squares(n, NULL, e->x, EVERY_ELEMS);
    every_keep(e, &squares, 2);
}

static inline void every_norm(struct every_op *e, struct numerics *n)
{
    float *params = every_floats(5, 4 * EVERY_COLS), *stats = every_floats(6, 2 * EVERY_ROWS);

    n->ops->layer_norm(n, NULL, e->x, params, params + EVERY_COLS, e->z, stats, stats + EVERY_ROWS,
                       EVERY_ROWS, EVERY_COLS, 1e-5f);
    every_keep(e, e->z, EVERY_ELEMS);
    n->ops->layer_norm_backward(n, NULL, e->y, e->x, params, stats, stats + EVERY_ROWS, e->z, true,
                                params + 2 * EVERY_COLS, params + 3 * EVERY_COLS, true, e->scratch,
                                EVERY_ROWS, EVERY_COLS);
    every_keep(e, e->z, EVERY_ELEMS);
    /* Without a mean RMSNorm. */
    n->ops->layer_norm(n, NULL, e->x, params, NULL, e->z, NULL, stats + EVERY_ROWS, EVERY_ROWS, EVERY_COLS,
                       1e-5f);
    every_keep(e, e->z, EVERY_ELEMS);
    n->ops->layer_norm_backward(n, NULL, e->y, e->x, params, NULL, stats + EVERY_ROWS, e->z, true,
                                params + 2 * EVERY_COLS, NULL, true, e->scratch, EVERY_ROWS, EVERY_COLS);
    every_keep(e, e->z, EVERY_ELEMS);
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

    n->ops->softmax(n, NULL, p, dropped, &heads, &dropout);
    every_keep(e, p, scores);
    every_keep(e, dropped, scores);
    n->ops->softmax_backward(n, NULL, p, dropped, dropped, &heads, &dropout);
    every_keep(e, dropped, scores);
    free(p);
    free(dropped);
}

static inline void every_fused_attention(struct every_op *e, struct numerics *n)
{
    const struct fused_attention_desc desc = {
        .shape = { .batch = 3, .seq = EVERY_SEQ, .heads = EVERY_HEADS, .head_dim = 8, .causal = true },
        .dtype = FSDP_F32,
        .scale = 0.35f,
        .drops = true,
        .q_stride = 96,
        .k_stride = 96,
        .v_stride = 96,
        .out_stride = 96
    };
    const struct dropout dropout = { .p = 0.2f, .key = 12, .first_row = 77 };
    const size_t elems = 3 * EVERY_SEQ * 96, rows = 3 * EVERY_HEADS * EVERY_SEQ;
    float *out = every_floats(9, 4 * elems), *lse = every_floats(10, rows);
    struct fused_attention *attention;
    size_t forward, backward;
    void *scratch;

    if (n->ops->attention_create(n, &desc, &attention, &forward, &backward, NULL) != FSDP_OK)
        abort();
    scratch = aligned_alloc(64, (backward + 64) / 64 * 64);
    if (n->ops->attention_forward(attention, NULL,
                                  &(struct fused_attention_forward){ .q = e->x,
                                                                     .k = e->y,
                                                                     .v = e->x + 100,
                                                                     .out = out,
                                                                     .lse = lse,
                                                                     .dropout = &dropout,
                                                                     .scratch = scratch },
                                  NULL) != FSDP_OK ||
        n->ops->attention_backward(attention, NULL,
                                   &(struct fused_attention_backward){ .q = e->x,
                                                                       .k = e->y,
                                                                       .v = e->x + 100,
                                                                       .out = out,
                                                                       .dout = e->y + 100,
                                                                       .lse = lse,
                                                                       .dropout = &dropout,
                                                                       .dq = out + elems,
                                                                       .dk = out + 2 * elems,
                                                                       .dv = out + 3 * elems,
                                                                       .scratch = scratch },
                                   NULL) != FSDP_OK)
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
    const struct adamw adamw = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1 };
    const struct sgd sgd = { .lr = 1e-2, .momentum = 0.9, .weight_decay = 0.01 };
    uint64_t n_targets = 0;
    double loss = 0;

    n->ops->embedding(n, NULL, e->tokens, e->x, e->y, e->z, EVERY_ROWS, EVERY_COLS, EVERY_SEQ);
    every_keep(e, e->z, EVERY_ELEMS);
    n->ops->embedding_backward(n, NULL, e->tokens, e->x, e->z, e->y, EVERY_ROWS, EVERY_COLS, EVERY_SEQ);
    every_keep(e, e->z, EVERY_ELEMS);
    every_keep(e, e->y, EVERY_SEQ * EVERY_COLS);
    n->ops->cross_entropy(n, NULL, e->x, e->tokens, e->z, EVERY_ROWS, EVERY_COLS, 0.01f, &loss, &n_targets);
    every_keep(e, e->z, EVERY_ELEMS);
    every_keep(e, &loss, 2);
    memset(e->z, 0, EVERY_ELEMS * sizeof *e->z);
    n->ops->adamw(n, NULL, e->x, e->y, e->z, e->z + EVERY_ELEMS, EVERY_ELEMS, &adamw, 0.5f, 1);
    n->ops->sgd(n, NULL, e->x, e->y, e->z, EVERY_ELEMS, &sgd, 0.5f, 2);
    every_keep(e, e->x, EVERY_ELEMS);
    every_keep(e, e->z, EVERY_ELEMS);
}

/* Heads of products, as attention has them, and a plain product with a bias. */
static inline void every_product(struct every_op *e, struct numerics *n)
{
    const struct matmul_desc descs[] = {
        { .outer = 1,
          .inner = 1,
          .m = EVERY_ROWS,
          .n = 40,
          .k = EVERY_COLS,
          .a = { 0, 0, EVERY_COLS, 1 },
          .b = { 0, 0, 1, EVERY_COLS },
          .c = { 0, 0, 40, 1 },
          .dtype = FSDP_F32,
          .bias = true,
          .alpha = 1.0f },
        { .outer = 3,
          .inner = 4,
          .m = EVERY_SEQ,
          .n = EVERY_SEQ,
          .k = 8,
          .a = { EVERY_SEQ * 32, 8, 32, 1 },
          .b = { EVERY_SEQ * 32, 8, 1, 32 },
          .c = { 4 * EVERY_SEQ * EVERY_SEQ, EVERY_SEQ * EVERY_SEQ, EVERY_SEQ, 1 },
          .dtype = FSDP_F32,
          .accumulate = true,
          .alpha = 0.25f },
    };
    const size_t elems[] = { EVERY_ROWS * 40, 12 * EVERY_SEQ * EVERY_SEQ };

    for (size_t i = 0; i < 2; i++) {
        struct matmul *matmul;
        size_t scratch_bytes;
        void *scratch;

        if (n->ops->matmul_create(n, &descs[i], &matmul, &scratch_bytes, NULL) != FSDP_OK)
            abort();
        scratch = aligned_alloc(64, (scratch_bytes + 64) / 64 * 64);
        if (n->ops->matmul_run(matmul, NULL, e->x, e->y, descs[i].bias ? e->x : NULL, e->z, scratch, NULL) !=
            FSDP_OK)
            abort();
        every_keep(e, e->z, elems[i]);
        n->ops->matmul_destroy(matmul);
        free(scratch);
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

    e.scratch = malloc(numerics->ops->layer_norm_scratch(numerics, EVERY_ROWS, EVERY_COLS) + 1);
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
