/* Links libfsdp.
 *
 * bench_ways [THREADS]: the ways that the runtime chooses between by a table, side by side, in CPU time (best of some runs,
 * in turns), so that the table can be derived anew on another machine. No choice is timed when a job starts: it decides
 * bits, and a run that goes on must have the same ones.
 *
 *   products    float32; bfloat16 as it is; bfloat16 by float32 products on copies; float32 as three of bfloat16
 *               -> numerics/ways.c, bf16_products and split_products
 *   attention   whole matrices or fused, forward and backward, each in float32 and bfloat16
 *               -> numerics/ways.c, fused_min_seq...; nn/attention_whole.c, BF16_MIN_SEQ
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/rng.h"
#include "shard_runtime/device/device.h"
#include "shard_runtime/numerics/numerics.h"
#include "tests/bench/runs.h"

enum { RUNS = 7, N_BUFFERS = 9 };

static struct numerics numerics,
    splitting; /* `splitting` computes float32 as three of bfloat16, where it can */
static struct device device;
static struct device_stream *stream;
static void *buffers[N_BUFFERS]; /* small numbers in either dtype, and place for results */
static void *scratch;
static size_t scratch_bytes;

static double cpu_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void die(const struct fsdp_err *err)
{
    fprintf(stderr, "bench_ways: %s\n", err->message);
    exit(1);
}

static void *room(size_t size_bytes)
{
    void *p = aligned_alloc(64, (size_bytes + 127) / 64 * 64);

    if (p == NULL) {
        perror("bench_ways");
        exit(1);
    }
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
        const double began = cpu_s();

        run(user);
        if (i > 0 && cpu_s() - began < best)
            best = cpu_s() - began;
    }
    return best * 1e3;
}

static struct matmul *product(struct numerics *n, const struct matmul_desc *desc)
{
    struct matmul *matmul;
    struct fsdp_err err = { 0 };
    size_t bytes;

    if (n->ops->matmul_create(n, desc, &matmul, &bytes, &err) != FSDP_OK)
        die(&err);
    need_scratch(bytes);
    return matmul;
}

static void multiply(struct matmul *matmul, int a, int b, int c)
{
    struct fsdp_err err = { 0 };

    if (numerics.ops->matmul_run(matmul, NULL, buffers[a], buffers[b], NULL, buffers[c], scratch, &err) !=
        FSDP_OK)
        die(&err);
}

/* --- products of a linear --- */

struct linear {
    size_t m, n, k;
    struct matmul *matmul;
};

static void run_product(void *user)
{
    multiply(((struct linear *)user)->matmul, 0, 1, 2);
}

/* What nn/convert.c does around a float32 product of bfloat16 tensors. */
static void run_on_copies(void *user)
{
    struct linear *l = user;

    device.ops->cast(stream, buffers[0], FSDP_F32, buffers[3], FSDP_BF16, l->m * l->k, 1.0f, false);
    device.ops->cast(stream, buffers[1], FSDP_F32, buffers[4], FSDP_BF16, l->k * l->n, 1.0f, false);
    multiply(l->matmul, 0, 1, 2);
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

/* --- attention --- */

struct attention {
    struct attention_desc d;
    enum fsdp_dtype dtype;
    struct fused_attention *fused;
    struct matmul *scores, *out, *dp, *dv, *dq, *dk;
    float *p, *ds;
    uint16_t *narrow;
    float *lse;
};

static void run_fused(void *user)
{
    const struct attention *a = user;
    struct fsdp_err err = { 0 };
    const struct fused_attention_forward forward = { .q = buffers[0],
                                                     .k = buffers[1],
                                                     .v = buffers[2],
                                                     .out = buffers[3],
                                                     .lse = a->lse,
                                                     .scratch = scratch };
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

    if (numerics.ops->attention_forward(a->fused, NULL, &forward, &err) != FSDP_OK ||
        numerics.ops->attention_backward(a->fused, NULL, &backward, &err) != FSDP_OK)
        die(&err);
}

static void whole(struct matmul *matmul, const void *a, const void *b, void *c)
{
    struct fsdp_err err = { 0 };

    if (numerics.ops->matmul_run(matmul, NULL, a, b, NULL, c, scratch, &err) != FSDP_OK)
        die(&err);
}

static void run_whole(void *user)
{
    static const struct dropout off = { .p = 0 };
    const struct attention *a = user;
    const struct numerics_ops *ops = numerics.ops;
    const bool narrows = a->dtype == FSDP_BF16;
    void *p = narrows ? (void *)a->narrow : a->p, *ds = narrows ? (void *)a->narrow : a->ds;

    whole(a->scores, buffers[0], buffers[1], a->p);
    if (narrows)
        ops->bf16->softmax(&numerics, NULL, a->p, a->narrow, &a->d);
    else
        ops->softmax(&numerics, NULL, a->p, NULL, &a->d, &off);
    whole(a->out, p, buffers[2], buffers[3]);
    whole(a->dv, p, buffers[4], buffers[7]);
    whole(a->dp, buffers[4], buffers[2], a->ds);
    if (narrows)
        ops->bf16->softmax_backward(&numerics, NULL, a->narrow, a->ds, &a->d);
    else
        ops->softmax_backward(&numerics, NULL, a->p, a->ds, a->ds, &a->d, &off);
    whole(a->dq, ds, buffers[1], buffers[5]);
    whole(a->dk, ds, buffers[0], buffers[6]);
}

static struct matmul_view transposed(struct matmul_view v)
{
    return (struct matmul_view){ .outer_stride = v.outer_stride,
                                 .inner_stride = v.inner_stride,
                                 .row_stride = v.col_stride,
                                 .col_stride = v.row_stride };
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
    const struct matmul_view tall = { .outer_stride = T * features,
                                      .inner_stride = E,
                                      .row_stride = features,
                                      .col_stride = 1 },
                             square = { .outer_stride = a->d.heads * T * T,
                                        .inner_stride = T * T,
                                        .row_stride = T,
                                        .col_stride = 1 };
    struct matmul *all[6];
    double ms;

    all[0] = a->scores = heads(a, T, E, tall, transposed(tall), square, true);
    all[1] = a->out = heads(a, E, T, square, tall, tall, false);
    all[2] = a->dp = heads(a, T, E, tall, transposed(tall), square, true);
    all[3] = a->dv = heads(a, E, T, transposed(square), tall, tall, false);
    all[4] = a->dq = heads(a, E, T, square, tall, tall, false);
    all[5] = a->dk = heads(a, E, T, transposed(square), tall, tall, false);
    ms = best_ms(run_whole, a);
    for (int i = 0; i < 6; i++)
        numerics.ops->matmul_destroy(all[i]);
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

    if (numerics.ops->attention_create(&numerics, &desc, &a->fused, &forward, &backward, &err) != FSDP_OK)
        die(&err);
    need_scratch(forward > backward ? forward : backward);
    ms = best_ms(run_fused, a);
    numerics.ops->attention_destroy(a->fused);
    return ms;
}

static void attention(void)
{
    static const size_t lengths[] = { 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048 };

    printf("\nattention of 2048 tokens, 8 heads of 64, forward and backward, ms; fused / whole\n");
    printf("seq          float32: whole  fused  ratio   bfloat16: whole  fused  ratio\n");
    for (int causal = 0; causal < 2; causal++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            struct attention a = { .d = { .batch = 2048 / lengths[i],
                                          .seq = lengths[i],
                                          .heads = 8,
                                          .head_dim = 64,
                                          .causal = causal != 0 } };
            const size_t scores = 2048 * 8 * lengths[i];

            a.p = room(scores * sizeof *a.p);
            a.ds = room(scores * sizeof *a.ds);
            a.narrow = room(scores * sizeof *a.narrow);
            a.lse = room(2048 * 8 * sizeof *a.lse);
            printf("%4zu %-6s", lengths[i], causal ? "causal" : "");
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
            free(a.p);
            free(a.ds);
            free(a.narrow);
            free(a.lse);
        }
}

int main(int argc, char **argv)
{
    struct numerics_config config = { .threads = argc > 1 ? atoi(argv[1]) : 1, .name = "auto" };
    struct fsdp_err err = { 0 };
    char line[256];

    if (numerics_open(&numerics, &config, &err) != FSDP_OK)
        die(&err);
    config.precision = FSDP_MATMUL_HIGH;
    config.splits_anyway = true;
    if (numerics_open(&splitting, &config, &err) != FSDP_OK ||
        device_open(&device, &(struct device_config){ .name = "cpu" }, &err) != FSDP_OK ||
        device.ops->stream_create(&device, &stream, false, &err) != FSDP_OK)
        die(&err);
    printf("%s\n", numerics_describe(&numerics, line, sizeof line));
    fill_buffers((size_t)8192 * 1024);
    products();
    attention();
    for (int i = 0; i < N_BUFFERS; i++)
        free(buffers[i]);
    free(scratch);
    device.ops->stream_destroy(stream);
    device_close(&device);
    numerics_close(&splitting);
    numerics_close(&numerics);
    return 0;
}
