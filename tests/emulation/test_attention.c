/*
 * Fused attention against ref's. The kernels by mma are "emulated at tile level": tile.h's operations run as
 * their host versions; their tests say so in their names.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

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

static int run_forward(void *context)
{
    struct attention_case *c = context;
    const struct fused_attention_forward run = { in_bytes(c, &c->qkv, 0),
                                                 in_bytes(c, &c->qkv, 1),
                                                 in_bytes(c, &c->qkv, 2),
                                                 c->out.data,
                                                 c->lse.data,
                                                 &c->dropout,
                                                 NULL };

    return kernel_attention(NULL, &c->desc, &run, c->plain);
}

/* On what the kernels see, or on what the reference does. */
static struct fused_attention_backward backward_of(const struct attention_case *c, bool ref, void *scratch)
{
    const size_t size = ref ? sizeof(float) : fsdp_dtype_size(c->desc.dtype);
    const char *qkv = ref ? (char *)c->qkv.values : c->qkv.data;
    char *dqkv = ref ? (char *)c->dqkv.expected : c->dqkv.data;

    return (struct fused_attention_backward){ .q = qkv,
                                              .k = qkv + part(c, 1) * size,
                                              .v = qkv + part(c, 2) * size,
                                              .out = ref ? c->out.expected : c->out.data,
                                              .dout = ref ? c->dout.values : c->dout.data,
                                              .lse = ref ? c->lse.expected : c->lse.data,
                                              .dropout = &c->dropout,
                                              .dq = dqkv,
                                              .dk = dqkv + part(c, 1) * size,
                                              .dv = dqkv + part(c, 2) * size,
                                              .scratch = scratch };
}

static int run_backward(void *context)
{
    struct attention_case *c = context;
    const struct fused_attention_backward run = backward_of(c, false, c->scratch);

    return kernel_attention_backward(NULL, &c->desc, &run, c->plain);
}

/* Ref's forward and backward on the widened inputs. */
static void run_ref(const struct attention_case *c)
{
    struct fused_attention_desc desc = c->desc;
    struct fused_attention_forward forward;
    struct fused_attention_backward backward;
    struct fused_attention *attention;
    size_t forward_bytes, backward_bytes;

    desc.dtype = FSDP_F32;
    cr_assert_eq(ref_attention_create(NULL, &desc, &attention, &forward_bytes, &backward_bytes, NULL),
                 FSDP_OK);
    backward = backward_of(c, true, case_bytes(backward_bytes));
    forward = (struct fused_attention_forward){ backward.q,
                                                backward.k,
                                                backward.v,
                                                c->out.expected,
                                                c->lse.expected,
                                                &c->dropout,
                                                case_bytes(forward_bytes) };
    cr_assert_eq(ref_attention_forward(attention, NULL, &forward, NULL), FSDP_OK);
    cr_assert_eq(ref_attention_backward(attention, NULL, &backward, NULL), FSDP_OK);
    ref_attention_destroy(attention);
}

/*
 * `unit`: what of the largest value may be lost. In float32 32 roundoffs, for sums of up to 300 terms. By mma
 * 1.5e-2: D and dS are rounded to bfloat16 (3.9e-3 each) before sums that cancel, and the results once more.
 */
static void check(struct attention_case c, double unit)
{
    const struct attention_desc *shape = &c.desc.shape;
    const size_t dim = shape->heads * shape->head_dim, n_queries = shape->batch * shape->heads * shape->seq;
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
    c.lse = operand_empty(FSDP_F32, n_queries);
    c.dqkv = operand_empty(c.desc.dtype, 3 * c.n);
    c.scratch = case_bytes(cuda_attention_backward_bytes(n_queries));
    run_ref(&c);

    under_schedules(run_forward, &c, &c.out, &c.lse, NULL);
    expect_close(&c.out, unit * (1 + largest_of(c.out.expected, c.n)), what);
    expect_close(&c.lse, 64 * (double)roundoff(FSDP_F32) * (1 + largest_of(c.lse.expected, n_queries)), what);

    under_schedules(run_backward, &c, &c.dqkv, NULL);
    expect_close(&c.dqkv, 2 * unit * (1 + largest_of(c.dqkv.expected, 3 * c.n)), what);
    cases_end();
}

static const struct dropout drops = { 0.25f, 12345, 1ull << 33 }, keeps = { 0, 0, 0 };

/* Widths of heads, odd lengths and samples. */
Test(emulated_attention, plain_is_refs)
{
    static const struct attention_desc shapes[] = {
        { 1, 19, 2, 1, true },  { 1, 19, 2, 5, false },   { 1, 19, 2, 32, true }, { 1, 19, 2, 40, false },
        { 1, 19, 2, 64, true }, { 1, 19, 2, 128, false }, { 1, 3, 1, 200, true }, { 1, 3, 1, 512, false },
        { 2, 1, 1, 8, true },   { 2, 16, 1, 8, true },    { 1, 33, 1, 8, true },  { 1, 70, 1, 8, true },
        { 2, 1, 1, 8, false },  { 2, 16, 1, 8, false },   { 1, 33, 1, 8, false }, { 1, 70, 1, 8, false },
    };

    for (size_t v = 0; v < 32; v++)
        check((struct attention_case){ .desc = { .shape = shapes[v % 16], .dtype = FSDP_F32 },
                                       .dropout = v % 3 == 2 ? drops : keeps,
                                       .packed = v / 16 },
              32 * (double)roundoff(FSDP_F32));
}

/* Plain too where nothing is rounded before the end but out, which delta is made of. */
Test(emulated_attention, bfloat16_plain_and_by_mma_emulated_at_tile_level_is_refs)
{
    static const struct attention_case cases[] = {
        { .desc.shape = { 1, 21, 2, 24, true }, .plain = true },
        { .desc.shape = { 1, 1, 1, 64, true } },
        { .desc.shape = { 1, 70, 2, 64, false }, .packed = true },
        { .desc.shape = { 1, 130, 1, 64, true } },
        { .desc.shape = { 1, 67, 1, 128, true } },
        { .desc.shape = { 2, 37, 1, 64, false }, .dropout = { 0.25f, 12345, 1ull << 33 } },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct attention_case c = cases[i];

        c.desc.dtype = FSDP_BF16;
        check(c, c.plain ? 2 * (double)roundoff(FSDP_BF16) : 1.5e-2);
    }
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
