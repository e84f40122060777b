/* Links libfsdp.
 *
 * What the numerics row does with the shapes of the FSDP2 tutorial's model (2048 tokens, dim 512, MLP 2048).
 * Matrix products are compared with the fused multiply-adds that the registers can do. Everything else is
 * compared with a memcpy that moves as many bytes (read and written). Both are measured in turns in one run.
 * Medians.
 *
 *   bench_numerics ROW THREADS JSON-FILE
 */
#include <math.h>

#include "shard_runtime/core/rng.h"
#include "shard_runtime/device/device.h"
#include "shard_runtime/numerics/numerics.h"
#include "tests/bench/bench.h"
#include "tests/support/oracles/operations.h"

enum {
    TOKENS = 2048,
    DIM = 512,
    WIDE = 2048,
    VOCAB = 1024,
    BATCH = 32,
    HEADS = 8,
    SEQ = 64,
    HEAD = 64,
    REPEATS = 15
};

struct bench {
    struct numerics numerics;
    struct device device;
    float *x, *y, *z, *w; /* TOKENS * WIDE floats each */
    float *from, *to;     /* the memcpy's: as large */
    void *scratch;
    int32_t *tokens;
    struct report report;
    /* Of the kernel that is measured: which turn is next, and when it began. */
    int turn;
    double began;
    double ours[REPEATS], limit[REPEATS];
};

static void add(struct bench *bench, const char *what, const char *unit, const char *limit_name)
{
    report_add(&bench->report, &(struct report_row){ what, unit, true, bench->ours, bench->limit, NULL,
                                                     bench_runs(REPEATS), limit_name, NULL });
}

/* The limit of products */

/* Ten sums that do not wait for each other, and are not the same, hide the latency of a multiply-add. */
#define FMA_LOOP(vector, fma)                                                                                \
    vector sums[10];                                                                                         \
    vector a = one - 1e-7f, b = one * 1e-7f;                                                                 \
    _Pragma("GCC unroll 10") for (int i = 0; i < 10; i++) sums[i] = one * (float)(i + 1);                    \
    for (long turn = 0; turn < turns; turn++) {                                                              \
        _Pragma("GCC unroll 10") for (int i = 0; i < 10; i++) sums[i] = fma(sums[i], a, b);                  \
    }                                                                                                        \
    _Pragma("GCC unroll 10") for (int i = 1; i < 10; i++) sums[0] += sums[i];                                \
    return sums[0][0]

#if defined(__x86_64__)
#include <immintrin.h>
__attribute__((target("avx512f"))) static float fma_512(long turns)
{
    const __m512 one = _mm512_set1_ps(1.0f);

    FMA_LOOP(__m512, _mm512_fmadd_ps);
}

__attribute__((target("avx2,fma"))) static float fma_256(long turns)
{
    const __m256 one = _mm256_set1_ps(1.0f);

    FMA_LOOP(__m256, _mm256_fmadd_ps);
}
#endif

static volatile float sink;

/* GF/s of one core from its registers; 0 where this program has no loop for it. */
static double fma_peak(void)
{
    const long turns = 2000000;
    double start = bench_now(), lanes = 0;

#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        sink = fma_512(turns);
        lanes = 16;
    } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        sink = fma_256(turns);
        lanes = 8;
    }
#endif
    return lanes * 2 * 10 * (double)turns / (bench_now() - start) * 1e-9;
}

/* Products */

static struct matmul_view transposed(struct matmul_view v)
{
    return (struct matmul_view){ v.outer_stride, v.inner_stride, v.col_stride, v.row_stride };
}

static void product(struct bench *bench, const char *what, const struct matmul_desc *desc)
{
    const double flops =
        2.0 * (double)(desc->outer * desc->inner) * (double)desc->m * (double)desc->n * (double)desc->k;
    const int turns = flops < 1e9 ? 8 : 1;
    struct fsdp_err err = { 0 };
    struct matmul *matmul;
    size_t scratch_bytes;
    void *scratch;

    if (bench->numerics.ops->matmul_create(&bench->numerics, desc, &matmul, &scratch_bytes, &err) !=
            FSDP_OK ||
        bench->device.ops->alloc(&bench->device, scratch_bytes, &scratch, &err) != FSDP_OK) {
        errno = 0;
        bench_die(err.message);
    }
    for (int i = -2; i < bench_runs(REPEATS); i++) {
        double start;

        if (i >= 0)
            bench->limit[i] = fma_peak() * bench->numerics.threads;
        start = bench_now();
        for (int turn = 0; turn < turns; turn++)
            if (bench->numerics.ops->matmul_run(matmul, NULL, bench->x, bench->y,
                                                desc->bias ? bench->w : NULL, bench->z, scratch,
                                                &err) != FSDP_OK)
                exit(1);
        if (i >= 0)
            bench->ours[i] = flops * turns / (bench_now() - start) * 1e-9;
    }
    bench->numerics.ops->matmul_destroy(matmul);
    bench->device.ops->free(&bench->device, scratch, scratch_bytes);
    add(bench, what, "GF/s", "fused multiply-adds in registers");
}

/* One product; the rows of c are adjacent. */
static struct matmul_desc plain(size_t m, size_t n, size_t k, struct matmul_view a, struct matmul_view b)
{
    return (struct matmul_desc){ .outer = 1,
                                 .inner = 1,
                                 .m = m,
                                 .n = n,
                                 .k = k,
                                 .a = a,
                                 .b = b,
                                 .c = { .row_stride = n, .col_stride = 1 },
                                 .dtype = FSDP_F32,
                                 .alpha = 1.0f };
}

/* y = x w^T, dx = dy w, dw = dy^T x of a linear layer with `in` and `out` features. */
static void linear(struct bench *bench, size_t in, size_t out, bool bias)
{
    const struct matmul_view rows_in = { .row_stride = in, .col_stride = 1 },
                             rows_out = { .row_stride = out, .col_stride = 1 };
    struct matmul_desc desc = plain(TOKENS, out, in, rows_in, transposed(rows_in));
    char what[64];

    desc.bias = bias;
    snprintf(what, sizeof what, "%zu to %zu%s, forward (NT)", in, out, bias ? " + bias" : "");
    product(bench, what, &desc);
    desc = plain(TOKENS, in, out, rows_out, rows_in);
    snprintf(what, sizeof what, "%zu to %zu, dx (NN)", in, out);
    product(bench, what, &desc);
    desc = plain(out, in, TOKENS, transposed(rows_out), rows_in);
    desc.accumulate = true;
    snprintf(what, sizeof what, "%zu to %zu, dw += (TN)", in, out);
    product(bench, what, &desc);
}

static void attention(struct bench *bench)
{
    const struct matmul_view tokens = { SEQ * DIM, HEAD, DIM, 1 },
                             scores = { HEADS * SEQ * SEQ, SEQ * SEQ, SEQ, 1 };
    struct matmul_desc desc = plain(SEQ, SEQ, HEAD, tokens, transposed(tokens));

    desc.outer = BATCH;
    desc.inner = HEADS;
    desc.c = scores;
    desc.alpha = 0.125f;
    product(bench, "scores = q k^T, 256 heads of 64", &desc);
    desc.n = HEAD;
    desc.k = SEQ;
    desc.a = scores;
    desc.b = desc.c = tokens;
    desc.alpha = 1.0f;
    product(bench, "out = p v", &desc);
    desc.a = transposed(scores);
    product(bench, "dv = p^T dout", &desc);
}

/* rows */

static void refill(struct bench *b)
{
    float *const buffers[] = { b->x, b->y, b->z, b->w };

    for (uint64_t i = 0; i < 4; i++)
        rng_fill_normal(i + 1, 0, buffers[i], TOKENS * WIDE, 1.0f);
}

/* GB/s read and written by memcpy while the threads of the row would all copy. */
static double copy_rate(struct bench *bench, double bytes)
{
    const size_t n = (size_t)(bytes / 2) < TOKENS * WIDE * sizeof(float) ? (size_t)(bytes / 2)
                                                                         : TOKENS * WIDE * sizeof(float);
    const size_t part = n / (size_t)bench->numerics.threads;
    double start = bench_now();

#ifdef _OPENMP
#pragma omp parallel for schedule(static, 1) num_threads(bench->numerics.threads)
#endif
    for (int t = 0; t < bench->numerics.threads; t++)
        memcpy((char *)bench->to + (size_t)t * part, (const char *)bench->from + (size_t)t * part, part);
    return 2.0 * (double)part * bench->numerics.threads / (bench_now() - start) * 1e-9;
}

/*
 * The turns of one kernel: a loop over it runs the kernel once in each turn. The first call begins, each
 * other one ends a turn; after the last, it adds the row and returns false. A call of the kernel reads and
 * writes `moved` floats for each of `n_elems` elements, each once. Two turns warm up.
 */
static bool turns(struct bench *b, const char *name, size_t n_elems, size_t moved)
{
    const double bytes = (double)(n_elems * moved * sizeof(float)), seconds = bench_now() - b->began;
    const int n = bench_runs(REPEATS), done = b->turn - 3;
    char what[80];

    if (b->turn == 0)
        refill(b);
    else if (done >= 0)
        b->ours[done] = bytes / seconds * 1e-9;
    if (done == n - 1) {
        b->turn = 0;
        snprintf(what, sizeof what, "%s (%.2f ns)", name,
                 bytes / report_quantile(b->ours, n, 0.5) / (double)n_elems);
        add(b, what, "GB/s", "memcpy, read and written");
        return false;
    }
    b->limit[done + 1 < 0 ? 0 : done + 1] = copy_rate(b, bytes);
    b->turn++;
    b->began = bench_now();
    return true;
}

static void row_kernels(struct bench *b)
{
    enum { FEW = TOKENS * DIM, MANY = TOKENS * WIDE, SCORES = BATCH * HEADS * SEQ * SEQ };
    static const struct op_rates adamw = {
        .lr = 1e-6, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1
    };
    static const struct op_rates sgd = { .lr = 1e-6, .momentum = 0.9, .weight_decay = 0.01 };
    static const struct dropout off = { .p = 0 }, on = { .p = 0.1f, .key = 3 };
    static const struct attention_desc heads = {
        .batch = BATCH, .seq = SEQ, .heads = HEADS, .head_dim = HEAD, .causal = true
    };
    struct numerics *n = &b->numerics;
    float *x = b->x, *y = b->y, *z = b->z, *row = b->w, *row2 = b->w + WIDE, *mean = b->w + 4 * WIDE,
          *rstd = mean + TOKENS;
    double loss = 0;
    uint64_t count = 0;

    while (turns(b, "add", FEW, 3))
        op_add(n, NULL, FSDP_F32, x, y, z, FEW);
    while (turns(b, "column_sum 2048 x 2048", MANY, 1))
        op_column_sum(n, NULL, FSDP_F32, x, FSDP_F32, row, TOKENS, WIDE, false);
    while (turns(b, "dropout", FEW, 2))
        op_dropout(n, NULL, x, z, TOKENS, DIM, &on, false);
    while (turns(b, "dropout, added to the residual", FEW, 3))
        op_dropout(n, NULL, x, z, TOKENS, DIM, &on, true);
    while (turns(b, "layer_norm", FEW, 2))
        op_norm(n, NULL, FSDP_F32, x, row, row2, z, mean, rstd, TOKENS, DIM, 1e-5f);
    while (turns(b, "layer_norm_backward, dx +=", FEW, 4))
        op_norm_backward(n, NULL, y, x, row, mean, rstd, z, true, row2, row2 + WIDE, false, b->scratch,
                         TOKENS, DIM);
    while (turns(b, "gelu", MANY, 2))
        op_activation(n, NULL, FSDP_F32, NUMERICS_GELU, x, z, MANY);
    while (turns(b, "gelu_backward in place", MANY, 3))
        op_activation_backward(n, NULL, FSDP_F32, NUMERICS_GELU, z, x, z, MANY);
    while (turns(b, "softmax, causal", SCORES, 2))
        op_softmax(n, NULL, z, NULL, &heads, &off);
    while (turns(b, "softmax and dropout, causal", SCORES, 3))
        op_softmax(n, NULL, z, y, &heads, &on);
    while (turns(b, "softmax_backward, causal", SCORES, 3))
        op_softmax_backward(n, NULL, x, y, z, &heads, &off);
    while (turns(b, "embedding", FEW, 2))
        op_embedding(n, NULL, b->tokens, x, y, z, TOKENS, DIM, SEQ);
    while (turns(b, "embedding_backward", FEW, 5))
        op_embedding_backward(n, NULL, b->tokens, x, z, y, TOKENS, DIM, SEQ);
    while (turns(b, "cross_entropy and its gradient", TOKENS * VOCAB, 2))
        op_cross_entropy(n, NULL, x, b->tokens, z, TOKENS, VOCAB, 1.0f / TOKENS, &loss, &count);
    while (turns(b, "adamw", MANY, 7))
        op_adamw(n, NULL, x, y, z, b->to, MANY, &adamw, 1.0f, (uint64_t)b->turn);
    while (turns(b, "sgd with momentum", MANY, 5))
        op_sgd(n, NULL, x, y, z, MANY, &sgd, 1.0f, (uint64_t)b->turn);
    while (turns(b, "sum_squares", MANY, 1))
        sink = (float)op_sum_powers(n, NULL, x, MANY, 2);
}

static void bench_open(struct bench *bench, const char *row, int threads)
{
    const struct numerics_config config = { .threads = threads, .name = row };
    struct fsdp_err err = { 0 };
    float **const buffers[] = { &bench->x, &bench->y, &bench->z, &bench->w, &bench->from, &bench->to };
    void *memory;

    if (numerics_open(&bench->numerics, &config, &err) != FSDP_OK ||
        device_open(&bench->device, &(struct device_config){ .name = "cpu" }, &err) != FSDP_OK)
        goto failed;
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        if (bench->device.ops->alloc(&bench->device, sizeof(float) * TOKENS * WIDE, &memory, &err) != FSDP_OK)
            goto failed;
        *buffers[i] = memory;
    }
    if (bench->device.ops->alloc(&bench->device,
                                 bench->numerics.ops->norm_scratch(&bench->numerics, FSDP_F32, TOKENS, DIM),
                                 &bench->scratch, &err) != FSDP_OK ||
        bench->device.ops->alloc(&bench->device, TOKENS * sizeof *bench->tokens, &memory, &err) != FSDP_OK)
        goto failed;
    bench->tokens = memory;
    for (size_t i = 0; i < TOKENS; i++)
        bench->tokens[i] = (int32_t)rng_below(5, i, VOCAB);
    for (size_t i = 0; i < TOKENS * WIDE; i++)
        bench->from[i] = 1.0f; /* what the memcpy leaves in `to` are AdamW's second moments */
    return;
failed:
    errno = 0;
    bench_die(err.message);
}

int main(int argc, char **argv)
{
    struct bench bench = { 0 };
    char row[256];

    if (argc != 4 || !report_begin(&bench.report, argv[3]))
        return 2;
    bench_open(&bench, argv[1], atoi(argv[2]));
    printf("numerics: %s\n", numerics_describe(&bench.numerics, row, sizeof row));
    if (strcmp(bench.numerics.ops->name, "onednn") == 0) { /* products of others are plain loops */
        linear(&bench, DIM, DIM, false);
        linear(&bench, DIM, WIDE, true);
        linear(&bench, WIDE, DIM, true);
        linear(&bench, DIM, VOCAB, false);
        attention(&bench);
    }
    row_kernels(&bench);
    numerics_close(&bench.numerics);
    return report_end(&bench.report) ? 0 : 1;
}
