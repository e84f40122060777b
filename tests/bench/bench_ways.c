/* Links libfsdp.
 *
 * bench_ways [THREADS]: the ways between which the runtime chooses by a table, in CPU time (best of some
 * runs, in turns). The table can be derived from it again on another machine. No choice is timed when a job
 * starts: the choice decides bits, and a resumed run must have the same ones.
 *
 *   products    float32; bfloat16 as it is; bfloat16 by float32 products on copies; float32 as three of
 *               bfloat16
 *               -> numerics/ways.c, bf16_products and split_products
 *   attention   whole matrices or fused, forward and backward, each in float32 and bfloat16
 *               -> numerics/ways.c, fused_min_seq...; nn/attention_whole.c, BF16_MIN_SEQ
 */
#include <math.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/rng.h"
#include "shard_runtime/device/device.h"
#include "shard_runtime/numerics/numerics.h"
#include "tests/bench/bench.h"
#include "tests/support/oracles/operations.h"

enum { RUNS = 7, N_BUFFERS = 9 };

/* `splitting` computes float32 as three products of bfloat16, where it can. */
static struct numerics numerics, splitting;
static struct device device;
static struct device_stream *stream;
static void *buffers[N_BUFFERS]; /* small numbers in either dtype, and place for results */
static void *scratch;
static size_t scratch_bytes;

static void require(enum fsdp_status status, const struct fsdp_err *err)
{
    errno = 0;
    if (status != FSDP_OK)
        bench_die(err->message);
}

static void *room(size_t size_bytes)
{
    void *p = aligned_alloc(64, (size_bytes + 127) / 64 * 64);

    if (p == NULL)
        bench_die("memory");
    return p;
}

/* Bits of 2^-8 in bfloat16, twice in a float32: about the same number. */
static void fill_buffers(size_t n_elems)
{
    for (int i = 0; i < N_BUFFERS; i++) {
        uint32_t *x = buffers[i] = room(n_elems * sizeof *x);

        for (size_t k = 0; k < n_elems; k++)
            x[k] = 0x3b803b80u;
    }
}

static void need_scratch(size_t size_bytes)
{
    if (size_bytes <= scratch_bytes)
        return;
    free(scratch);
    scratch = room(size_bytes);
    scratch_bytes = size_bytes;
}

/* The best of RUNS in milliseconds; the first only warms up. */
static double best_ms(void (*run)(void *), void *user)
{
    double best = INFINITY;

    for (int i = 0; i <= bench_runs(RUNS); i++) {
        const double began = bench_clock(CLOCK_PROCESS_CPUTIME_ID);

        run(user);
        if (i > 0)
            best = fmin(best, bench_clock(CLOCK_PROCESS_CPUTIME_ID) - began);
    }
    return best * 1e3;
}

static struct matmul *product(struct numerics *n, const struct matmul_desc *desc)
{
    struct matmul *matmul;
    struct fsdp_err err = { 0 };
    size_t bytes;

    require(n->ops->matmul_create(n, desc, &matmul, &bytes, &err), &err);
    need_scratch(bytes);
    return matmul;
}

static void multiply(struct matmul *matmul, const void *a, const void *b, void *c)
{
    struct fsdp_err err = { 0 };

    require(numerics.ops->matmul_run(matmul, NULL, a, b, NULL, c, scratch, &err), &err);
}

/* Products of a linear */

struct linear {
    size_t m, n, k;
    struct matmul *matmul;
};

static void run_product(void *user)
{
    multiply(((struct linear *)user)->matmul, buffers[0], buffers[1], buffers[2]);
}

/* What nn/convert.c does around a float32 product of bfloat16 tensors. */
static void run_on_copies(void *user)
{
    struct linear *l = user;

    device.ops->cast(stream, buffers[0], FSDP_F32, buffers[3], FSDP_BF16, l->m * l->k, 1.0f, false);
    device.ops->cast(stream, buffers[1], FSDP_F32, buffers[4], FSDP_BF16, l->k * l->n, 1.0f, false);
    run_product(l);
    device.ops->cast(stream, buffers[5], FSDP_BF16, buffers[2], FSDP_F32, l->m * l->n, 1.0f, false);
}

static double time_product(struct numerics *n, struct linear l, enum fsdp_dtype dtype, void (*run)(void *))
{
    const struct matmul_desc desc = { .outer = 1,
                                      .inner = 1,
                                      .m = l.m,
                                      .n = l.n,
                                      .k = l.k,
                                      .a = { .row_stride = l.k, .col_stride = 1 },
                                      .b = { .row_stride = 1, .col_stride = l.k },
                                      .c = { .row_stride = l.n, .col_stride = 1 },
                                      .dtype = dtype,
                                      .c_dtype = dtype,
                                      .alpha = 1 };
    double ms;

    if (dtype == FSDP_BF16 && !n->bf16_products)
        return NAN;
    l.matmul = product(n, &desc);
    ms = best_ms(run, &l);
    n->ops->matmul_destroy(l.matmul);
    return ms;
}

static void products(void)
{
    static const struct linear shapes[] = {
        { .m = 16, .n = 512, .k = 512 },    { .m = 256, .n = 512, .k = 512 },
        { .m = 2048, .n = 512, .k = 512 },  { .m = 2048, .n = 2048, .k = 512 },
        { .m = 2048, .n = 512, .k = 2048 }, { .m = 1024, .n = 3072, .k = 768 },
        { .m = 1024, .n = 8192, .k = 768 },
    };

    printf("products, ms        float32   bfloat16  on copies  as three\n");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct linear l = shapes[i];
        const double plain = time_product(&numerics, l, FSDP_F32, run_product),
                     narrow = time_product(&numerics, l, FSDP_BF16, run_product),
                     copies = time_product(&numerics, l, FSDP_F32, run_on_copies),
                     three =
                         splitting.bf16_products ? time_product(&splitting, l, FSDP_F32, run_product) : NAN;

        printf("%4zu x %4zu x %4zu %9.3f  %9.3f  %9.3f %9.3f\n", l.m, l.n, l.k, plain, narrow, copies, three);
    }
}

/* Attention */

enum product { SCORES, OUT, DP, DV, DQ, DK, N_PRODUCTS };

struct attention {
    struct attention_desc d;
    enum fsdp_dtype dtype;
    struct fused_attention *fused;
    struct matmul *products[N_PRODUCTS];
    float *p, *ds, *lse;
    uint16_t *narrow;
};

static void run_fused(void *user)
{
    const struct attention *a = user;
    struct fsdp_err err = { 0 };
    const struct fused_attention_forward forward = { buffers[0], buffers[1], buffers[2], buffers[3],
                                                     a->lse,     NULL,       scratch };
    const struct fused_attention_backward backward = { .q = buffers[0],
                                                       .k = buffers[1],
                                                       .v = buffers[2],
                                                       .out = buffers[3],
                                                       .dout = buffers[4],
                                                       .lse = a->lse,
                                                       .dq = buffers[5],
                                                       .dk = buffers[6],
                                                       .dv = buffers[7],
                                                       .scratch = scratch };

    require(numerics.ops->attention_forward(a->fused, NULL, &forward, &err), &err);
    require(numerics.ops->attention_backward(a->fused, NULL, &backward, &err), &err);
}

static void run_whole(void *user)
{
    static const struct dropout off = { .p = 0 };
    const struct attention *a = user;
    struct matmul *const *by = a->products;
    const bool narrows = a->dtype == FSDP_BF16;
    void *p = narrows ? (void *)a->narrow : a->p, *ds = narrows ? (void *)a->narrow : a->ds;

    multiply(by[SCORES], buffers[0], buffers[1], a->p);
    if (narrows)
        op_softmax_bf16(&numerics, NULL, a->p, a->narrow, &a->d);
    else
        op_softmax(&numerics, NULL, a->p, NULL, &a->d, &off);
    multiply(by[OUT], p, buffers[2], buffers[3]);
    multiply(by[DV], p, buffers[4], buffers[7]);
    multiply(by[DP], buffers[4], buffers[2], a->ds);
    if (narrows)
        op_softmax_backward_bf16(&numerics, NULL, a->narrow, a->ds, &a->d);
    else
        op_softmax_backward(&numerics, NULL, a->p, a->ds, a->ds, &a->d, &off);
    multiply(by[DQ], ds, buffers[1], buffers[5]);
    multiply(by[DK], ds, buffers[0], buffers[6]);
}

static struct matmul_view transposed(struct matmul_view v)
{
    return (struct matmul_view){ v.outer_stride, v.inner_stride, v.col_stride, v.row_stride };
}

static struct matmul *heads(const struct attention *a, size_t n, size_t k, struct matmul_view x,
                            struct matmul_view y, struct matmul_view z, bool wide)
{
    return product(&numerics, &(struct matmul_desc){ .outer = a->d.batch,
                                                     .inner = a->d.heads,
                                                     .m = a->d.seq,
                                                     .n = n,
                                                     .k = k,
                                                     .a = x,
                                                     .b = y,
                                                     .c = z,
                                                     .dtype = a->dtype,
                                                     .c_dtype = wide ? FSDP_F32 : a->dtype,
                                                     .alpha = 0.125f });
}

static double time_whole(struct attention *a)
{
    const size_t T = a->d.seq, E = a->d.head_dim, features = a->d.heads * E;
    const struct matmul_view tall = { T * features, E, features, 1 },
                             square = { a->d.heads * T * T, T * T, T, 1 };
    double ms;

    a->products[SCORES] = heads(a, T, E, tall, transposed(tall), square, true);
    a->products[OUT] = heads(a, E, T, square, tall, tall, false);
    a->products[DP] = heads(a, T, E, tall, transposed(tall), square, true);
    a->products[DV] = heads(a, E, T, transposed(square), tall, tall, false);
    a->products[DQ] = heads(a, E, T, square, tall, tall, false);
    a->products[DK] = heads(a, E, T, transposed(square), tall, tall, false);
    ms = best_ms(run_whole, a);
    for (int i = 0; i < N_PRODUCTS; i++)
        numerics.ops->matmul_destroy(a->products[i]);
    return ms;
}

static double time_fused(struct attention *a)
{
    const size_t features = a->d.heads * a->d.head_dim;
    const struct fused_attention_desc desc = { .shape = a->d,
                                               .dtype = a->dtype,
                                               .scale = 0.125f,
                                               .q_stride = features,
                                               .k_stride = features,
                                               .v_stride = features,
                                               .out_stride = features };
    struct fsdp_err err = { 0 };
    size_t forward, backward;
    double ms;

    require(numerics.ops->attention_create(&numerics, &desc, &a->fused, &forward, &backward, &err), &err);
    need_scratch(forward > backward ? forward : backward);
    ms = best_ms(run_fused, a);
    numerics.ops->attention_destroy(a->fused);
    return ms;
}

static void attention(void)
{
    enum { TOKENS = 2048, HEADS = 8, HEAD = 64 };
    const size_t most = (size_t)TOKENS * HEADS * TOKENS;
    struct attention a = { .p = room(most * sizeof(float)),
                           .ds = room(most * sizeof(float)),
                           .lse = room((size_t)TOKENS * HEADS * sizeof(float)),
                           .narrow = room(most * sizeof(uint16_t)) };

    printf("\nattention of 2048 tokens, 8 heads of 64, forward and backward, ms; fused / whole\n");
    printf("seq          float32: whole  fused  ratio   bfloat16: whole  fused  ratio\n");
    for (int causal = 0; causal < 2; causal++)
        for (size_t seq = 4; seq <= TOKENS; seq *= 2) {
            a.d = (struct attention_desc){ TOKENS / seq, seq, HEADS, HEAD, causal != 0 };
            printf("%4zu %-6s", seq, causal ? "causal" : "");
            for (int narrow = 0; narrow < 2; narrow++) {
                double ways[2] = { NAN, NAN };

                a.dtype = narrow ? FSDP_BF16 : FSDP_F32;
                if (!narrow || numerics.bf16_products) {
                    ways[0] = time_whole(&a);
                    ways[1] = time_fused(&a);
                }
                printf("        %8.2f %8.2f  %4.2f", ways[0], ways[1], ways[1] / ways[0]);
            }
            printf("\n");
        }
    free(a.p);
    free(a.ds);
    free(a.lse);
    free(a.narrow);
}

int main(int argc, char **argv)
{
    struct numerics_config config = { .threads = argc > 1 ? atoi(argv[1]) : 1, .name = "auto" };
    struct fsdp_err err = { 0 };
    char line[256];

    require(numerics_open(&numerics, &config, &err), &err);
    config.precision = FSDP_MATMUL_HIGH;
    config.splits_anyway = true;
    require(numerics_open(&splitting, &config, &err), &err);
    require(device_open(&device, &(struct device_config){ .name = "cpu" }, &err), &err);
    require(device.ops->stream_create(&device, &stream, false, &err), &err);
    printf("%s\n", numerics_describe(&numerics, line, sizeof line));
    fill_buffers((size_t)8192 * 1024);
    products();
    attention();
    return 0;
}
