/*
 * Products: sums of k terms in float32, in another order: k * 6e-8 at worst, much less in the mean; and what their epilogues do beside.
 */
#include <stdio.h>
#include <stdlib.h>

#include "shard_runtime/core/bf16.h"
#include "tests/support/cuda_row/row.h"

/*
 * Did the device refuse a product with an epilogue? Then this prints a skip line with the reason. In production a plain product and a kernel
 * take its place, both where the library offers no algorithm and where the call itself answers NOT_SUPPORTED. Any other failure ends the
 * program, see require().
 */
static bool refused(const char *name, enum fsdp_status status)
{
    if (status != FSDP_ERR_UNSUPPORTED) {
        require(status);
        return false;
    }
    printf("skip - cuda row: %s: %s\n", name, err.message);
    fsdp_err_clear(&err);
    return true;
}

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

static void check_shapes(void)
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

/* A product of rows of a with b as it lies, or with b turned. */
static struct matmul_desc packed(size_t m, size_t n, size_t k, bool turned)
{
    return (struct matmul_desc){ .outer = 1,
                                 .inner = 1,
                                 .m = m,
                                 .n = n,
                                 .k = k,
                                 .a = { .row_stride = k, .col_stride = 1 },
                                 .b = { .row_stride = turned ? 1 : n, .col_stride = turned ? k : 1 },
                                 .c = { .row_stride = n, .col_stride = 1 },
                                 .alpha = 1.0f };
}

/* The product of a linear's weight gradient, dy^T x, and the sums of dy over its rows beside it: k terms in float32 each. */
static void check_sums(const char *name, enum matmul_beside which, bool narrow)
{
    enum { M = 40, N = 24, K = 48 };
    struct matmul_desc d = packed(M, N, K, false);
    const size_t n_sums = which == MATMUL_SUMS_OF_A ? M : N;
    struct tensor a = make(M * K), b = make(K * N), c = make(M * N), sums = make(n_sums);
    struct matmul *ours, *theirs;
    size_t our_bytes, their_bytes;
    void *our_scratch, *their_scratch;
    const uint64_t before = tally_of("product with sums");
    bool skipped;

    d.a = (struct matmul_view){ .row_stride = 1, .col_stride = M };
    d.dtype = narrow ? FSDP_BF16 : FSDP_F32;
    d.beside = which;
    if (refused(name, cuda.ops->matmul_create(&cuda, &d, &ours, &our_bytes, &err))) {
        drop(a), drop(b), drop(c), drop(sums);
        return;
    }
    require(device.ops->alloc(&device, our_bytes, &our_scratch, &err));
    if (narrow) {
        narrow_both(a);
        narrow_both(b);
    }
    skipped = refused(name, cuda.ops->matmul_run_beside(ours, stream, a.device, b.device, NULL, sums.device,
                                                        c.device, our_scratch, &err));
    cuda.ops->matmul_destroy(ours);
    d.beside = MATMUL_NOTHING;
    d.dtype = FSDP_F32;
    require(ref.ops->matmul_create(&ref, &d, &theirs, &their_bytes, &err));
    their_scratch = malloc(their_bytes + 1);
    require(ref.ops->matmul_run(theirs, NULL, a.host, b.host, NULL, c.host, their_scratch, &err));
    ref.ops->matmul_destroy(theirs);
    ref.ops->column_sum(&ref, NULL, which == MATMUL_SUMS_OF_A ? a.host : b.host, sums.host, K, n_sums, false);
    if (!skipped) {
        compare(name, c, 1e-5);
        compare("and its sums", sums, 1e-5);
        say_launches("in one call", "product with sums", before, 1);
    }
    device.ops->free(&device, our_scratch, our_bytes);
    free(their_scratch);
    drop(a), drop(b), drop(c), drop(sums);
}

/* A linear and GELU by tanh: c, and beside it what went in. GELU's slope is at most 1.13. */
static void check_gelu_product(void)
{
    enum { M = 21, N = 24, K = 40 };
    static const char name[] = "product and GELU by tanh";
    struct matmul_desc d = packed(M, N, K, true);
    struct tensor a = make(M * K), b = make(K * N), bias = make(N), c = make(M * N), before = make(M * N);
    const uint64_t tallied = tally_of("product with gelu");
    struct matmul *ours, *theirs;
    size_t our_bytes, their_bytes;
    void *our_scratch, *their_scratch;

    d.bias = true;
    d.beside = MATMUL_BEFORE_GELU;
    if (!refused(name, cuda.ops->matmul_create(&cuda, &d, &ours, &our_bytes, &err))) {
        d.beside = MATMUL_NOTHING;
        require(ref.ops->matmul_create(&ref, &d, &theirs, &their_bytes, &err));
        require(device.ops->alloc(&device, our_bytes, &our_scratch, &err));
        their_scratch = malloc(their_bytes + 1);
        if (!refused(name, cuda.ops->matmul_run_beside(ours, stream, a.device, b.device, bias.device,
                                                       before.device, c.device, our_scratch, &err))) {
            require(ref.ops->matmul_run(theirs, NULL, a.host, b.host, bias.host, before.host, their_scratch,
                                        &err));
            ref.ops->gelu_tanh(&ref, NULL, before.host, c.host, M * N);
            compare(name, c, 1e-5);
            compare("and what went into it", before, 1e-5);
            say_launches("in one call", "product with gelu", tallied, 1);
        }
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
    static const char *const names[2][2] = {
        { "product back through GELU by tanh", "product back through GELU by tanh, with sums" },
        { "product back through GELU by tanh, bfloat16",
          "product back through GELU by tanh, bfloat16, with sums" },
    };
    const char *name = names[narrow][sums];
    const char *tallied = sums ? "product back through gelu with sums" : "product back through gelu";
    struct matmul_desc d = packed(M, N, K, false);
    struct tensor a = make(M * K), b = make(K * N), z = make(M * N), c = make(M * N), bias = make(N);
    const uint64_t before = tally_of(tallied);
    const double allowed = narrow ? 4e-3 : 1e-5;
    struct matmul *ours, *theirs;
    size_t our_bytes, their_bytes;
    void *our_scratch, *their_scratch;
    bool skipped;

    d.dtype = d.c_dtype = narrow ? FSDP_BF16 : FSDP_F32;
    d.beside = sums ? MATMUL_GELU_BACKWARD_SUMS : MATMUL_GELU_BACKWARD;
    if (refused(name, cuda.ops->matmul_create(&cuda, &d, &ours, &our_bytes, &err))) {
        drop(a), drop(b), drop(z), drop(c), drop(bias);
        return;
    }
    require(device.ops->alloc(&device, our_bytes, &our_scratch, &err));
    if (narrow)
        narrow_both(a), narrow_both(b), narrow_both(z);
    skipped =
        refused(name, cuda.ops->matmul_run_beside(ours, stream, a.device, b.device, z.device,
                                                  sums ? bias.device : NULL, c.device, our_scratch, &err));
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
    if (!skipped) {
        compare(name, c, allowed);
        if (sums)
            compare("and the gradient of the bias before it", bias, allowed);
        say_launches("in one call", tallied, before, 1);
    }
    device.ops->free(&device, our_scratch, our_bytes);
    free(their_scratch);
    drop(a), drop(b), drop(z), drop(c), drop(bias);
}

static void check_bf16_product(void)
{
    enum { M = 16, N = 24, K = 32 };
    struct matmul_desc d = packed(M, N, K, true);
    struct tensor a = make(M * K), b = make(N * K), c = make(M * N);
    uint16_t *narrow_a = malloc(M * K * 2), *narrow_b = malloc(N * K * 2);
    void *on_a, *on_b, *scratch;
    struct matmul *product;
    size_t size_bytes;

    d.dtype = FSDP_BF16;
    d.c_dtype = FSDP_F32;
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

void check_products(void)
{
    check_shapes();
    check_bf16_product();
    check_gelu_product();
    for (int way = 0; way < 4; way++)
        check_gelu_backward_product(way % 2, way / 2);
    check_sums("product with the sums of its first factor", MATMUL_SUMS_OF_A, false);
    check_sums("product with the sums of its second", MATMUL_SUMS_OF_B, false);
    check_sums("the same of bfloat16 into float32, first", MATMUL_SUMS_OF_A, true);
    check_sums("the same of bfloat16 into float32, second", MATMUL_SUMS_OF_B, true);
}
