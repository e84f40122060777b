/*
 * Products: sums of k terms in float32, in another order: k * 6e-8 at worst, much less in the mean; and what
 * their epilogues do beside.
 */
#include <stdio.h>

#include "tests/support/oracles/cuda_row/row.h"

/*
 * Did the device refuse a product with an epilogue? Then this prints a skip line with the reason. In
 * production a plain product and a kernel take its place, both where the library offers no algorithm and
 * where the call itself answers NOT_SUPPORTED. Any other failure ends the program, see require().
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

/* A product on the device, with what it does in addition; false if that is refused. */
static bool run_ours(const char *name, const struct matmul_desc *d, const struct tensor in[2],
                     const void *bias, void *left, struct tensor c)
{
    struct matmul *matmul;
    size_t bytes;
    void *scratch;
    enum fsdp_status status = cuda.ops->matmul_create(&cuda, d, &matmul, &bytes, &err);

    if (d->beside != MATMUL_NOTHING && refused(name, status))
        return false;
    require(status);
    require(device.ops->alloc(&device, bytes, &scratch, &err));
    if (d->beside == MATMUL_NOTHING)
        require(
            cuda.ops->matmul_run(matmul, stream, in[0].device, in[1].device, bias, c.device, scratch, &err));
    else
        status = cuda.ops->matmul_run_beside(matmul, stream, in[0].device, in[1].device, bias, left, c.device,
                                             scratch, &err);
    cuda.ops->matmul_destroy(matmul);
    device.ops->free(&device, scratch, bytes);
    return !refused(name, status);
}

/* The plain product in float32 by the reference. */
static void run_theirs(struct matmul_desc d, const struct tensor in[2], const void *bias, void *c)
{
    d.dtype = d.c_dtype = FSDP_F32;
    d.beside = MATMUL_NOTHING;
    require(op_multiply(&ref, &d, in[0].host, in[1].host, bias, c, &err));
}

static void check_matmul(const char *name, struct matmul_desc d, size_t n_a, size_t n_b, size_t n_c)
{
    const struct tensor in[2] = { make(n_a), make(n_b) }, c = make(n_c), bias = make(d.n);

    d.alpha = d.alpha == 0 ? 1.0f : d.alpha;
    if (d.dtype == FSDP_BF16)
        narrow_both(in[0]), narrow_both(in[1]);
    run_ours(name, &d, in, d.bias ? bias.device : NULL, NULL, c);
    run_theirs(d, in, bias.host, c.host);
    compare(name, c, 1e-5);
    drop(in[0]), drop(in[1]), drop(c), drop(bias);
}

static void check_shapes(void)
{
    enum { M = 37, N = 29, K = 41, B = 3, H = 2 };
    struct matmul_desc d = op_product(M, N, K, false, false);
    const size_t wide = H * K; /* heads side by side in a row */

    check_matmul("product", d, M * K, K * N, M * N);
    d = op_product(M, N, K, false, true), d.bias = true;
    check_matmul("product with a transposed factor and a bias", d, M * K, K * N, M * N);
    d = op_product(M, N, K, true, false), d.accumulate = true, d.alpha = 0.5f;
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
    check_matmul("product of one row", op_product(1, N, K, false, false), K, K * N, N);
    check_matmul("product with one column", op_product(M, 1, K, false, false), M * K, K, M);
    check_matmul("an empty sum", op_product(M, N, 0, false, false), 1, 1, M * N);
    d = op_product(16, 24, 32, false, true), d.dtype = FSDP_BF16;
    check_matmul("product of bfloat16, summed in float32", d, 16 * 32, 32 * 24, 16 * 24);
}

/*
 * Products that do more in the same call. `left` is what they leave in addition to c:
 *   - the product of a linear's weight gradient, dy^T x, leaves sums of a factor over its rows;
 *   - a linear and GELU by tanh leaves what went into the GELU, whose slope is at most 1.13;
 *   - a product that is the gradient of a GELU's output goes back through it. It may leave the sums of that,
 *     which are a bias's gradient. In bfloat16 c is rounded once. cuBLASLt's sums are of the rounded c, and
 *     are rounded again. 24 normal values of size s, each off by 2^-9 of itself, are off by 0.038 s together
 *     at worst. The largest of the sums is about 12 s, and 2^-9 of that comes on top.
 */
static const struct beside {
    const char *name, *left, *tallied;
    enum matmul_beside what;
    size_t m, n, k;
    enum fsdp_dtype dtype, c_dtype;
    double allowed, left_allowed;
} besides[] = {
#define INTO     "and what went into it"
#define BIAS     "and the gradient of the bias before it"
#define BACK     "product back through GELU by tanh"
#define TALLIED  "product back through gelu"
#define OF_BIAS  BIAS, TALLIED " with sums", MATMUL_GELU_BACKWARD_SUMS, 24, 40, 48
#define NO_BIAS  NULL, TALLIED, MATMUL_GELU_BACKWARD, 24, 40, 48
#define SUMS(of) "and its sums", "product with sums", MATMUL_SUMS_OF_##of, 40, 24, 48
    { "product and GELU by tanh", INTO, "product with gelu", MATMUL_BEFORE_GELU, 21, 24, 40, FSDP_F32,
      FSDP_F32, 1e-5, 1e-5 },
    { BACK, NO_BIAS, FSDP_F32, FSDP_F32, 1e-5, 1e-5 },
    { BACK ", with sums", OF_BIAS, FSDP_F32, FSDP_F32, 1e-5, 1e-5 },
    { BACK ", bfloat16", NO_BIAS, FSDP_BF16, FSDP_BF16, 4e-3, 0 },
    { BACK ", bfloat16, with sums", OF_BIAS, FSDP_BF16, FSDP_BF16, 4e-3, 6e-3 },
    { "product with the sums of its first factor", SUMS(A), FSDP_F32, FSDP_F32, 1e-5, 1e-5 },
    { "product with the sums of its second", SUMS(B), FSDP_F32, FSDP_F32, 1e-5, 1e-5 },
    { "the same of bfloat16 into float32, first", SUMS(A), FSDP_BF16, FSDP_F32, 1e-5, 1e-5 },
    { "the same of bfloat16 into float32, second", SUMS(B), FSDP_BF16, FSDP_F32, 1e-5, 1e-5 },
};

/*
 * By the reference: the product, and then what `way` does in addition. `of`: the bias, or what went into the
 * GELU.
 */
static void then_by_reference(const struct beside *way, const struct matmul_desc *d,
                              const struct tensor in[2], struct tensor of, struct tensor c,
                              struct tensor left)
{
    const bool gelu = way->what == MATMUL_BEFORE_GELU;

    run_theirs(*d, in, of.host, gelu ? left.host : c.host);
    if (gelu) {
        op_activation(&ref, NULL, FSDP_F32, NUMERICS_GELU_TANH, left.host, c.host, c.n);
    } else if (way->what == MATMUL_SUMS_OF_A || way->what == MATMUL_SUMS_OF_B) {
        op_column_sum(&ref, NULL, FSDP_F32, in[way->what == MATMUL_SUMS_OF_B].host, FSDP_F32, left.host, d->k,
                      left.n, false);
    } else {
        op_activation_backward(&ref, NULL, FSDP_F32, NUMERICS_GELU_TANH, c.host, of.host, c.host, c.n);
        op_column_sum(&ref, NULL, FSDP_F32, c.host, FSDP_F32, left.host, d->m, d->n, false);
    }
}

static void check_beside(const struct beside *way)
{
    const bool gelu = way->what == MATMUL_BEFORE_GELU, of_a = way->what == MATMUL_SUMS_OF_A,
               sums = of_a || way->what == MATMUL_SUMS_OF_B;
    struct matmul_desc d = op_product(way->m, way->n, way->k, sums, gelu);
    const struct tensor in[2] = { make(d.m * d.k), make(d.k * d.n) }, c = make(d.m * d.n),
                        of = make(d.m * d.n),
                        left = make(gelu   ? d.m * d.n
                                    : of_a ? d.m
                                           : d.n);
    const uint64_t before = tally_of(way->tallied);

    d.dtype = way->dtype;
    d.c_dtype = way->c_dtype;
    d.bias = gelu;
    d.beside = way->what;
    if (way->dtype == FSDP_BF16)
        narrow_both(in[0]), narrow_both(in[1]);
    if (way->c_dtype == FSDP_BF16)
        narrow_both(of);
    if (run_ours(way->name, &d, in, sums ? NULL : of.device, way->left == NULL ? NULL : left.device, c)) {
        then_by_reference(way, &d, in, of, c, left);
        if (way->c_dtype == FSDP_BF16)
            widen_on_device(c), widen_on_device(left);
        compare(way->name, c, way->allowed);
        if (way->left != NULL)
            compare(way->left, left, way->left_allowed);
        say_launches("in one call", way->tallied, before, 1);
    }
    drop(in[0]), drop(in[1]), drop(c), drop(of), drop(left);
}

void check_products(void)
{
    check_shapes();
    for (size_t i = 0; i < sizeof besides / sizeof *besides; i++)
        check_beside(&besides[i]);
}
