#include <criterion/criterion.h>
#include <math.h>

#include "shard_runtime/core/rng.h"
#include "tests/emulation/cases.h"

TestSuite(emulated_softmax, .fini = cases_end);

struct softmax_case {
    struct attention_desc desc;
    struct dropout dropout;
    bool bf16;
    struct operand scores, dropped, p, dp, ds;
};

static int run_forward(void *context)
{
    struct softmax_case *c = context;

    return c->bf16 ? kernel_softmax_bf16(NULL, c->scores.data, c->p.data, &c->desc)
                   : kernel_softmax(NULL, c->scores.data, c->dropped.data, &c->desc, &c->dropout);
}

static int run_backward(void *context)
{
    struct softmax_case *c = context;

    return c->bf16
               ? kernel_softmax_backward_bf16(NULL, c->p.data, c->dp.data, &c->desc)
               : kernel_softmax_backward(NULL, c->scores.data, c->dp.data, c->ds.data, &c->desc, &c->dropout);
}

static void each_case(void (*check)(struct softmax_case *c, size_t n))
{
    static const size_t seqs[] = { 1, 5, 32, 67 };

    for (size_t v = 0; v < 4 * 2 * 3; v++) {
        struct softmax_case c = { .desc = { 2, seqs[v % 4], 3, 4, v / 4 % 2 },
                                  .dropout = { v / 8 == 1 ? 0.3f : 0, rng_key(4, "dropout:p"), 1ull << 35 },
                                  .bf16 = v / 8 == 2 };
        const size_t n = 6 * c.desc.seq * c.desc.seq;

        c.scores = operand_random(FSDP_F32, n, v, 2.0f);
        c.dropped = operand_empty(FSDP_F32, n);
        c.p = operand_empty(FSDP_BF16, n);
        c.dp = operand_random(FSDP_F32, n, v + 50, 1.0f);
        c.ds = operand_empty(FSDP_F32, n);
        check(&c, n);
        cases_end();
    }
}

static void check_forward(struct softmax_case *c, size_t n)
{
    op_softmax(OP_REF, NULL, c->scores.expected, c->dropped.expected, &c->desc, &c->dropout);

    under_schedules(run_forward, c, &c->scores, &c->dropped, &c->p, NULL);

    if (c->bf16) {
        c->p.expected = c->scores.expected;
        expect_close(&c->p, (double)roundoff(FSDP_BF16), "bfloat16 probabilities");
        return;
    }
    /* expf is within 2 units, and is given a rounded difference of up to 16. */
    expect_close(&c->scores, 16 * (double)roundoff(FSDP_F32), "probabilities");
    expect_close(&c->dropped, 32 * (double)roundoff(FSDP_F32), "dropped");
    for (size_t i = 0; i < n; i++)
        cr_assert_eq(c->dropped.values[i] == 0, c->dropped.expected[i] == 0, "the mask at %zu", i);
}

static void check_backward(struct softmax_case *c, size_t n)
{
    struct operand *p = c->bf16 ? &c->p : &c->scores, *ds = c->bf16 ? &c->p : &c->ds;

    op_softmax(OP_REF, NULL, c->scores.data, c->dropped.data, &c->desc, NULL);
    cr_assert_eq(kernel_softmax_bf16(NULL, c->scores.values, c->p.data, &c->desc), 0);
    operand_read(&c->p);
    operand_read(&c->scores);
    op_softmax_backward(OP_REF, NULL, p->values, c->dp.values, ds->expected, &c->desc,
                        c->bf16 ? NULL : &c->dropout);

    under_schedules(run_backward, c, &c->ds, &c->p, NULL);

    expect_close(ds, 8 * (double)roundoff(p->dtype) * (1 + largest_of(ds->expected, n)), "ds");
}

Test(emulated_softmax, forward_is_refs_with_its_mask)
{
    each_case(check_forward);
}

Test(emulated_softmax, backward_is_refs)
{
    each_case(check_backward);
}
