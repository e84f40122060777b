/*
 * Fused attention against ref's. The kernels by mma are "emulated at tile level": tile.h's operations run as their host
 * versions; their tests say so in their names.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/rng.h"
#include "tests/emulation/cases.h"

TestSuite(emulated_attention, .fini = cases_end);

struct attention_case {
    struct fused_attention_desc desc;
    struct dropout dropout;
    bool plain, packed; /* packed: q, k and v are columns of one buffer */
    size_t n;           /* elements of out */
    struct operand qkv, out, lse, dout, dqkv;
    void *scratch;
};

/* Where q, k or v begins, in elements. */
static size_t part(const struct attention_case *c, size_t which)
{
    const size_t dim = c->desc.shape.heads * c->desc.shape.head_dim;

    return which * (c->packed ? dim : c->n);
}

static char *in_bytes(const struct attention_case *c, const struct operand *all, size_t which)
{
    return (char *)all->data + part(c, which) * fsdp_dtype_size(c->desc.dtype);
}

static void run_forward(void *context)
{
    struct attention_case *c = context;
    const struct fused_attention_forward run = { in_bytes(c, &c->qkv, 0),
                                                 in_bytes(c, &c->qkv, 1),
                                                 in_bytes(c, &c->qkv, 2),
                                                 c->out.data,
                                                 c->lse.data,
                                                 &c->dropout,
                                                 NULL };

    cr_assert_eq(kernel_attention(NULL, &c->desc, &run, c->plain), 0);
}

static void run_backward(void *context)
{
    struct attention_case *c = context;
    const struct fused_attention_backward run = { .q = in_bytes(c, &c->qkv, 0),
                                                  .k = in_bytes(c, &c->qkv, 1),
                                                  .v = in_bytes(c, &c->qkv, 2),
                                                  .out = c->out.data,
                                                  .dout = c->dout.data,
                                                  .lse = c->lse.data,
                                                  .dropout = &c->dropout,
                                                  .dq = in_bytes(c, &c->dqkv, 0),
                                                  .dk = in_bytes(c, &c->dqkv, 1),
                                                  .dv = in_bytes(c, &c->dqkv, 2),
                                                  .scratch = c->scratch };

    cr_assert_eq(kernel_attention_backward(NULL, &c->desc, &run, c->plain), 0);
}

struct answer {
    float *out, *lse, *dqkv;
};

/* Ref's forward and backward on the widened inputs. */
static struct answer reference(const struct attention_case *c)
{
    struct answer answer = { case_floats(c->n), case_floats(c->lse.n_elems), case_floats(c->qkv.n_elems) };
    struct fused_attention_desc desc = c->desc;
    struct fused_attention *attention;
    size_t forward_bytes, backward_bytes;
    const float *qkv = c->qkv.values;

    desc.dtype = FSDP_F32;
    cr_assert_eq(ref_attention_create(NULL, &desc, &attention, &forward_bytes, &backward_bytes, NULL),
                 FSDP_OK);
    {
        const struct fused_attention_forward run = {
            qkv + part(c, 0), qkv + part(c, 1), qkv + part(c, 2),         answer.out,
            answer.lse,       &c->dropout,      case_bytes(forward_bytes)
        };

        cr_assert_eq(ref_attention_forward(attention, NULL, &run, NULL), FSDP_OK);
    }
    {
        const struct fused_attention_backward run = { .q = qkv + part(c, 0),
                                                      .k = qkv + part(c, 1),
                                                      .v = qkv + part(c, 2),
                                                      .out = answer.out,
                                                      .dout = c->dout.values,
                                                      .lse = answer.lse,
                                                      .dropout = &c->dropout,
                                                      .dq = answer.dqkv + part(c, 0),
                                                      .dk = answer.dqkv + part(c, 1),
                                                      .dv = answer.dqkv + part(c, 2),
                                                      .scratch = case_bytes(backward_bytes) };

        cr_assert_eq(ref_attention_backward(attention, NULL, &run, NULL), FSDP_OK);
    }
    ref_attention_destroy(attention);
    return answer;
}

/*
 * `unit`: what of the largest value may be lost. In float32 32 roundoffs, for sums of up to 300 terms; by mma 1.5e-2:
 * D and dS are rounded to bfloat16 (3.9e-3 each) before sums that cancel, and the results once more.
 */
static void check(struct attention_case c, double unit)
{
    const struct attention_desc *shape = &c.desc.shape;
    const size_t dim = shape->heads * shape->head_dim;
    struct operand *forward[] = { &c.out, &c.lse }, *backward[] = { &c.dqkv };
    struct answer answer;
    char what[120];

    snprintf(what, sizeof what, "(%zu, %zu, %zu, %zu) %s%s%s%s", shape->batch, shape->seq, shape->heads,
             shape->head_dim, fsdp_dtype_name(c.desc.dtype), shape->causal ? " causal" : "",
             c.dropout.p > 0 ? " dropout" : "", c.packed ? " packed" : "");
    c.n = shape->batch * shape->seq * dim;
    c.desc.scale = 1 / sqrtf((float)shape->head_dim);
    c.desc.drops = c.dropout.p > 0;
    c.desc.q_stride = c.desc.k_stride = c.desc.v_stride = c.packed ? 3 * dim : dim;
    c.desc.out_stride = dim;
    c.qkv = operand_random(c.desc.dtype, 3 * c.n, 1, 1.0f);
    c.dout = operand_random(c.desc.dtype, c.n, 2, 1.0f);
    c.out = operand_empty(c.desc.dtype, c.n);
    c.lse = operand_empty(FSDP_F32, shape->batch * shape->heads * shape->seq);
    c.dqkv = operand_empty(c.desc.dtype, 3 * c.n);
    c.scratch = case_bytes(kernel_attention_backward_scratch(&c.desc));
    answer = reference(&c);

    under_schedules(run_forward, &c, forward, 2);
    expect_close(&c.out, answer.out, unit * (1 + largest_of(answer.out, c.n)), what);
    expect_close(&c.lse, answer.lse,
                 64 * (double)roundoff(FSDP_F32) * (1 + largest_of(answer.lse, c.lse.n_elems)), what);

    under_schedules(run_backward, &c, backward, 1);
    expect_close(&c.dqkv, answer.dqkv, 2 * unit * (1 + largest_of(answer.dqkv, 3 * c.n)), what);
    cases_end();
}

static const struct dropout drops = { 0.25f, 12345, 1ull << 33 }, keeps = { 0, 0, 0 };

Test(emulated_attention, plain_is_refs_for_every_width_of_head)
{
    static const size_t dims[] = { 1, 5, 32, 40, 64, 128 };

    for (size_t v = 0; v < 12; v++)
        check((struct attention_case){ .desc = { .shape = { 1, 19, 2, dims[v % 6], v % 2 == 0 },
                                                 .dtype = FSDP_F32 },
                                       .dropout = v % 4 == 1 ? drops : keeps,
                                       .packed = v / 6 },
              32 * (double)roundoff(FSDP_F32));
}

Test(emulated_attention, plain_is_refs_for_wide_heads)
{
    check((struct attention_case){ .desc = { .shape = { 1, 3, 1, 200, true }, .dtype = FSDP_F32 },
                                   .dropout = keeps },
          32 * (double)roundoff(FSDP_F32));
    check((struct attention_case){ .desc = { .shape = { 1, 3, 1, 512, false }, .dtype = FSDP_F32 },
                                   .dropout = keeps },
          32 * (double)roundoff(FSDP_F32));
}

Test(emulated_attention, plain_is_refs_for_odd_lengths_and_samples)
{
    static const size_t seqs[] = { 1, 16, 33, 70 };

    for (size_t v = 0; v < 8; v++)
        check(
            (struct attention_case){
                .desc = { .shape = { v % 4 < 2 ? 2 : 1, seqs[v % 4], 1, 8, v / 4 == 0 }, .dtype = FSDP_F32 },
                .dropout = v % 3 == 2 ? drops : keeps },
            32 * (double)roundoff(FSDP_F32));
}

Test(emulated_attention, plain_takes_bfloat16)
{
    /* Nothing is rounded before the end but out, which delta is made of. */
    check((struct attention_case){ .desc = { .shape = { 1, 21, 2, 24, true }, .dtype = FSDP_BF16 },
                                   .dropout = keeps,
                                   .plain = true },
          2 * (double)roundoff(FSDP_BF16));
}

Test(emulated_attention, mma_emulated_at_tile_level_is_refs)
{
    static const size_t seqs[] = { 1, 70, 130 };

    for (size_t v = 0; v < 3; v++)
        check((struct attention_case){ .desc = { .shape = { 1, seqs[v], v == 1 ? 2 : 1, 64, v != 1 },
                                                 .dtype = FSDP_BF16 },
                                       .dropout = keeps,
                                       .packed = v == 1 },
              1.5e-2);
}

Test(emulated_attention, mma_emulated_at_tile_level_is_refs_at_width_128_and_with_dropout)
{
    check((struct attention_case){ .desc = { .shape = { 1, 67, 1, 128, true }, .dtype = FSDP_BF16 },
                                   .dropout = keeps },
          1.5e-2);
    check((struct attention_case){ .desc = { .shape = { 2, 37, 1, 64, false }, .dtype = FSDP_BF16 },
                                   .dropout = drops },
          1.5e-2);
}

Test(emulated_attention, what_does_not_fit_is_refused)
{
    struct fused_attention_desc desc = { .shape = { 1, 4, 2, 513, true },
                                         .dtype = FSDP_F32,
                                         .q_stride = 2000,
                                         .k_stride = 2000,
                                         .v_stride = 2000,
                                         .out_stride = 2000 };
    const struct fused_attention_forward run = { 0 };

    cr_assert_eq(kernel_attention(NULL, &desc, &run, false), 1);
    desc.shape.head_dim = 8;
    desc.v_stride = 15;
    cr_assert_eq(kernel_attention(NULL, &desc, &run, false), 1);
    desc.v_stride = 16;
    desc.shape.seq = 0;
    cr_assert_eq(kernel_attention(NULL, &desc, &run, false), 0);
}
