/* Links libfsdp.
 *
 * What the numerics row does with the shapes of the FSDP2 tutorial's model (2048 tokens, dim 512, MLP 2048):
 * matrix products beside the fused multiply-adds that the registers can do, everything else beside a memcpy
 * that moves as many bytes (read and written), measured in turns in one run. Medians.
 *
 *   bench_numerics [ROW [THREADS [JSON-FILE]]]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shard_runtime/core/rng.h"
#include "shard_runtime/device/device.h"
#include "shard_runtime/numerics/numerics.h"
#include "tests/bench/runs.h"

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
    FILE *json;
    int n_rows;
};

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

static void report(struct bench *bench, const char *what, const char *unit, double ours, double limit,
                   const char *limit_name, double worst)
{
    printf("%-34s | %8.1f %-4s | - | %8.1f | - | %5.2f\n", what, ours, unit, limit, ours / limit);
    fflush(stdout);
    if (bench->json != NULL)
        fprintf(bench->json,
                "%s\n  {\"what\": \"%s\", \"unit\": \"%s\", \"ours\": %.6g, \"peer\": null, \"peer_name\": "
                "null, \"limit\": %.6g, "
                "\"limit_name\": \"%s\", \"better\": \"higher\", \"n\": %d, \"p99\": %.6g}",
                bench->n_rows > 0 ? "," : "", what, unit, ours, limit, limit_name, bench_runs(REPEATS),
                worst);
    bench->n_rows++;
}

/* --- the limit of products --- */

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
    double start = now_s(), lanes = 0;

#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        sink = fma_512(turns);
        lanes = 16;
    } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        sink = fma_256(turns);
        lanes = 8;
    }
#endif
    return lanes * 2 * 10 * (double)turns / (now_s() - start) * 1e-9;
}

/* --- products --- */

static void product(struct bench *bench, const char *what, const struct matmul_desc *desc)
{
    const double flops =
        2.0 * (double)(desc->outer * desc->inner) * (double)desc->m * (double)desc->n * (double)desc->k;
    const int turns = flops < 1e9 ? 8 : 1;
    double ours[REPEATS], peak[REPEATS];
    struct fsdp_err err = { 0 };
    struct matmul *matmul;
    size_t scratch_bytes;
    void *scratch;

    if (bench->numerics.ops->matmul_create(&bench->numerics, desc, &matmul, &scratch_bytes, &err) !=
            FSDP_OK ||
        bench->device.ops->alloc(&bench->device, scratch_bytes, &scratch, &err) != FSDP_OK) {
        fprintf(stderr, "%s: %s\n", what, err.message);
        exit(1);
    }
    for (int i = -2; i < bench_runs(REPEATS); i++) {
        double start;

        if (i >= 0)
            peak[i] = fma_peak() * bench->numerics.threads;
        start = now_s();
        for (int turn = 0; turn < turns; turn++)
            if (bench->numerics.ops->matmul_run(matmul, NULL, bench->x, bench->y,
                                                desc->bias ? bench->w : NULL, bench->z, scratch,
                                                &err) != FSDP_OK)
                exit(1);
        if (i >= 0)
            ours[i] = flops * turns / (now_s() - start) * 1e-9;
    }
    bench->numerics.ops->matmul_destroy(matmul);
    bench->device.ops->free(&bench->device, scratch, scratch_bytes);
    {
        const double middle = median(ours, bench_runs(REPEATS));

        report(bench, what, "GF/s", middle, median(peak, bench_runs(REPEATS)),
               "fused multiply-adds in registers", ours[0]);
    }
}

/* y = x w^T, dx = dy w, dw = dy^T x of a linear layer with `in` and `out` features. */
static void linear(struct bench *bench, size_t in, size_t out, bool bias)
{
    const struct matmul_desc forward = {
        .outer = 1,
        .inner = 1,
        .m = TOKENS,
        .n = out,
        .k = in,
        .a = { .row_stride = in, .col_stride = 1 },
        .b = { .row_stride = 1, .col_stride = in },
        .c = { .row_stride = out, .col_stride = 1 },
        .dtype = FSDP_F32,
        .bias = bias,
        .alpha = 1.0f,
    };
    const struct matmul_desc dx = {
        .outer = 1,
        .inner = 1,
        .m = TOKENS,
        .n = in,
        .k = out,
        .a = { .row_stride = out, .col_stride = 1 },
        .b = { .row_stride = in, .col_stride = 1 },
        .c = { .row_stride = in, .col_stride = 1 },
        .dtype = FSDP_F32,
        .alpha = 1.0f,
    };
    const struct matmul_desc dw = {
        .outer = 1,
        .inner = 1,
        .m = out,
        .n = in,
        .k = TOKENS,
        .a = { .row_stride = 1, .col_stride = out },
        .b = { .row_stride = in, .col_stride = 1 },
        .c = { .row_stride = in, .col_stride = 1 },
        .dtype = FSDP_F32,
        .accumulate = true,
        .alpha = 1.0f,
    };
    char what[64];

    snprintf(what, sizeof what, "%zu to %zu%s, forward (NT)", in, out, bias ? " + bias" : "");
    product(bench, what, &forward);
    snprintf(what, sizeof what, "%zu to %zu, dx (NN)", in, out);
    product(bench, what, &dx);
    snprintf(what, sizeof what, "%zu to %zu, dw += (TN)", in, out);
    product(bench, what, &dw);
}

static void attention(struct bench *bench)
{
    const struct matmul_view
        tokens = { .outer_stride = SEQ * DIM, .inner_stride = HEAD, .row_stride = DIM, .col_stride = 1 },
        tokens_t = { .outer_stride = SEQ * DIM, .inner_stride = HEAD, .row_stride = 1, .col_stride = DIM };
    const struct matmul_view scores = {
        .outer_stride = HEADS * SEQ * SEQ, .inner_stride = SEQ * SEQ, .row_stride = SEQ, .col_stride = 1
    };
    const struct matmul_view scores_t = {
        .outer_stride = HEADS * SEQ * SEQ, .inner_stride = SEQ * SEQ, .row_stride = 1, .col_stride = SEQ
    };
    struct matmul_desc desc = { .outer = BATCH,
                                .inner = HEADS,
                                .m = SEQ,
                                .n = SEQ,
                                .k = HEAD,
                                .a = tokens,
                                .b = tokens_t,
                                .c = scores,
                                .dtype = FSDP_F32,
                                .alpha = 0.125f };

    product(bench, "scores = q k^T, 256 heads of 64", &desc);
    desc = (struct matmul_desc){ .outer = BATCH,
                                 .inner = HEADS,
                                 .m = SEQ,
                                 .n = HEAD,
                                 .k = SEQ,
                                 .a = scores,
                                 .b = tokens,
                                 .c = tokens,
                                 .dtype = FSDP_F32,
                                 .alpha = 1.0f };
    product(bench, "out = p v", &desc);
    desc.a = scores_t;
    product(bench, "dv = p^T dout", &desc);
}

/* --- rows
 * ---------------------------------------------------------------------------------------------------------
 */

enum kernel {
    ADD,
    COLUMN_SUM,
    DROPOUT,
    DROPOUT_RESIDUAL,
    NORM,
    NORM_BACKWARD,
    GELU,
    GELU_BACKWARD,
    SOFTMAX,
    SOFTMAX_DROPOUT,
    SOFTMAX_BACKWARD,
    EMBEDDING,
    EMBEDDING_BACKWARD,
    LOSS,
    ADAMW,
    SGD,
    SQUARES,
    KERNEL_COUNT
};

/* What is moved a call: floats read and written, each once. */
static const struct {
    const char *what;
    size_t elems, reads, writes;
} kernels[KERNEL_COUNT] = {
    [ADD] = { .what = "add", .elems = TOKENS * DIM, .reads = 2, .writes = 1 },
    [COLUMN_SUM] = { .what = "column_sum 2048 x 2048", .elems = TOKENS * WIDE, .reads = 1, .writes = 0 },
    [DROPOUT] = { .what = "dropout", .elems = TOKENS * DIM, .reads = 1, .writes = 1 },
    [DROPOUT_RESIDUAL] = { .what = "dropout, added to the residual",
                           .elems = TOKENS * DIM,
                           .reads = 2,
                           .writes = 1 },
    [NORM] = { .what = "layer_norm", .elems = TOKENS * DIM, .reads = 1, .writes = 1 },
    [NORM_BACKWARD] = { .what = "layer_norm_backward, dx +=",
                        .elems = TOKENS * DIM,
                        .reads = 3,
                        .writes = 1 },
    [GELU] = { .what = "gelu", .elems = TOKENS * WIDE, .reads = 1, .writes = 1 },
    [GELU_BACKWARD] = { .what = "gelu_backward in place", .elems = TOKENS * WIDE, .reads = 2, .writes = 1 },
    [SOFTMAX] = { .what = "softmax, causal", .elems = BATCH * HEADS * SEQ * SEQ, .reads = 1, .writes = 1 },
    [SOFTMAX_DROPOUT] = { .what = "softmax and dropout, causal",
                          .elems = BATCH * HEADS * SEQ * SEQ,
                          .reads = 1,
                          .writes = 2 },
    [SOFTMAX_BACKWARD] = { .what = "softmax_backward, causal",
                           .elems = BATCH * HEADS * SEQ * SEQ,
                           .reads = 2,
                           .writes = 1 },
    [EMBEDDING] = { .what = "embedding", .elems = TOKENS * DIM, .reads = 1, .writes = 1 },
    [EMBEDDING_BACKWARD] = { .what = "embedding_backward", .elems = TOKENS * DIM, .reads = 4, .writes = 1 },
    [LOSS] = { .what = "cross_entropy and its gradient", .elems = TOKENS * VOCAB, .reads = 1, .writes = 1 },
    [ADAMW] = { .what = "adamw", .elems = TOKENS * WIDE, .reads = 4, .writes = 3 },
    [SGD] = { .what = "sgd with momentum", .elems = TOKENS * WIDE, .reads = 3, .writes = 2 },
    [SQUARES] = { .what = "sum_squares", .elems = TOKENS * WIDE, .reads = 1, .writes = 0 },
};

static void call(struct bench *b, enum kernel kernel, uint64_t step)
{
    static const struct adamw adamw = {
        .lr = 1e-6, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1
    };
    static const struct sgd sgd = { .lr = 1e-6, .momentum = 0.9, .weight_decay = 0.01 };
    static const struct dropout off = { .p = 0 }, on = { .p = 0.1f, .key = 3 };
    static const struct attention_desc heads = {
        .batch = BATCH, .seq = SEQ, .heads = HEADS, .head_dim = HEAD, .causal = true
    };
    const struct numerics_ops *ops = b->numerics.ops;
    struct numerics *n = &b->numerics;
    float *row = b->w, *row2 = b->w + WIDE, *stats = b->w + 4 * WIDE;
    double loss = 0;
    uint64_t count = 0;

    switch (kernel) {
    case ADD:
        ops->add(n, NULL, b->x, b->y, b->z, TOKENS * DIM);
        break;
    case COLUMN_SUM:
        ops->column_sum(n, NULL, b->x, row, TOKENS, WIDE, false);
        break;
    case DROPOUT:
        ops->dropout(n, NULL, b->x, b->z, TOKENS, DIM, &on, false);
        break;
    case DROPOUT_RESIDUAL:
        ops->dropout(n, NULL, b->x, b->z, TOKENS, DIM, &on, true);
        break;
    case NORM:
        ops->layer_norm(n, NULL, b->x, row, row2, b->z, stats, stats + TOKENS, TOKENS, DIM, 1e-5f);
        break;
    case NORM_BACKWARD:
        ops->layer_norm_backward(n, NULL, b->y, b->x, row, stats, stats + TOKENS, b->z, true, row2,
                                 row2 + WIDE, false, b->scratch, TOKENS, DIM);
        break;
    case GELU:
        ops->gelu(n, NULL, b->x, b->z, TOKENS * WIDE);
        break;
    case GELU_BACKWARD:
        ops->gelu_backward(n, NULL, b->z, b->x, b->z, TOKENS * WIDE);
        break;
    case SOFTMAX:
        ops->softmax(n, NULL, b->z, NULL, &heads, &off);
        break;
    case SOFTMAX_DROPOUT:
        ops->softmax(n, NULL, b->z, b->y, &heads, &on);
        break;
    case SOFTMAX_BACKWARD:
        ops->softmax_backward(n, NULL, b->x, b->y, b->z, &heads, &off);
        break;
    case EMBEDDING:
        ops->embedding(n, NULL, b->tokens, b->x, b->y, b->z, TOKENS, DIM, SEQ);
        break;
    case EMBEDDING_BACKWARD:
        ops->embedding_backward(n, NULL, b->tokens, b->x, b->z, b->y, TOKENS, DIM, SEQ);
        break;
    case LOSS:
        ops->cross_entropy(n, NULL, b->x, b->tokens, b->z, TOKENS, VOCAB, 1.0f / TOKENS, &loss, &count);
        break;
    case ADAMW:
        ops->adamw(n, NULL, b->x, b->y, b->z, b->to, TOKENS * WIDE, &adamw, 1.0f, step);
        break;
    case SGD:
        ops->sgd(n, NULL, b->x, b->y, b->z, TOKENS * WIDE, &sgd, 1.0f, step);
        break;
    case SQUARES:
        sink = (float)ops->sum_squares(n, NULL, b->x, TOKENS * WIDE);
        break;
    case KERNEL_COUNT:
        break;
    }
}

static void refill(struct bench *b)
{
    rng_fill_normal(1, 0, b->x, TOKENS * WIDE, 1.0f);
    rng_fill_normal(2, 0, b->y, TOKENS * WIDE, 1.0f);
    rng_fill_normal(3, 0, b->z, TOKENS * WIDE, 1.0f);
    rng_fill_normal(4, 0, b->w, TOKENS * WIDE, 1.0f);
    for (size_t i = 0; i < TOKENS * WIDE; i++)
        b->to[i] = 1.0f;
}

/* GB/s read and written by memcpy while the threads of the row would all copy. */
static double copy_rate(struct bench *bench, double bytes)
{
    const size_t n = (size_t)(bytes / 2) < TOKENS * WIDE * sizeof(float) ? (size_t)(bytes / 2)
                                                                         : TOKENS * WIDE * sizeof(float);
    const size_t part = n / (size_t)bench->numerics.threads;
    double start = now_s();

#ifdef _OPENMP
#pragma omp parallel for schedule(static, 1) num_threads(bench->numerics.threads)
#endif
    for (int t = 0; t < bench->numerics.threads; t++)
        memcpy((char *)bench->to + (size_t)t * part, (const char *)bench->from + (size_t)t * part, part);
    return 2.0 * (double)part * bench->numerics.threads / (now_s() - start) * 1e-9;
}

static void row_kernel(struct bench *bench, enum kernel kernel)
{
    const double bytes = (double)kernels[kernel].elems *
                         (double)(kernels[kernel].reads + kernels[kernel].writes) * sizeof(float);
    double ours[REPEATS], copied[REPEATS], middle;
    char what[80];

    refill(bench);
    for (int i = -2; i < bench_runs(REPEATS); i++) {
        double rate = copy_rate(bench, bytes), start;

        if (i >= 0)
            copied[i] = rate;
        if (kernel == ADAMW)
            for (size_t k = 0; k < TOKENS * WIDE; k++)
                bench->to[k] = 1.0f;
        start = now_s();
        call(bench, kernel, (uint64_t)(i + 3));
        if (i >= 0)
            ours[i] = bytes / (now_s() - start) * 1e-9;
    }
    middle = median(ours, bench_runs(REPEATS));
    snprintf(what, sizeof what, "%s (%.2f ns)", kernels[kernel].what,
             bytes / middle / (double)kernels[kernel].elems);
    report(bench, what, "GB/s", middle, median(copied, bench_runs(REPEATS)), "memcpy, read and written",
           ours[0]);
}

/* --- main
 * ---------------------------------------------------------------------------------------------------------
 */

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
                                 bench->numerics.ops->layer_norm_scratch(&bench->numerics, TOKENS, DIM),
                                 &bench->scratch, &err) != FSDP_OK ||
        bench->device.ops->alloc(&bench->device, TOKENS * sizeof *bench->tokens, &memory, &err) != FSDP_OK)
        goto failed;
    bench->tokens = memory;
    for (size_t i = 0; i < TOKENS; i++)
        bench->tokens[i] = (int32_t)rng_below(5, i, VOCAB);
    refill(bench);
    return;
failed:
    fprintf(stderr, "bench_numerics: %s\n", err.message);
    exit(1);
}

static void print_machine(struct bench *bench)
{
    char line[256], cpu[128] = "unknown";
    FILE *info = fopen("/proc/cpuinfo", "r");

    while (info != NULL && fgets(line, sizeof line, info) != NULL)
        if (sscanf(line, "model name : %127[^\n]", cpu) == 1)
            break;
    if (info != NULL)
        fclose(info);
    printf("%s, %ld cores; %s\n", cpu, sysconf(_SC_NPROCESSORS_ONLN),
           numerics_describe(&bench->numerics, line, sizeof line));
    printf("what | ours | peer | limit | ours/peer | ours/limit\n");
    if (bench->json != NULL)
        fprintf(bench->json,
                "{\"machine\": {\"cpu\": \"%s\", \"cores\": %ld}, \"numerics\": \"%s\", \"rows\": [", cpu,
                sysconf(_SC_NPROCESSORS_ONLN), line);
}

int main(int argc, char **argv)
{
    struct bench bench = { 0 };

    bench_open(&bench, argc > 1 ? argv[1] : "auto", argc > 2 ? atoi(argv[2]) : 1);
    if (argc > 3 && (bench.json = fopen(argv[3], "w")) == NULL) {
        perror(argv[3]);
        return 1;
    }
    print_machine(&bench);
    if (strcmp(bench.numerics.ops->name, "onednn") ==
        0) { /* the others multiply in plain loops: no bench, a wait */
        linear(&bench, DIM, DIM, false);
        linear(&bench, DIM, WIDE, true);
        linear(&bench, WIDE, DIM, true);
        linear(&bench, DIM, VOCAB, false);
        attention(&bench);
    }
    for (enum kernel kernel = 0; kernel < KERNEL_COUNT; kernel++)
        row_kernel(&bench, kernel);
    if (bench.json != NULL) {
        fprintf(bench.json, "\n]}\n");
        if (fclose(bench.json) != 0)
            return 1;
    }
    numerics_close(&bench.numerics);
    return 0;
}
