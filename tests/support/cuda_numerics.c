/* The cuda row of the numerics table against the reference, on random inputs; then the collectives of a group of one. Linked with libfsdp.
 * Opens the device as a program does: with a GPU
 * it is the GPU's, with FSDP_CUDA_PLUGIN the emulated one. A line for each operation: "ok - NAME" or "not ok - NAME: how far".
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/comm/device_collectives.h"
#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/rng.h"
#include "shard_runtime/device/cpu_cast.h"
#include "shard_runtime/device/device.h"
#include "shard_runtime/device/plugin.h"
#include "shard_runtime/numerics/numerics.h"

static struct device device;
static struct device_stream *stream;
static struct numerics cuda, ref;
static struct fsdp_err err;
static int n_failed;
static uint64_t key = 1;
static uint64_t (*tally)(const char *what); /* NULL on a GPU */

static void require(enum fsdp_status status)
{
    if (status == FSDP_OK)
        return;
    printf("not ok - cuda numerics: %s\n", err.message);
    exit(1);
}

/* A tensor of floats in both memories. */
struct tensor {
    float *host, *device;
    size_t n;
};

static void *to_device(const void *from, size_t size_bytes)
{
    void *memory;

    require(device.ops->alloc(&device, size_bytes, &memory, &err));
    device.ops->copy(stream, memory, from, size_bytes, DEVICE_COPY_TO);
    require(device.ops->synchronize(stream, &err));
    return memory;
}

static struct tensor make(size_t n)
{
    struct tensor t = { .host = malloc(n * sizeof(float) + 1), .n = n };

    rng_fill_normal(key++, 0, t.host, n, 1.0f);
    t.device = to_device(t.host, n * sizeof(float));
    return t;
}

static void drop(struct tensor t)
{
    device.ops->free(&device, t.device, t.n * sizeof(float));
    free(t.host);
}

static void say(const char *name, double far, double allowed)
{
    const bool good = far <= allowed; /* false for a NaN */

    printf("%s - cuda row: %s%s", good ? "ok" : "not ok", name, good ? "\n" : "");
    if (!good)
        printf(": off by %g, %g allowed\n", far, allowed);
    n_failed += !good;
}

/* The largest difference, relative to the largest element (or to 1 where all are small). */
static double far_off(const float *ours, const float *theirs, size_t n)
{
    double most = 0, size = 1e-30;

    for (size_t i = 0; i < n; i++) {
        const double d = fabs((double)ours[i] - (double)theirs[i]);

        size = fabs((double)theirs[i]) > size ? fabs((double)theirs[i]) : size;
        most = isnan(d) || d > most ? d : most;
    }
    return most / size;
}

/* Compare a tensor's device memory with its host memory, which ref has written. */
static void compare(const char *name, struct tensor t, double allowed)
{
    float *got = malloc(t.n * sizeof(float) + 1);

    device.ops->copy(stream, got, t.device, t.n * sizeof(float), DEVICE_COPY_FROM);
    require(device.ops->synchronize(stream, &err));
    say(name, far_off(got, t.host, t.n), allowed);
    free(got);
}

/* The bfloat16 numbers in the first half of a tensor's memory on the device, as float32 in all of it. */
static void widen_on_device(struct tensor t)
{
    uint16_t *narrow = malloc(t.n * sizeof *narrow);
    float *wide = malloc(t.n * sizeof *wide);

    device.ops->copy(stream, narrow, t.device, t.n * sizeof *narrow, DEVICE_COPY_FROM);
    require(device.ops->synchronize(stream, &err));
    for (size_t i = 0; i < t.n; i++)
        wide[i] = bf16_to_f32(narrow[i]);
    device.ops->copy(stream, t.device, wide, t.n * sizeof *wide, DEVICE_COPY_TO);
    require(device.ops->synchronize(stream, &err));
    free(narrow), free(wide);
}

/* Round a tensor to bfloat16: its values on the host, and in the first half of its memory on the device. */
static void narrow_both(struct tensor t)
{
    uint16_t *narrow = malloc(t.n * sizeof *narrow);

    for (size_t i = 0; i < t.n; i++)
        t.host[i] = bf16_to_f32(narrow[i] = bf16_of_f32(t.host[i]));
    device.ops->copy(stream, t.device, narrow, t.n * sizeof *narrow, DEVICE_COPY_TO);
    require(device.ops->synchronize(stream, &err));
    free(narrow);
}

/* How many `what` the emulated device was given so far. */
static uint64_t tally_of(const char *what)
{
    return tally != NULL ? tally(what) : 0;
}

static void say_launches(const char *name, const char *kernel, uint64_t before, uint64_t expected)
{
    if (tally != NULL)
        say(name, fabs((double)(tally_of(kernel) - before) - (double)expected), 0);
    else
        printf("skip - cuda row: %s: a GPU does not count launches\n", name);
}

/* Where the device is the emulated one, its library is loaded by now. */
static void find_tally(void)
{
    void *runtime = dlopen("libcudart_emulated.so", RTLD_NOW | RTLD_NOLOAD);

    if (runtime != NULL)
        *(void **)&tally = dlsym(runtime, "emulated_tally_of");
}

/* --- products: sums of k terms in float32, in another order: k * 6e-8 at worst, much less in the mean -------- */

static void check_matmul(const char *name, struct matmul_desc d, size_t n_a, size_t n_b, size_t n_c)
{
    struct tensor a = make(n_a), b = make(n_b), c = make(n_c), bias = make(d.n);
    struct matmul *ours, *theirs;
    size_t our_bytes, their_bytes;
    void *our_scratch = NULL, *their_scratch;

    d.alpha = d.alpha == 0 ? 1.0f : d.alpha;
    require(cuda.ops->matmul_create(&cuda, &d, &ours, &our_bytes, &err));
    require(ref.ops->matmul_create(&ref, &d, &theirs, &their_bytes, &err));
    require(device.ops->alloc(&device, our_bytes, &our_scratch, &err));
    their_scratch = malloc(their_bytes + 1);
    require(cuda.ops->matmul_run(ours, stream, a.device, b.device, d.bias ? bias.device : NULL, c.device,
                                 our_scratch, &err));
    require(ref.ops->matmul_run(theirs, NULL, a.host, b.host, d.bias ? bias.host : NULL, c.host,
                                their_scratch, &err));
    compare(name, c, 1e-5);
    cuda.ops->matmul_destroy(ours);
    ref.ops->matmul_destroy(theirs);
    device.ops->free(&device, our_scratch, our_bytes);
    free(their_scratch);
    drop(a), drop(b), drop(c), drop(bias);
}

static void check_products(void)
{
    enum { M = 37, N = 29, K = 41, B = 3, H = 2 };
    const struct matmul_view mk = { .row_stride = K, .col_stride = 1 },
                             km = { .row_stride = 1, .col_stride = M },
                             kn = { .row_stride = N, .col_stride = 1 },
                             nk = { .row_stride = 1, .col_stride = K },
                             mn = { .row_stride = N, .col_stride = 1 };
    struct matmul_desc d = { .outer = 1, .inner = 1, .m = M, .n = N, .k = K, .a = mk, .b = kn, .c = mn };
    const size_t wide = H * K; /* heads side by side in a row */

    check_matmul("product", d, M * K, K * N, M * N);
    d.b = nk, d.bias = true;
    check_matmul("product with a transposed factor and a bias", d, M * K, K * N, M * N);
    d.a = km, d.b = kn, d.bias = false, d.accumulate = true, d.alpha = 0.5f;
    check_matmul("product that is scaled and added", d, M * K, K * N, M * N);
    d = (struct matmul_desc){ .outer = B, .inner = H, .m = M, .n = M, .k = K, .alpha = 0.25f };
    d.a = (struct matmul_view){ M * wide, K, wide, 1 };
    d.b = (struct matmul_view){ M * wide, K, 1, wide };
    d.c = (struct matmul_view){ H * M * M, M * M, M, 1 };
    check_matmul("products of heads: scores", d, B * M * wide, B * M * wide, B * H * M * M);
    d = (struct matmul_desc){ .outer = B, .inner = H, .m = M, .n = K, .k = M };
    d.a = (struct matmul_view){ H * M * M, M * M, M, 1 };
    d.b = (struct matmul_view){ M * wide, K, wide, 1 };
    d.c = (struct matmul_view){ M * wide, K, wide, 1 };
    check_matmul("products of heads: outputs", d, B * H * M * M, B * M * wide, B * M * wide);
    d = (struct matmul_desc){ .outer = 1, .inner = 1, .m = 1, .n = N, .k = K, .a = mk, .b = kn, .c = mn };
    check_matmul("product of one row", d, K, K * N, N);
    d = (struct matmul_desc){ .outer = 1, .inner = 1, .m = M, .n = 1, .k = K, .a = mk };
    d.b = (struct matmul_view){ .row_stride = 1, .col_stride = 1 };
    d.c = (struct matmul_view){ .row_stride = 1, .col_stride = 1 };
    check_matmul("product with one column", d, M * K, K, M);
    d = (struct matmul_desc){ .outer = 1, .inner = 1, .m = M, .n = N, .k = 0, .a = mk, .b = kn, .c = mn };
    check_matmul("an empty sum", d, 1, 1, M * N);
}

/* The product of a linear's weight gradient, dy^T x, and the sums of dy over its rows beside it: k terms in float32 each. */
static void check_sums(const char *name, enum matmul_beside which, bool narrow)
{
    enum { M = 40, N = 24, K = 48 };
    struct matmul_desc d = { .outer = 1,
                             .inner = 1,
                             .m = M,
                             .n = N,
                             .k = K,
                             .a = { .row_stride = 1, .col_stride = M },
                             .b = { .row_stride = N, .col_stride = 1 },
                             .c = { .row_stride = N, .col_stride = 1 },
                             .dtype = narrow ? FSDP_BF16 : FSDP_F32,
                             .alpha = 1.0f,
                             .beside = which };
    const size_t n_sums = which == MATMUL_SUMS_OF_A ? M : N;
    struct tensor a = make(M * K), b = make(K * N), c = make(M * N), sums = make(n_sums);
    struct matmul *ours, *theirs;
    size_t our_bytes, their_bytes;
    void *our_scratch, *their_scratch;
    enum fsdp_status status = cuda.ops->matmul_create(&cuda, &d, &ours, &our_bytes, &err);
    const uint64_t before = tally_of("product with sums");

    if (status == FSDP_ERR_UNSUPPORTED) {
        printf("skip - cuda row: %s: %s\n", name, err.message);
        drop(a), drop(b), drop(c), drop(sums);
        return;
    }
    require(status);
    require(device.ops->alloc(&device, our_bytes, &our_scratch, &err));
    if (narrow) {
        narrow_both(a);
        narrow_both(b);
    }
    require(cuda.ops->matmul_run_beside(ours, stream, a.device, b.device, NULL, sums.device, c.device,
                                        our_scratch, &err));
    cuda.ops->matmul_destroy(ours);
    d.beside = MATMUL_NOTHING;
    d.dtype = FSDP_F32;
    require(ref.ops->matmul_create(&ref, &d, &theirs, &their_bytes, &err));
    their_scratch = malloc(their_bytes + 1);
    require(ref.ops->matmul_run(theirs, NULL, a.host, b.host, NULL, c.host, their_scratch, &err));
    ref.ops->matmul_destroy(theirs);
    ref.ops->column_sum(&ref, NULL, which == MATMUL_SUMS_OF_A ? a.host : b.host, sums.host, K, n_sums, false);
    compare(name, c, 1e-5);
    compare("and its sums", sums, 1e-5);
    say_launches("in one call", "product with sums", before, 1);
    device.ops->free(&device, our_scratch, our_bytes);
    free(their_scratch);
    drop(a), drop(b), drop(c), drop(sums);
}

/* A linear and GELU by tanh: c, and beside it what went in. GELU's slope is at most 1.13. */
static void check_gelu_product(void)
{
    enum { M = 21, N = 24, K = 40 };
    struct matmul_desc d = { .outer = 1,
                             .inner = 1,
                             .m = M,
                             .n = N,
                             .k = K,
                             .a = { .row_stride = K, .col_stride = 1 },
                             .b = { .row_stride = 1, .col_stride = K },
                             .c = { .row_stride = N, .col_stride = 1 },
                             .alpha = 1.0f,
                             .bias = true,
                             .beside = MATMUL_BEFORE_GELU };
    struct tensor a = make(M * K), b = make(K * N), bias = make(N), c = make(M * N), before = make(M * N);
    const uint64_t tallied = tally_of("product with gelu");
    struct matmul *ours, *theirs;
    size_t our_bytes, their_bytes;
    void *our_scratch, *their_scratch;
    enum fsdp_status status = cuda.ops->matmul_create(&cuda, &d, &ours, &our_bytes, &err);

    if (status == FSDP_ERR_UNSUPPORTED) {
        printf("skip - cuda row: product and GELU by tanh: %s\n", err.message);
    } else {
        require(status);
        d.beside = MATMUL_NOTHING;
        require(ref.ops->matmul_create(&ref, &d, &theirs, &their_bytes, &err));
        require(device.ops->alloc(&device, our_bytes, &our_scratch, &err));
        their_scratch = malloc(their_bytes + 1);
        require(cuda.ops->matmul_run_beside(ours, stream, a.device, b.device, bias.device, before.device,
                                            c.device, our_scratch, &err));
        require(
            ref.ops->matmul_run(theirs, NULL, a.host, b.host, bias.host, before.host, their_scratch, &err));
        ref.ops->gelu_tanh(&ref, NULL, before.host, c.host, M * N);
        compare("product and GELU by tanh", c, 1e-5);
        compare("and what went into it", before, 1e-5);
        say_launches("in one call", "product with gelu", tallied, 1);
        cuda.ops->matmul_destroy(ours);
        ref.ops->matmul_destroy(theirs);
        device.ops->free(&device, our_scratch, our_bytes);
        free(their_scratch);
    }
    drop(a), drop(b), drop(bias), drop(c), drop(before);
}

/* The product that gives the gradient of a GELU's output, and the GELU's backward behind it; with the sums of that, which are a
 * bias's gradient. Of bfloat16 c is rounded once, the sums are of what was not: 24 terms. */
static void check_gelu_backward_product(bool sums, bool narrow)
{
    enum { M = 24, N = 40, K = 48 };
    const char *name =
        narrow ? "product back through GELU by tanh, bfloat16" : "product back through GELU by tanh";
    const char *tallied = sums ? "product back through gelu with sums" : "product back through gelu";
    const enum fsdp_dtype dtype = narrow ? FSDP_BF16 : FSDP_F32;
    struct matmul_desc d = { .outer = 1,
                             .inner = 1,
                             .m = M,
                             .n = N,
                             .k = K,
                             .a = { .row_stride = K, .col_stride = 1 },
                             .b = { .row_stride = N, .col_stride = 1 },
                             .c = { .row_stride = N, .col_stride = 1 },
                             .dtype = dtype,
                             .c_dtype = dtype,
                             .alpha = 1.0f,
                             .beside = sums ? MATMUL_GELU_BACKWARD_SUMS : MATMUL_GELU_BACKWARD };
    struct tensor a = make(M * K), b = make(K * N), z = make(M * N), c = make(M * N), bias = make(N);
    const uint64_t before = tally_of(tallied);
    const double allowed = narrow ? 4e-3 : 1e-5;
    struct matmul *ours, *theirs;
    size_t our_bytes, their_bytes;
    void *our_scratch, *their_scratch;
    enum fsdp_status status = cuda.ops->matmul_create(&cuda, &d, &ours, &our_bytes, &err);

    if (status == FSDP_ERR_UNSUPPORTED) {
        printf("skip - cuda row: %s%s: %s\n", name, sums ? ", with sums" : "", err.message);
        drop(a), drop(b), drop(z), drop(c), drop(bias);
        return;
    }
    require(status);
    require(device.ops->alloc(&device, our_bytes, &our_scratch, &err));
    if (narrow)
        narrow_both(a), narrow_both(b), narrow_both(z);
    require(cuda.ops->matmul_run_beside(ours, stream, a.device, b.device, z.device, sums ? bias.device : NULL,
                                        c.device, our_scratch, &err));
    cuda.ops->matmul_destroy(ours);
    d.beside = MATMUL_NOTHING;
    d.dtype = d.c_dtype = FSDP_F32;
    require(ref.ops->matmul_create(&ref, &d, &theirs, &their_bytes, &err));
    their_scratch = malloc(their_bytes + 1);
    require(ref.ops->matmul_run(theirs, NULL, a.host, b.host, NULL, c.host, their_scratch, &err));
    ref.ops->matmul_destroy(theirs);
    ref.ops->gelu_tanh_backward(&ref, NULL, c.host, z.host, c.host, M * N);
    ref.ops->column_sum(&ref, NULL, c.host, bias.host, M, N, false);
    if (narrow)
        widen_on_device(c), widen_on_device(bias);
    compare(name, c, allowed);
    if (sums)
        compare("and the gradient of the bias before it", bias, allowed);
    say_launches("in one call", tallied, before, 1);
    device.ops->free(&device, our_scratch, our_bytes);
    free(their_scratch);
    drop(a), drop(b), drop(z), drop(c), drop(bias);
}

static void check_bf16_product(void)
{
    enum { M = 16, N = 24, K = 32 };
    const struct matmul_desc d = { .outer = 1,
                                   .inner = 1,
                                   .m = M,
                                   .n = N,
                                   .k = K,
                                   .a = { .row_stride = K, .col_stride = 1 },
                                   .b = { .row_stride = 1, .col_stride = K },
                                   .c = { .row_stride = N, .col_stride = 1 },
                                   .dtype = FSDP_BF16,
                                   .c_dtype = FSDP_F32,
                                   .alpha = 1.0f };
    struct tensor a = make(M * K), b = make(N * K), c = make(M * N);
    uint16_t *narrow_a = malloc(M * K * 2), *narrow_b = malloc(N * K * 2);
    void *on_a, *on_b, *scratch;
    struct matmul *product;
    size_t size_bytes;

    for (size_t i = 0; i < M * K; i++)
        a.host[i] = bf16_to_f32(narrow_a[i] = bf16_of_f32(a.host[i]));
    for (size_t i = 0; i < N * K; i++)
        b.host[i] = bf16_to_f32(narrow_b[i] = bf16_of_f32(b.host[i]));
    for (size_t i = 0; i < M; i++)
        for (size_t j = 0; j < N; j++) {
            double sum = 0;

            for (size_t k = 0; k < K; k++)
                sum += (double)a.host[i * K + k] * (double)b.host[j * K + k];
            c.host[i * N + j] = (float)sum;
        }
    on_a = to_device(narrow_a, M * K * 2);
    on_b = to_device(narrow_b, N * K * 2);
    require(cuda.ops->matmul_create(&cuda, &d, &product, &size_bytes, &err));
    require(device.ops->alloc(&device, size_bytes, &scratch, &err));
    require(cuda.ops->matmul_run(product, stream, on_a, on_b, NULL, c.device, scratch, &err));
    compare("product of bfloat16, summed in float32", c, 1e-5);
    cuda.ops->matmul_destroy(product);
    device.ops->free(&device, scratch, size_bytes);
    device.ops->free(&device, on_a, M * K * 2);
    device.ops->free(&device, on_b, N * K * 2);
    free(narrow_a), free(narrow_b);
    drop(a), drop(b), drop(c);
}

/* --- the kernels ------------------------------------------------------------------------------------------ */

static void check_norm(void)
{
    enum { ROWS = 9, COLS = 72 };
    struct tensor x = make(ROWS * COLS), w = make(COLS), b = make(COLS), y = make(ROWS * COLS),
                  mean = make(ROWS), rstd = make(ROWS), dy = make(ROWS * COLS), dx = make(ROWS * COLS),
                  dw = make(COLS), db = make(COLS);
    const size_t size_bytes = cuda.ops->layer_norm_scratch(&cuda, ROWS, COLS);
    void *scratch, *theirs = malloc(ref.ops->layer_norm_scratch(&ref, ROWS, COLS) + 1);

    require(device.ops->alloc(&device, size_bytes, &scratch, &err));
    cuda.ops->layer_norm(&cuda, stream, x.device, w.device, b.device, y.device, mean.device, rstd.device,
                         ROWS, COLS, 1e-5f);
    ref.ops->layer_norm(&ref, NULL, x.host, w.host, b.host, y.host, mean.host, rstd.host, ROWS, COLS, 1e-5f);
    compare("layer norm", y, 2e-6);
    cuda.ops->layer_norm_backward(&cuda, stream, dy.device, x.device, w.device, mean.device, rstd.device,
                                  dx.device, true, dw.device, db.device, false, scratch, ROWS, COLS);
    ref.ops->layer_norm_backward(&ref, NULL, dy.host, x.host, w.host, mean.host, rstd.host, dx.host, true,
                                 dw.host, db.host, false, theirs, ROWS, COLS);
    compare("layer norm backward: input", dx, 4e-6);
    compare("layer norm backward: weight", dw, 4e-6);
    compare("layer norm backward: bias", db, 4e-6);
    cuda.ops->column_sum(&cuda, stream, x.device, b.device, ROWS, COLS, true);
    ref.ops->column_sum(&ref, NULL, x.host, b.host, ROWS, COLS, true);
    compare("column sum", b, 1e-6);
    device.ops->free(&device, scratch, size_bytes);
    free(theirs);
    drop(x), drop(w), drop(b), drop(y), drop(mean), drop(rstd), drop(dy), drop(dx), drop(dw), drop(db);
}

/* RMSNorm, and either norm behind a residual sum. */
static void check_other_norms(void)
{
    enum { ROWS = 9, COLS = 72, N = ROWS * COLS };
    const struct dropout dropout = { .p = 0.3f, .key = 78, .first_row = 5 };
    struct tensor x = make(N), more = make(N), w = make(COLS), b = make(COLS), y = make(N), mean = make(ROWS),
                  rstd = make(ROWS), dy = make(N), dx = make(N), dw = make(COLS), sum = make(N);
    const size_t size_bytes = cuda.ops->layer_norm_scratch(&cuda, ROWS, COLS);
    void *scratch, *theirs = malloc(ref.ops->layer_norm_scratch(&ref, ROWS, COLS) + 1);

    require(device.ops->alloc(&device, size_bytes, &scratch, &err));
    cuda.ops->layer_norm(&cuda, stream, x.device, w.device, NULL, y.device, NULL, rstd.device, ROWS, COLS,
                         1e-5f);
    ref.ops->layer_norm(&ref, NULL, x.host, w.host, NULL, y.host, NULL, rstd.host, ROWS, COLS, 1e-5f);
    compare("rms norm", y, 2e-6);
    cuda.ops->layer_norm_backward(&cuda, stream, dy.device, x.device, w.device, NULL, rstd.device, dx.device,
                                  true, dw.device, NULL, true, scratch, ROWS, COLS);
    ref.ops->layer_norm_backward(&ref, NULL, dy.host, x.host, w.host, NULL, rstd.host, dx.host, true, dw.host,
                                 NULL, true, theirs, ROWS, COLS);
    compare("rms norm backward: input", dx, 4e-6);
    compare("rms norm backward: weight", dw, 4e-6);
    for (int rms = 0; rms < 2; rms++) {
        cuda.ops->add_layer_norm(&cuda, stream, FSDP_F32,
                                 &(struct numerics_add_norm){ x.device, more.device, &dropout, sum.device,
                                                              y.device, w.device, rms ? NULL : b.device,
                                                              rms ? NULL : mean.device, rstd.device, ROWS,
                                                              COLS, 1e-5f });
        memcpy(sum.host, x.host, N * sizeof(float));
        ref.ops->dropout(&ref, NULL, more.host, sum.host, ROWS, COLS, &dropout, true);
        ref.ops->layer_norm(&ref, NULL, sum.host, w.host, rms ? NULL : b.host, y.host, rms ? NULL : mean.host,
                            rstd.host, ROWS, COLS, 1e-5f);
        compare("residual sum before a norm", sum, 0);
        compare(rms ? "rms norm behind a residual sum" : "layer norm behind a residual sum", y, 2e-6);
    }
    device.ops->free(&device, scratch, size_bytes);
    free(theirs);
    drop(x), drop(more), drop(w), drop(b), drop(y), drop(mean), drop(rstd), drop(dy), drop(dx), drop(dw);
    drop(sum);
}

static void check_elementwise(void)
{
    enum { N = 5003 };
    struct tensor x = make(N), y = make(N), z = make(N), m = make(N), v = make(N);
    const struct adamw h = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1 };
    const struct dropout dropout = { .p = 0.3f, .key = 77, .first_row = 5 };
    double ours, theirs;

    cuda.ops->add(&cuda, stream, x.device, y.device, z.device, N);
    ref.ops->add(&ref, NULL, x.host, y.host, z.host, N);
    compare("add", z, 0);
    cuda.ops->gelu(&cuda, stream, x.device, z.device, N);
    ref.ops->gelu(&ref, NULL, x.host, z.host, N);
    compare("gelu", z, 1e-6);
    cuda.ops->gelu_backward(&cuda, stream, y.device, x.device, z.device, N);
    ref.ops->gelu_backward(&ref, NULL, y.host, x.host, z.host, N);
    compare("gelu backward", z, 1e-6);
    cuda.ops->gelu_tanh(&cuda, stream, x.device, z.device, N);
    ref.ops->gelu_tanh(&ref, NULL, x.host, z.host, N);
    compare("gelu by tanh", z, 1e-6);
    cuda.ops->gelu_tanh_backward(&cuda, stream, y.device, x.device, z.device, N);
    ref.ops->gelu_tanh_backward(&ref, NULL, y.host, x.host, z.host, N);
    compare("gelu by tanh backward", z, 1e-6);
    cuda.ops->dropout(&cuda, stream, x.device, z.device, 1, N, &dropout, false);
    ref.ops->dropout(&ref, NULL, x.host, z.host, 1, N, &dropout, false);
    compare("dropout, the same mask", z, 0);
    ours = cuda.ops->sum_squares(&cuda, stream, x.device, N);
    theirs = ref.ops->sum_squares(&ref, NULL, x.host, N);
    say("sum of squares", fabs(ours - theirs) / theirs, 1e-12);
    for (size_t i = 0; i < N; i++)
        v.host[i] = fabsf(v.host[i]);
    device.ops->copy(stream, v.device, v.host, N * sizeof(float), DEVICE_COPY_TO);
    require(device.ops->synchronize(stream, &err));
    cuda.ops->adamw(&cuda, stream, x.device, y.device, m.device, v.device, N, &h, 0.5f, 3);
    ref.ops->adamw(&ref, NULL, x.host, y.host, m.host, v.host, N, &h, 0.5f, 3);
    compare("AdamW: parameters", x, 1e-7);
    compare("AdamW: first moments", m, 1e-7);
    compare("AdamW: second moments", v, 1e-7);
    drop(x), drop(y), drop(z), drop(m), drop(v);
}

static void check_tokens(void)
{
    enum { ROWS = 21, SEQ = 7, COLS = 40, VOCAB = 53 };
    struct tensor table = make(VOCAB * COLS), positions = make(SEQ * COLS), out = make(ROWS * COLS),
                  dtable = make(VOCAB * COLS), dpositions = make(SEQ * COLS), logits = make(ROWS * VOCAB),
                  dlogits = make(ROWS * VOCAB);
    int32_t tokens[ROWS], *on_tokens;
    double our_loss = 0, their_loss = 0;
    uint64_t our_n = 0, their_n = 0;

    for (int i = 0; i < ROWS; i++)
        tokens[i] = i * i % 11;
    on_tokens = to_device(tokens, sizeof tokens);
    cuda.ops->embedding(&cuda, stream, on_tokens, table.device, positions.device, out.device, ROWS, COLS,
                        SEQ);
    ref.ops->embedding(&ref, NULL, tokens, table.host, positions.host, out.host, ROWS, COLS, SEQ);
    compare("embedding", out, 0);
    cuda.ops->embedding_backward(&cuda, stream, on_tokens, out.device, dtable.device, dpositions.device, ROWS,
                                 COLS, SEQ);
    ref.ops->embedding_backward(&ref, NULL, tokens, out.host, dtable.host, dpositions.host, ROWS, COLS, SEQ);
    compare("embedding backward, rows that repeat", dtable, 1e-7);
    compare("embedding backward: positions", dpositions, 1e-6);
    tokens[3] = tokens[ROWS - 1] = -100;
    device.ops->free(&device, on_tokens, sizeof tokens);
    on_tokens = to_device(tokens, sizeof tokens);
    cuda.ops->cross_entropy(&cuda, stream, logits.device, on_tokens, dlogits.device, ROWS, VOCAB, 0.125f,
                            &our_loss, &our_n);
    ref.ops->cross_entropy(&ref, NULL, logits.host, tokens, dlogits.host, ROWS, VOCAB, 0.125f, &their_loss,
                           &their_n);
    compare("gradient of the loss", dlogits, 2e-6);
    say("the loss comes when the stream has passed", fabs(our_loss - their_loss) / their_loss, 1e-6);
    say("and the count of its targets", our_n == their_n ? 0 : 1, 0);
    device.ops->free(&device, on_tokens, sizeof tokens);
    drop(table), drop(positions), drop(out), drop(dtable), drop(dpositions), drop(logits), drop(dlogits);
}

/* --- attention ---------------------------------------------------------------------------------------------------- */

/*
 * Causal, q, k and v apart or side by side in one row as GPT-2's c_attn gives them. In float32 sums of at most `seq` terms in
 * another order; in bfloat16 by mma: D and dS are rounded to 8 bits before their products, the results once more.
 */
static void check_attention(const char *name, bool packed, bool narrow, size_t head_dim, double allowed)
{
    enum { BATCH = 2, SEQ = 37, HEADS = 2, N_PARTS = 3 };
    const size_t features = HEADS * head_dim, stride = packed ? N_PARTS * features : features,
                 rows = BATCH * SEQ, part = packed ? features : rows * features;
    const struct fused_attention_desc ours_desc = {
        .shape = { .batch = BATCH, .seq = SEQ, .heads = HEADS, .head_dim = head_dim, .causal = true },
        .dtype = narrow ? FSDP_BF16 : FSDP_F32,
        .scale = 1.0f / sqrtf((float)head_dim),
        .q_stride = stride,
        .k_stride = stride,
        .v_stride = stride,
        .out_stride = features
    };
    struct fused_attention_desc theirs_desc = ours_desc;
    const size_t size = fsdp_dtype_size(ours_desc.dtype);
    struct tensor qkv = make(rows * features * N_PARTS), out = make(rows * features),
                  dout = make(rows * features), dqkv = make(rows * features * N_PARTS),
                  lse = make(BATCH * HEADS * SEQ);
    struct fused_attention *ours, *theirs;
    size_t our_bytes[2], their_bytes[2];
    void *scratch[2], *their_scratch;

    theirs_desc.dtype = FSDP_F32;
    if (narrow)
        narrow_both(qkv), narrow_both(dout);
    require(cuda.ops->attention_create(&cuda, &ours_desc, &ours, &our_bytes[0], &our_bytes[1], &err));
    require(ref.ops->attention_create(&ref, &theirs_desc, &theirs, &their_bytes[0], &their_bytes[1], &err));
    for (int i = 0; i < 2; i++)
        require(device.ops->alloc(&device, our_bytes[i], &scratch[i], &err));
    their_scratch = malloc((their_bytes[0] > their_bytes[1] ? their_bytes[0] : their_bytes[1]) + 1);
    for (int who = 0; who < 2; who++) {
        const bool mine = who == 0;
        const size_t bytes = mine ? size : sizeof(float);
        char *x = (char *)(mine ? qkv.device : qkv.host), *dx = (char *)(mine ? dqkv.device : dqkv.host);
        const struct fused_attention_forward forward = { .q = x,
                                                         .k = x + part * bytes,
                                                         .v = x + 2 * part * bytes,
                                                         .out = mine ? out.device : out.host,
                                                         .lse = mine ? lse.device : lse.host,
                                                         .scratch = mine ? scratch[0] : their_scratch };
        const struct fused_attention_backward backward = { .q = forward.q,
                                                           .k = forward.k,
                                                           .v = forward.v,
                                                           .out = forward.out,
                                                           .dout = mine ? dout.device : dout.host,
                                                           .lse = forward.lse,
                                                           .dq = dx,
                                                           .dk = dx + part * bytes,
                                                           .dv = dx + 2 * part * bytes,
                                                           .scratch = mine ? scratch[1] : their_scratch };

        require((mine ? cuda : ref)
                    .ops->attention_forward(mine ? ours : theirs, mine ? stream : NULL, &forward, &err));
        require((mine ? cuda : ref)
                    .ops->attention_backward(mine ? ours : theirs, mine ? stream : NULL, &backward, &err));
    }
    if (narrow)
        widen_on_device(out), widen_on_device(dqkv);
    compare(name, out, allowed);
    compare("its logarithms of sums", lse, allowed);
    compare("its gradients", dqkv, allowed);
    cuda.ops->attention_destroy(ours);
    ref.ops->attention_destroy(theirs);
    for (int i = 0; i < 2; i++)
        device.ops->free(&device, scratch[i], our_bytes[i]);
    free(their_scratch);
    drop(qkv), drop(out), drop(dout), drop(dqkv), drop(lse);
}

static void check_attentions(void)
{
    check_attention("attention", false, false, 24, 1e-5);
    check_attention("attention of packed rows", true, false, 24, 1e-5);
    check_attention("attention of packed rows, heads of 64", true, false, 64, 1e-5);
    check_attention("attention in bfloat16, heads of 64", false, true, 64, 2e-2);
    check_attention("attention of packed rows in bfloat16, heads of 64", true, true, 64, 2e-2);
    check_attention("attention of packed rows in bfloat16, heads of 128", true, true, 128, 2e-2);
    check_attention("attention of packed rows in bfloat16, heads of 24", true, true, 24, 2e-2);
}

/* --- lists of tensors: the bits that each has alone, in one launch ----------------------------------------------- */

enum { N_LISTED = 40, LISTED_ELEMS = 700 };

static size_t listed_length(size_t i)
{
    return i == 4 ? 0 : i == 9 ? 9001 : 1 + i * 37 % LISTED_ELEMS;
}

static size_t listed_start(size_t i)
{
    size_t at = 0;

    for (size_t j = 0; j < i; j++)
        at += listed_length(j);
    return at;
}

static void list_updates(struct numerics_update *updates, bool on_device, const struct tensor of[4])
{
    float *from[4];

    for (int t = 0; t < 4; t++)
        from[t] = on_device ? of[t].device : of[t].host;
    for (size_t i = 0; i < N_LISTED; i++)
        updates[i] =
            (struct numerics_update){ .param = from[0] + listed_start(i),
                                      .grad = from[1] + listed_start(i),
                                      .state = { from[2] + listed_start(i), from[3] + listed_start(i) },
                                      .n_elems = listed_length(i),
                                      .lr = 1e-3 * (double)(1 + i % 3),
                                      .weight_decay = i % 2 ? 0.1 : 0,
                                      .grad_scale = i % 5 ? 0.5f : 1.0f };
}

static void check_updates(void)
{
    const size_t n = listed_start(N_LISTED);
    struct tensor of[4] = { make(n), make(n), make(n), make(n) };
    struct numerics_update ours[N_LISTED], theirs[N_LISTED];
    const struct adamw adamw = { .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8 };
    const struct sgd sgd = { .momentum = 0.9 };
    const uint64_t before[2] = { tally_of("adamw_chunks"), tally_of("sgd_chunks") };

    for (size_t i = 0; i < n; i++)
        of[3].host[i] = fabsf(of[3].host[i]);
    device.ops->copy(stream, of[3].device, of[3].host, n * sizeof(float), DEVICE_COPY_TO);
    require(device.ops->synchronize(stream, &err));
    list_updates(ours, true, of);
    list_updates(theirs, false, of);
    numerics_adamw(&cuda, stream, ours, N_LISTED, &adamw, 3);
    numerics_adamw(&ref, NULL, theirs, N_LISTED, &adamw, 3);
    compare("AdamW over a list: parameters", of[0], 0);
    compare("AdamW over a list: first moments", of[2], 0);
    compare("AdamW over a list: second moments", of[3], 0);
    say_launches("AdamW over a list is one launch", "adamw_chunks", before[0], 1);
    numerics_sgd(&cuda, stream, ours, N_LISTED, &sgd, 2);
    numerics_sgd(&ref, NULL, theirs, N_LISTED, &sgd, 2);
    compare("SGD over a list: parameters", of[0], 0);
    compare("SGD over a list: momentum", of[2], 0);
    say_launches("SGD over a list is one launch", "sgd_chunks", before[1], 1);
    for (int t = 0; t < 4; t++)
        drop(of[t]);
}

static void check_norms(void)
{
    struct tensor x = make(listed_start(N_LISTED));
    struct numerics_span ours[N_LISTED], theirs[N_LISTED];
    double together[N_LISTED], alone, sums[N_LISTED], most = 0;
    uint64_t before;
    int n_differ = 0;

    for (size_t i = 0; i < N_LISTED; i++) {
        ours[i] = (struct numerics_span){ x.device + listed_start(i), listed_length(i) };
        theirs[i] = (struct numerics_span){ x.host + listed_start(i), listed_length(i) };
    }
    before = tally_of("power_chunks");
    numerics_sum_powers(&cuda, stream, ours, N_LISTED, 2, together);
    say_launches("norms of a list are one launch", "power_chunks", before, 1);
    numerics_sum_powers(&ref, NULL, theirs, N_LISTED, 2, sums);
    for (size_t i = 0; i < N_LISTED; i++) {
        const double far = fabs(together[i] - sums[i]) / (sums[i] + 1e-30);

        alone = cuda.ops->sum_squares(&cuda, stream, ours[i].x, ours[i].n_elems);
        n_differ += memcmp(&alone, &together[i], sizeof alone) != 0;
        most = far > most || isnan(far) ? far : most;
    }
    say("norms of a list: another order of sums in double", most, 1e-12);
    say("norms of a list: the bits that each has alone", n_differ, 0);
    drop(x);
}

/* As a group is packed: pieces, here converted and scaled, and zeros behind them. */
static void check_copies(void)
{
    const size_t n = listed_start(N_LISTED);
    struct tensor from = make(n), to = make(n);
    struct device_cast casts[N_LISTED];
    const uint64_t before = tally_of("cast_chunks");

    for (size_t i = 0; i < N_LISTED; i++) {
        const size_t at = listed_start(i), size_bytes = listed_length(i) * sizeof(float);

        casts[i] = (struct device_cast){ .to = to.device + at,
                                         .from = i % 4 == 3 ? NULL : from.device + at,
                                         .n_elems = listed_length(i) };
        if (i % 4 == 3)
            memset(to.host + at, 0, size_bytes);
        else
            cpu_cast_elems(to.host + at, FSDP_F32, from.host + at, FSDP_F32, listed_length(i), 0.25f, false);
    }
    device_cast_list(&device, stream, casts, N_LISTED, 0.25f, false);
    compare("copies of a list", to, 0);
    say_launches("copies of a list are one launch", "cast_chunks", before, 1);
    drop(from), drop(to);
}

/* --- collectives: a group of one, where each is a copy, of bits that are known, times a factor -------------- */

enum { N_MOVED = 1003, NO_BYTE = 0x5a }; /* an odd number; what is in memory before a call */

static const struct device_collectives *by;
static struct device_group *group;

/* Elements of a dtype, random, and times `factor` as one rounding makes them. */
static size_t fill(void *out, enum fsdp_dtype dtype, float factor)
{
    float *wide = malloc(N_MOVED * sizeof *wide);
    const size_t size_bytes = dtype == FSDP_BF16 ? N_MOVED * sizeof(uint16_t) : N_MOVED * sizeof(float);

    rng_fill_normal(key, 0, wide, N_MOVED, 1.0f);
    for (size_t i = 0; i < N_MOVED && dtype == FSDP_BF16; i++)
        ((uint16_t *)out)[i] = bf16_of_f32(bf16_to_f32(bf16_of_f32(wide[i])) * factor);
    for (size_t i = 0; i < N_MOVED && dtype == FSDP_F32; i++)
        ((float *)out)[i] = wide[i] * factor;
    free(wide);
    return size_bytes;
}

struct moved {
    const char *name;
    enum { GATHER, GATHER_IN_PLACE, REDUCE_SCATTER, ALL_REDUCE, BROADCAST } kind;
    enum fsdp_reduce_op op;
    float factor;
};

static enum fsdp_status move(const struct moved *m, enum fsdp_dtype dtype, void *from, void *to,
                             size_t size_bytes)
{
    switch (m->kind) {
    case GATHER:
        return by->all_gather(group, from, to, N_MOVED, dtype, stream, &err);
    case GATHER_IN_PLACE:
        return by->all_gather(group, to, to, N_MOVED, dtype, stream, &err);
    case REDUCE_SCATTER:
        return by->reduce_scatter(group, from, to, N_MOVED, dtype, m->op, m->factor, stream, &err);
    case ALL_REDUCE:
        return by->all_reduce(group, to, N_MOVED, dtype, m->op, stream, &err);
    case BROADCAST:
        break;
    }
    return by->broadcast(group, to, size_bytes, 0, stream, &err);
}

/* `to` is one that the collective works in or, of those with two buffers, holds other bytes before. */
static void check_moved(const struct moved *m, enum fsdp_dtype dtype, void *from, void *to)
{
    const bool two = m->kind == GATHER || m->kind == REDUCE_SCATTER;
    float given[N_MOVED], other[N_MOVED], expected[N_MOVED], got[N_MOVED];
    const size_t size_bytes = fill(given, dtype, 1.0f);
    char name[100];
    size_t n_wrong = 0;

    fill(expected, dtype, m->factor);
    key++;
    memset(other, NO_BYTE, sizeof other);
    device.ops->copy(stream, from, given, size_bytes, DEVICE_COPY_TO);
    device.ops->copy(stream, to, two ? other : given, size_bytes, DEVICE_COPY_TO);
    require(move(m, dtype, from, to, size_bytes));
    device.ops->copy(stream, got, to, size_bytes, DEVICE_COPY_FROM);
    require(device.ops->synchronize(stream, &err));
    require(by->poll(group, &err));
    for (size_t i = 0; i < size_bytes; i++)
        n_wrong += ((unsigned char *)got)[i] != ((unsigned char *)expected)[i];
    snprintf(name, sizeof name, "%s of %s by %s, a group of one, to the bit (bytes that differ)", m->name,
             dtype == FSDP_BF16 ? "bfloat16" : "float32", by->name);
    say(name, (double)n_wrong, 0);
}

static void check_collectives(const struct device_collectives *collectives)
{
    static const struct moved all[] = {
        { "all-gather", GATHER, FSDP_SUM, 1.0f },
        { "all-gather in place", GATHER_IN_PLACE, FSDP_SUM, 1.0f },
        { "reduce-scatter, mean", REDUCE_SCATTER, FSDP_MEAN, 1.0f },
        { "reduce-scatter, sum", REDUCE_SCATTER, FSDP_SUM, 1.0f },
        { "reduce-scatter, sum of products", REDUCE_SCATTER, FSDP_SUM, 0.375f },
        { "all-reduce, mean", ALL_REDUCE, FSDP_MEAN, 1.0f },
        { "all-reduce, sum", ALL_REDUCE, FSDP_SUM, 1.0f },
        { "all-reduce, largest", ALL_REDUCE, FSDP_MAX, 1.0f },
        { "broadcast", BROADCAST, FSDP_SUM, 1.0f },
    };
    struct device_group_config config = { .name = "one", .device = &device, .size = 1 };
    void *memory[2], *handles[2];
    char words[100];

    by = collectives;
    if (by->make_id(&device, config.id, &err) != FSDP_OK) {
        printf("skip - cuda row: collectives of a group of one: %s\n", err.message);
        fsdp_err_clear(&err);
        return;
    }
    by->describe(words, sizeof words);
    require(by->open(&group, &config, &err));
    for (int i = 0; i < 2; i++) {
        require(by->alloc_memory(&device, N_MOVED * sizeof(float), &memory[i], &err));
        require(by->register_memory(group, memory[i], N_MOVED * sizeof(float), &handles[i], &err));
    }
    printf("# %s, memory %s\n", words,
           handles[0] != NULL ? "registered" : "not registered: it does not here");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        check_moved(&all[i], FSDP_F32, memory[0], memory[1]);
        check_moved(&all[i], FSDP_BF16, memory[0], memory[1]);
    }
    for (int i = 0; i < 2; i++) {
        by->unregister_memory(group, handles[i]);
        device.ops->free(&device, memory[i], N_MOVED * sizeof(float));
    }
    require(by->poll(group, &err));
    by->close(group);
}

int main(void)
{
    const struct plugin *plugin;
    const struct device_config config = { .name = "cuda", .plugin = &plugin };
    char words[200];

    require(device_open(&device, &config, &err));
    require(device.ops->stream_create(&device, &stream, false, &err));
    require(numerics_open(
        &cuda, &(struct numerics_config){ .threads = 1, .row = plugin->numerics, .device = &device }, &err));
    require(numerics_open(&ref, &(struct numerics_config){ .threads = 1, .name = "ref" }, &err));
    device.ops->describe(&device, words, sizeof words);
    printf("# %s\n", words);
    find_tally();
    check_products();
    check_bf16_product();
    check_gelu_product();
    for (int way = 0; way < 4; way++)
        check_gelu_backward_product(way % 2, way / 2);
    check_sums("product with the sums of its first factor", MATMUL_SUMS_OF_A, false);
    check_sums("product with the sums of its second", MATMUL_SUMS_OF_B, false);
    check_sums("the same of bfloat16 into float32, first", MATMUL_SUMS_OF_A, true);
    check_sums("the same of bfloat16 into float32, second", MATMUL_SUMS_OF_B, true);
    check_norm();
    check_other_norms();
    check_elementwise();
    check_tokens();
    check_attentions();
    check_updates();
    check_norms();
    check_copies();
    check_collectives(plugin->collectives);
    numerics_close(&ref);
    numerics_close(&cuda);
    device.ops->stream_destroy(stream);
    device_close(&device);
    return n_failed > 0;
}
