/* The cuda row of the numerics table against the reference, on random inputs. Linked with libfsdp.
 * Opens the device as a program does: with a GPU
 * it is the GPU's, with FSDP_CUDA_PLUGIN the emulated one. A line for each operation: "ok - NAME" or "not ok - NAME: how far".
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/rng.h"
#include "shard_runtime/device/device.h"
#include "shard_runtime/device/plugin.h"
#include "shard_runtime/numerics/numerics.h"

static struct device device;
static struct device_stream *stream;
static struct numerics cuda, ref;
static struct fsdp_err err;
static int n_failed;
static uint64_t key = 1;

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
    check_products();
    check_bf16_product();
    check_norm();
    check_elementwise();
    check_tokens();
    numerics_close(&ref);
    numerics_close(&cuda);
    device.ops->stream_destroy(stream);
    device_close(&device);
    return n_failed > 0;
}
