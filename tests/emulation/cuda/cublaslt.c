/*
 * cuBLASLt as its manual describes it, in plain loops: matrices by columns, one stride of batches, sums of float32. It holds its
 * caller to what the manual asks: shapes that fit, leading dimensions that reach, the alignment that was promised, the
 * workspace that was asked for.
 */
#include <cublasLt.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "tests/emulation/cuda/runtime.h"

enum { WORKSPACE_BYTES = 256 };

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
};

struct emulated_lt_preference {
    size_t workspace_bytes;
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
    return status == CUBLAS_STATUS_SUCCESS         ? "CUBLAS_STATUS_SUCCESS"
           : status == CUBLAS_STATUS_ALLOC_FAILED  ? "CUBLAS_STATUS_ALLOC_FAILED"
           : status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE"
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

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    return make((void **)out, 1);
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type, uint64_t rows,
                                          uint64_t cols, int64_t ld)
{
    if (rows == 0 || cols == 0 || ld < (int64_t)rows)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (make((void **)out, sizeof **out) != CUBLAS_STATUS_SUCCESS)
        return CUBLAS_STATUS_ALLOC_FAILED;
    **out = (struct emulated_lt_layout){ .type = type, .rows = rows, .cols = cols, .ld = ld, .batches = 1 };
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    free(layout);
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
    return which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT
               ? take(&layout->batches, sizeof layout->batches, value, size_bytes)
               : take(&layout->stride, sizeof layout->stride, value, size_bytes);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    (void)compute;
    if (scale != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (make((void **)out, sizeof **out) != CUBLAS_STATUS_SUCCESS)
        return CUBLAS_STATUS_ALLOC_FAILED;
    (*out)->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product)
{
    free(product);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t which, const void *value,
                                              size_t size_bytes)
{
    switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return take(&product->op_a, sizeof product->op_a, value, size_bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return take(&product->op_b, sizeof product->op_b, value, size_bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return take(&product->epilogue, sizeof product->epilogue, value, size_bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return take(&product->bias, sizeof product->bias, value, size_bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return take(&product->bias_type, sizeof product->bias_type, value, size_bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    return make((void **)out, sizeof **out);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void *value, size_t size_bytes)
{
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

/* The algorithm remembers what alignment it was chosen for. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *n_found)
{
    (void)handle, (void)c;
    *n_found = 0;
    if (wanted < 1 || !fits(product, a, b, d))
        return CUBLAS_STATUS_INVALID_VALUE;
    *results = (cublasLtMatmulHeuristicResult_t){ .workspaceSize = WORKSPACE_BYTES };
    results->algo.data[0] = preference->alignment[0];
    *n_found = 1;
    return CUBLAS_STATUS_SUCCESS;
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

static bool run_product(void *closure)
{
    const struct work *w = closure;
    const uint64_t k_end = cols_of(&w->a_layout, w->product.op_a);

    memset(w->workspace, 0xff, w->workspace_bytes); /* it is the product's alone while it runs */
    for (int64_t batch = 0; batch < w->d_layout.batches; batch++)
        for (uint64_t col = 0; col < w->d_layout.cols; col++)
            for (uint64_t row = 0; row < w->d_layout.rows; row++) {
                const int64_t at = batch * w->d_layout.stride + (int64_t)col * w->d_layout.ld + (int64_t)row;
                float sum = 0;

                for (uint64_t k = 0; k < k_end; k++)
                    sum += element(&w->a_layout, w->product.op_a, w->a, batch, row, k) *
                           element(&w->b_layout, w->product.op_b, w->b, batch, k, col);
                sum *= w->alpha;
                if (w->beta != 0)
                    sum += w->beta * get(w->d_layout.type, w->d, at);
                if (w->product.epilogue == CUBLASLT_EPILOGUE_BIAS)
                    sum += get((cudaDataType_t)w->product.bias_type, w->product.bias, (int64_t)row);
                put(w->d_layout.type, w->d, at, sum);
            }
    return true;
}

static bool is_aligned(const void *pointer, uint64_t alignment)
{
    return (uintptr_t)pointer % alignment == 0;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream)
{
    struct work work = { .product = *product,
                         .a_layout = *a_layout,
                         .b_layout = *b_layout,
                         .d_layout = *d_layout,
                         .a = a,
                         .b = b,
                         .d = d,
                         .workspace = workspace,
                         .workspace_bytes = WORKSPACE_BYTES };

    (void)handle, (void)c_layout;
    if (c != d || !fits(product, a_layout, b_layout, d_layout) || workspace_bytes < WORKSPACE_BYTES ||
        !is_aligned(a, algo->data[0]) || !is_aligned(b, algo->data[0]) || !is_aligned(d, algo->data[0]) ||
        !is_aligned(workspace, 16) || !emulated_is_device(a) || !emulated_is_device(b) ||
        !emulated_is_device(d) || !emulated_is_device(workspace) ||
        (product->epilogue == CUBLASLT_EPILOGUE_BIAS && !emulated_is_device(product->bias)))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&work.alpha, alpha, sizeof work.alpha);
    memcpy(&work.beta, beta, sizeof work.beta);
    return emulated_queue(stream, run_product, &work, sizeof work) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_ALLOC_FAILED;
}
