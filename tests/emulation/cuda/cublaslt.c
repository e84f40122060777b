/*
 * cuBLASLt as its manual describes it, in plain loops: matrices by columns, one stride of batches, sums of
 * float32. It holds its caller to what the manual asks: shapes that fit, leading dimensions that reach, the
 * alignment that was promised, the workspace that was asked for. Of a bias it is the alignment of its pointer
 * when the algorithm was chosen. And to what we ask of ourselves: a scheme of reduction whose bits do not
 * depend on who comes first. FSDP_EMULATED_LT=plain knows no epilogue but the bias; FSDP_EMULATED_LT=refuse
 * offers an algorithm for the others, whose call then answers NOT_SUPPORTED.
 */
#include <cublasLt.h>

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "tests/emulation/cuda/faults.h"
#include "tests/emulation/cuda/runtime.h"

enum { WORKSPACE_BYTES = 256 };

/* First in each call. */
#define TOLD(call)                                                                                           \
    do {                                                                                                     \
        if (call(__func__) != cudaSuccess)                                                                   \
            return CUBLAS_STATUS_EXECUTION_FAILED;                                                           \
    } while (0)

struct emulated_lt_layout {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t ld, stride;
    int32_t batches;
};

struct emulated_lt_product {
    int32_t op_a, op_b, bias_type;
    uint32_t epilogue;
    const void *bias;
    void *aux; /* what goes into a GELU, left or read; of the result's dtype */
    int64_t aux_ld;
    bool tf32; /* factors in float32 are rounded to TF32 */
};

struct emulated_lt_preference {
    size_t workspace_bytes;
    uint32_t reductions;
    uint32_t alignment[4];
};

struct work {
    struct emulated_lt_product product;
    struct emulated_lt_layout a_layout, b_layout, d_layout;
    const void *a, *b;
    void *d;
    float alpha, beta;
    void *workspace;
    size_t workspace_bytes;
};

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS            ? "CUBLAS_STATUS_SUCCESS"
           : status == CUBLAS_STATUS_ALLOC_FAILED     ? "CUBLAS_STATUS_ALLOC_FAILED"
           : status == CUBLAS_STATUS_INVALID_VALUE    ? "CUBLAS_STATUS_INVALID_VALUE"
           : status == CUBLAS_STATUS_EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED"
                                                      : "CUBLAS_STATUS_NOT_SUPPORTED";
}

size_t cublasLtGetVersion(void)
{
    return 0;
}

static cublasStatus_t make(void **out, size_t size_bytes)
{
    *out = calloc(1, size_bytes);
    return *out != NULL ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

/* One that is told to fail has freed all the same. */
#define DESTROYS(call, type)                                                                                 \
    cublasStatus_t call(type made)                                                                           \
    {                                                                                                        \
        free(made);                                                                                          \
        TOLD(emulated_host_call);                                                                            \
        return CUBLAS_STATUS_SUCCESS;                                                                        \
    }
DESTROYS(cublasLtDestroy, cublasLtHandle_t)
DESTROYS(cublasLtMatrixLayoutDestroy, cublasLtMatrixLayout_t)
DESTROYS(cublasLtMatmulDescDestroy, cublasLtMatmulDesc_t)
DESTROYS(cublasLtMatmulPreferenceDestroy, cublasLtMatmulPreference_t)

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    TOLD(emulated_call);
    return make((void **)out, 1);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type, uint64_t rows,
                                          uint64_t cols, int64_t ld)
{
    TOLD(emulated_host_call);
    if (rows == 0 || cols == 0 || ld < (int64_t)rows)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (make((void **)out, sizeof **out) != CUBLAS_STATUS_SUCCESS)
        return CUBLAS_STATUS_ALLOC_FAILED;
    **out = (struct emulated_lt_layout){ .type = type, .rows = rows, .cols = cols, .ld = ld, .batches = 1 };
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t take(void *to, size_t wanted, const void *value, size_t size_bytes)
{
    if (size_bytes != wanted)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, wanted);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t which, const void *value,
                                                size_t size_bytes)
{
    TOLD(emulated_host_call);
    return which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT
               ? take(&layout->batches, sizeof layout->batches, value, size_bytes)
               : take(&layout->stride, sizeof layout->stride, value, size_bytes);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    TOLD(emulated_host_call);
    if (scale != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (make((void **)out, sizeof **out) != CUBLAS_STATUS_SUCCESS)
        return CUBLAS_STATUS_ALLOC_FAILED;
    (*out)->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    (*out)->tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    return CUBLAS_STATUS_SUCCESS;
}

#define ATTRIBUTE(which, member)                                                                             \
    {                                                                                                        \
        CUBLASLT_MATMUL_DESC_##which, offsetof(struct emulated_lt_product, member),                          \
            sizeof((struct emulated_lt_product *)NULL)->member                                               \
    }
static const struct {
    cublasLtMatmulDescAttributes_t which;
    size_t at, size_bytes;
} attributes[] = { ATTRIBUTE(TRANSA, op_a),
                   ATTRIBUTE(TRANSB, op_b),
                   ATTRIBUTE(EPILOGUE, epilogue),
                   ATTRIBUTE(BIAS_POINTER, bias),
                   ATTRIBUTE(BIAS_DATA_TYPE, bias_type),
                   ATTRIBUTE(EPILOGUE_AUX_POINTER, aux),
                   ATTRIBUTE(EPILOGUE_AUX_LD, aux_ld) };

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t which, const void *value,
                                              size_t size_bytes)
{
    TOLD(emulated_host_call);
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (attributes[i].which == which)
            return take((char *)product + attributes[i].at, attributes[i].size_bytes, value, size_bytes);
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    TOLD(emulated_host_call);
    return make((void **)out, sizeof **out);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void *value, size_t size_bytes)
{
    TOLD(emulated_host_call);
    if (which == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        return take(&preference->reductions, sizeof preference->reductions, value, size_bytes);
    if (which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return take(&preference->workspace_bytes, sizeof preference->workspace_bytes, value, size_bytes);
    return take(&preference->alignment[which - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                sizeof preference->alignment[0], value, size_bytes);
}

/* Rows and columns behind the operation. */
static uint64_t rows_of(const struct emulated_lt_layout *layout, int32_t op)
{
    return op == CUBLAS_OP_T ? layout->cols : layout->rows;
}

static uint64_t cols_of(const struct emulated_lt_layout *layout, int32_t op)
{
    return op == CUBLAS_OP_T ? layout->rows : layout->cols;
}

static bool fits(const struct emulated_lt_product *product, const struct emulated_lt_layout *a,
                 const struct emulated_lt_layout *b, const struct emulated_lt_layout *d)
{
    return rows_of(a, product->op_a) == d->rows && cols_of(b, product->op_b) == d->cols &&
           cols_of(a, product->op_a) == rows_of(b, product->op_b) && a->batches == d->batches &&
           b->batches == d->batches && a->type == b->type;
}

/* What follows a product, by CUBLASLT_EPILOGUE_. */
static const struct epilogue {
    uint32_t which;
    const char *tally;
    bool adds_bias;
    bool gelu;     /* forward: what goes in is left in aux */
    bool back;     /* back through a GELU, whose input aux has */
    bool row_sums; /* the gradient of a bias: of what came out */
    bool sums;     /* the same, of a factor */
} epilogues[] = {
    { .which = CUBLASLT_EPILOGUE_DEFAULT, "product" },
    { .which = CUBLASLT_EPILOGUE_BIAS, "product", .adds_bias = true },
    { .which = CUBLASLT_EPILOGUE_GELU_AUX, "product with gelu", .gelu = true },
    { .which = CUBLASLT_EPILOGUE_GELU_AUX_BIAS, "product with gelu", .gelu = true, .adds_bias = true },
    { .which = CUBLASLT_EPILOGUE_DGELU, "product back through gelu", .back = true },
    { .which = CUBLASLT_EPILOGUE_DGELU_BGRAD,
      "product back through gelu with sums",
      .back = true,
      .row_sums = true },
    { .which = CUBLASLT_EPILOGUE_BGRADA, "product with sums", .sums = true },
    { .which = CUBLASLT_EPILOGUE_BGRADB, "product with sums", .sums = true },
};

static const struct epilogue *epilogue_of(const struct emulated_lt_product *product)
{
    for (size_t i = 0; i < sizeof epilogues / sizeof *epilogues; i++)
        if (epilogues[i].which == product->epilogue)
            return &epilogues[i];
    abort(); /* there is no other */
}

static bool mode_is(const char *name)
{
    const char *mode = getenv("FSDP_EMULATED_LT");

    return mode != NULL && strcmp(mode, name) == 0;
}

/* Does more than add a bias. */
static bool is_other(const struct epilogue *epilogue)
{
    return epilogue->gelu || epilogue->back || epilogue->sums;
}

/*
 * Is there an algorithm? Sums are of the result's dtype, and of one product; what goes into a GELU lies in
 * packs of 8.
 */
static bool knows(const struct emulated_lt_product *product, const struct emulated_lt_layout *d)
{
    const struct epilogue *epilogue = epilogue_of(product);
    const bool in_packs =
        product->aux_ld % 8 == 0 && product->aux_ld >= (int64_t)d->rows && (uintptr_t)product->aux % 16 == 0;

    if (!is_other(epilogue))
        return true;
    return d->batches == 1 && !mode_is("plain") && (epilogue->sums || in_packs) &&
           ((!epilogue->sums && !epilogue->row_sums) || product->bias_type == (int32_t)d->type);
}

/* What is aligned to `pointer`, at most to 16. */
static uint64_t alignment_of(const void *pointer)
{
    const uintptr_t at = (uintptr_t)pointer | 16;

    return at & (~at + 1);
}

/* The algorithm remembers what alignment it was chosen for. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *n_found)
{
    TOLD(emulated_call);
    (void)handle, (void)c;
    *n_found = 0;
    if (wanted < 1 || !fits(product, a, b, d))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!knows(product, d) || preference->reductions != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *results = (cublasLtMatmulHeuristicResult_t){ .workspaceSize = WORKSPACE_BYTES };
    results->algo.data[0] = preference->alignment[0];
    results->algo.data[1] = alignment_of(product->bias);
    results->algo.data[2] = product->epilogue;
    *n_found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

/* Its number here is the epilogue that it was chosen for. */
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t which, void *value,
                                                    size_t size_bytes, size_t *written)
{
    const int32_t number = (int32_t)algo->data[2];

    TOLD(emulated_host_call);
    *written = sizeof number;
    return which == CUBLASLT_ALGO_CONFIG_ID && size_bytes == sizeof number
               ? take(value, sizeof number, &number, size_bytes)
               : CUBLAS_STATUS_INVALID_VALUE;
}

static float get(cudaDataType_t type, const void *data, int64_t at)
{
    return type == CUDA_R_16BF ? bf16_to_f32(((const uint16_t *)data)[at]) : ((const float *)data)[at];
}

static void put(cudaDataType_t type, void *data, int64_t at, float value)
{
    if (type == CUDA_R_16BF)
        ((uint16_t *)data)[at] = bf16_of_f32(value);
    else
        ((float *)data)[at] = value;
}

static float element(const struct emulated_lt_layout *layout, int32_t op, const void *data, int64_t batch,
                     uint64_t row, uint64_t col)
{
    const uint64_t r = op == CUBLAS_OP_T ? col : row, c = op == CUBLAS_OP_T ? row : col;

    return get(layout->type, data, batch * layout->stride + (int64_t)c * layout->ld + (int64_t)r);
}

/* To the nearest number with 10 bits of mantissa, ties away from zero (PTX ISA, cvt.rna.tf32.f32). */
static float rounded(float value, bool tf32)
{
    union {
        float value;
        uint32_t bits;
    } it = { value };

    if (tf32 && isfinite(value))
        it.bits = (it.bits + (1u << 12)) & ~((1u << 13) - 1);
    return it.value;
}

/* The sum over k of each row of op(A), or each column of op(B). */
static void run_sums(const struct work *w)
{
    const bool of_a = w->product.epilogue == CUBLASLT_EPILOGUE_BGRADA;
    const uint64_t k_end = cols_of(&w->a_layout, w->product.op_a),
                   n = of_a ? w->d_layout.rows : w->d_layout.cols;

    for (uint64_t i = 0; i < n; i++) {
        float sum = 0;

        for (uint64_t k = 0; k < k_end; k++)
            sum += of_a ? element(&w->a_layout, w->product.op_a, w->a, 0, i, k)
                        : element(&w->b_layout, w->product.op_b, w->b, 0, k, i);
        put(w->d_layout.type, (void *)(uintptr_t)w->product.bias, (int64_t)i, sum);
    }
}

/* By tanh: Hendrycks and Gimpel, 2016. */
static float gelu(float x)
{
    return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

static float gelu_slope(float x)
{
    const float t = tanhf(0.7978845608f * (x + 0.044715f * x * x * x));

    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * 0.7978845608f * (1.0f + 0.134145f * x * x);
}

/* The gradient of a bias: of what came out, before it was rounded, the sum over a row of D. */
static void add_row_sums(const struct work *w, const float *results)
{
    for (uint64_t row = 0; row < w->d_layout.rows; row++) {
        float sum = 0;

        for (uint64_t col = 0; col < w->d_layout.cols; col++)
            sum += results[col * w->d_layout.rows + row];
        put(w->d_layout.type, (void *)(uintptr_t)w->product.bias, (int64_t)row, sum);
    }
}

static bool run_product(void *closure)
{
    const struct work *w = closure;
    const struct epilogue *epilogue = epilogue_of(&w->product);
    const uint64_t k_end = cols_of(&w->a_layout, w->product.op_a);
    const bool tf32 = w->product.tf32 && w->a_layout.type == CUDA_R_32F;
    float *results = malloc(w->d_layout.rows * w->d_layout.cols * sizeof *results);

    if (results == NULL)
        abort();
    memset(w->workspace, 0xff, w->workspace_bytes); /* it is the product's alone while it runs */
    for (int64_t batch = 0; batch < w->d_layout.batches; batch++)
        for (uint64_t col = 0; col < w->d_layout.cols; col++)
            for (uint64_t row = 0; row < w->d_layout.rows; row++) {
                const int64_t at = batch * w->d_layout.stride + (int64_t)col * w->d_layout.ld + (int64_t)row;
                float sum = 0;

                for (uint64_t k = 0; k < k_end; k++)
                    sum += rounded(element(&w->a_layout, w->product.op_a, w->a, batch, row, k), tf32) *
                           rounded(element(&w->b_layout, w->product.op_b, w->b, batch, k, col), tf32);
                sum *= w->alpha;
                if (w->beta != 0)
                    sum += w->beta * get(w->d_layout.type, w->d, at);
                if (epilogue->adds_bias)
                    sum += get((cudaDataType_t)w->product.bias_type, w->product.bias, (int64_t)row);
                if (epilogue->gelu) {
                    put(w->d_layout.type, w->product.aux, (int64_t)col * w->product.aux_ld + (int64_t)row,
                        sum);
                    sum = gelu(sum);
                }
                if (epilogue->back)
                    sum *= gelu_slope(get(w->d_layout.type, w->product.aux,
                                          (int64_t)col * w->product.aux_ld + (int64_t)row));
                results[col * w->d_layout.rows + row] = sum;
                put(w->d_layout.type, w->d, at, sum);
            }
    if (epilogue->row_sums)
        add_row_sums(w, results);
    free(results);
    if (epilogue->sums)
        run_sums(w);
    return true;
}

static void count_bytes(const struct emulated_lt_layout *layout, const char *how)
{
    const uint64_t size = layout->type == CUDA_R_16BF ? sizeof(uint16_t) : sizeof(float);
    char what[64];

    snprintf(what, sizeof what, "ld %lld %s", (long long)layout->ld, how);
    emulated_tally_add(what, layout->rows * layout->cols * (uint64_t)layout->batches * size);
}

/* The device's, and aligned. */
static bool is_ours(const void *memory, uint64_t alignment)
{
    return emulated_is_device(memory) && (uintptr_t)memory % alignment == 0;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream)
{
    TOLD(emulated_call);
    const struct epilogue *epilogue = epilogue_of(product);
    const bool uses_bias = epilogue->adds_bias || epilogue->sums || epilogue->row_sums;
    struct work work = { .product = *product,
                         .a_layout = *a_layout,
                         .b_layout = *b_layout,
                         .d_layout = *d_layout,
                         .a = a,
                         .b = b,
                         .d = d,
                         .alpha = *(const float *)alpha,
                         .beta = *(const float *)beta,
                         .workspace = workspace,
                         .workspace_bytes = WORKSPACE_BYTES };

    (void)handle, (void)c_layout;
    if (is_other(epilogue) && mode_is("refuse"))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (c != d || !fits(product, a_layout, b_layout, d_layout) || workspace_bytes < WORKSPACE_BYTES ||
        !is_ours(a, algo->data[0]) || !is_ours(b, algo->data[0]) || !is_ours(d, algo->data[0]) ||
        !is_ours(workspace, 16) || (uses_bias && !is_ours(product->bias, algo->data[1])) ||
        ((epilogue->gelu || epilogue->back) && !is_ours(product->aux, 16)))
        return CUBLAS_STATUS_INVALID_VALUE;
    emulated_tally(epilogue->tally);
    count_bytes(a_layout, "read");
    count_bytes(b_layout, "read");
    count_bytes(d_layout, "written");
    if (work.beta != 0)
        count_bytes(d_layout, "read");
    return emulated_queue(stream, run_product, &work, sizeof work) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_ALLOC_FAILED;
}
