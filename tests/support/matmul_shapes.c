/* Links libfsdp.
 *
 * Runs the products of a small transformer step through the numerics row and compares each with plain
 * loops in double: for tests that need a fresh process (DNNL_MAX_CPU_ISA, DNNL_VERBOSE are read once). Prints
 * "SHAPE ok" lines and the row's description; exit 1 when a product is wrong.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "shard_runtime/core/rng.h"
#include "shard_runtime/numerics/numerics.h"

struct product {
    const char *what;
    struct matmul_desc desc;
};

enum { TOKENS = 130, DIM = 96, WIDE = 200, BATCH = 3, SEQ = 33, HEADS = 4, HEAD = 16 };
/* clang-format off */
#define PLAIN(rows, cols) { 0, 0, (cols), 1 }
#define TRANSPOSED(rows, cols) { 0, 0, 1, (rows) } /* (rows, cols) of what is stored as (cols, rows) */
#define TOKEN_HEADS   { SEQ * HEADS * HEAD, HEAD, HEADS * HEAD, 1 }
#define TOKEN_HEADS_T { SEQ * HEADS * HEAD, HEAD, 1, HEADS * HEAD }
#define SCORES        { HEADS * SEQ * SEQ, SEQ * SEQ, SEQ, 1 }
#define SCORES_T      { HEADS * SEQ * SEQ, SEQ * SEQ, 1, SEQ }
/* clang-format on */
#define ONE       .outer = 1, .inner = 1, .dtype = FSDP_F32, .alpha = 1.0f
#define EACH_HEAD .outer = BATCH, .inner = HEADS, .dtype = FSDP_F32

static const struct product products[] = {
    { "linear",
      { ONE, .m = TOKENS, .n = WIDE, .k = DIM, .a = PLAIN(TOKENS, DIM), .b = TRANSPOSED(DIM, WIDE),
        .c = PLAIN(TOKENS, WIDE) } },
    { "linear_bias",
      { ONE, .m = TOKENS, .n = WIDE, .k = DIM, .a = PLAIN(TOKENS, DIM), .b = TRANSPOSED(DIM, WIDE),
        .c = PLAIN(TOKENS, WIDE), .bias = true } },
    { "linear_dx",
      { ONE, .m = TOKENS, .n = DIM, .k = WIDE, .a = PLAIN(TOKENS, WIDE), .b = PLAIN(WIDE, DIM),
        .c = PLAIN(TOKENS, DIM) } },
    { "linear_dx_accumulate",
      { ONE, .m = TOKENS, .n = DIM, .k = WIDE, .a = PLAIN(TOKENS, WIDE), .b = PLAIN(WIDE, DIM),
        .c = PLAIN(TOKENS, DIM), .accumulate = true } },
    { "linear_dw",
      { ONE, .m = WIDE, .n = DIM, .k = TOKENS, .a = TRANSPOSED(WIDE, TOKENS), .b = PLAIN(TOKENS, DIM),
        .c = PLAIN(WIDE, DIM) } },
    { "linear_dw_accumulate",
      { ONE, .m = WIDE, .n = DIM, .k = TOKENS, .a = TRANSPOSED(WIDE, TOKENS), .b = PLAIN(TOKENS, DIM),
        .c = PLAIN(WIDE, DIM), .accumulate = true } },
    { "qk",
      { EACH_HEAD, .alpha = 0.25f, .m = SEQ, .n = SEQ, .k = HEAD, .a = TOKEN_HEADS, .b = TOKEN_HEADS_T,
        .c = SCORES } },
    { "pv",
      { EACH_HEAD, .alpha = 1.0f, .m = SEQ, .n = HEAD, .k = SEQ, .a = SCORES, .b = TOKEN_HEADS,
        .c = TOKEN_HEADS } },
    { "dp",
      { EACH_HEAD, .alpha = 1.0f, .m = SEQ, .n = SEQ, .k = HEAD, .a = TOKEN_HEADS, .b = TOKEN_HEADS_T,
        .c = SCORES } },
    { "dv",
      { EACH_HEAD, .alpha = 1.0f, .m = SEQ, .n = HEAD, .k = SEQ, .a = SCORES_T, .b = TOKEN_HEADS,
        .c = TOKEN_HEADS } },
    { "dq",
      { EACH_HEAD, .alpha = 0.25f, .m = SEQ, .n = HEAD, .k = SEQ, .a = SCORES, .b = TOKEN_HEADS,
        .c = TOKEN_HEADS } },
    { "dk",
      { EACH_HEAD, .alpha = 0.25f, .m = SEQ, .n = HEAD, .k = SEQ, .a = SCORES_T, .b = TOKEN_HEADS,
        .c = TOKEN_HEADS } },
};

static size_t extent(const struct matmul_desc *d, const struct matmul_view *v, size_t rows, size_t cols)
{
    return (d->outer - 1) * v->outer_stride + (d->inner - 1) * v->inner_stride + (rows - 1) * v->row_stride +
           (cols - 1) * v->col_stride + 1;
}

static float *random_floats(uint64_t seed, size_t n)
{
    float *x = malloc(n * sizeof *x);

    if (x == NULL)
        abort();
    rng_fill_normal(seed, 0, x, n, 1.0f);
    return x;
}

/* The largest error of c against loops in double, in float32 roundings of the sum of magnitudes. */
static double worst_error(const struct matmul_desc *d, const float *a, const float *b, const float *bias,
                          const float *before, const float *c)
{
    double worst = 0;

    for (size_t batch = 0; batch < d->outer * d->inner; batch++) {
        const size_t o = batch / d->inner, in = batch % d->inner;
        const float *pa = a + o * d->a.outer_stride + in * d->a.inner_stride;
        const float *pb = b + o * d->b.outer_stride + in * d->b.inner_stride;

        for (size_t i = 0; i < d->m; i++) {
            for (size_t j = 0; j < d->n; j++) {
                const size_t at = o * d->c.outer_stride + in * d->c.inner_stride + i * d->c.row_stride + j;
                double sum = d->bias ? (double)bias[j] : d->accumulate ? (double)before[at] : 0;
                double size = fabs(sum), error;

                for (size_t k = 0; k < d->k; k++) {
                    const double term = (double)d->alpha *
                                        (double)pa[i * d->a.row_stride + k * d->a.col_stride] *
                                        (double)pb[k * d->b.row_stride + j * d->b.col_stride];
                    sum += term;
                    size += fabs(term);
                }
                error = fabs((double)c[at] - sum) / (size * 0x1p-24);
                if (!(error <= worst)) /* a NaN is the worst */
                    worst = error;
            }
        }
    }
    return worst;
}

static int run(struct numerics *numerics, const struct product *product)
{
    const struct matmul_desc *d = &product->desc;
    const size_t c_elems = extent(d, &d->c, d->m, d->n);
    float *a = random_floats(1, extent(d, &d->a, d->m, d->k)),
          *b = random_floats(2, extent(d, &d->b, d->k, d->n));
    float *bias = random_floats(3, d->n), *before = random_floats(4, c_elems), *c = random_floats(4, c_elems);
    struct fsdp_err err = { 0 };
    struct matmul *matmul;
    size_t scratch_bytes;
    void *scratch;
    double worst = NAN;

    if (numerics->ops->matmul_create(numerics, d, &matmul, &scratch_bytes, &err) != FSDP_OK) {
        printf("%s: %s\n", product->what, err.message);
        return 1;
    }
    scratch = aligned_alloc(64, (scratch_bytes + 64) / 64 * 64);
    if (numerics->ops->matmul_run(matmul, NULL, a, b, d->bias ? bias : NULL, c, scratch, &err) == FSDP_OK)
        worst = worst_error(d, a, b, bias, before, c);
    numerics->ops->matmul_destroy(matmul);
    free(scratch);
    free(a);
    free(b);
    free(bias);
    free(before);
    free(c);
    printf("%s %s (%.2g roundings)\n", product->what, worst <= 20 ? "ok" : "WRONG", worst);
    return !(worst <= 20); /* sqrt(200) is 14 */
}

int main(int argc, char **argv)
{
    const struct numerics_config config = { .threads = argc > 2 ? atoi(argv[2]) : 1,
                                            .name = argc > 1 ? argv[1] : "auto" };
    struct fsdp_err err = { 0 };
    struct numerics numerics;
    char line[256];
    int n_wrong = 0;

    if (numerics_open(&numerics, &config, &err) != FSDP_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    printf("%s\n", numerics_describe(&numerics, line, sizeof line));
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        n_wrong += run(&numerics, &products[i]);
    numerics_close(&numerics);
    return n_wrong != 0;
}
