/*
 * As much of cuBLASLt as the plug-in calls, for a host without it; tests/emulation/cuda/cublaslt.c stands
 * behind it.
 */
#ifndef EMULATED_CUBLASLT_H
#define EMULATED_CUBLASLT_H

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_NOT_SUPPORTED = 15,
} cublasStatus_t;

typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 } cublasOperation_t;
typedef enum { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 } cublasComputeType_t;

typedef struct emulated_lt *cublasLtHandle_t;
typedef struct emulated_lt_layout *cublasLtMatrixLayout_t;
typedef struct emulated_lt_product *cublasLtMatmulDesc_t;
typedef struct emulated_lt_preference *cublasLtMatmulPreference_t;
typedef struct {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;

typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
} cublasLtMatmulHeuristicResult_t;

typedef enum {
    CUBLASLT_EPILOGUE_DEFAULT = 1,
    CUBLASLT_EPILOGUE_BIAS = 4,
    CUBLASLT_EPILOGUE_GELU_AUX = 160,
    CUBLASLT_EPILOGUE_GELU_AUX_BIAS = 164,
    CUBLASLT_EPILOGUE_DGELU = 192,
    CUBLASLT_EPILOGUE_DGELU_BGRAD = 208,
    CUBLASLT_EPILOGUE_BGRADA = 256,
    CUBLASLT_EPILOGUE_BGRADB = 512,
} cublasLtEpilogue_t;

typedef enum { CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2 } cublasLtReductionScheme_t;

typedef enum {
    CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
    CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6,
} cublasLtMatrixLayoutAttribute_t;

typedef enum {
    CUBLASLT_MATMUL_DESC_TRANSA = 3,
    CUBLASLT_MATMUL_DESC_TRANSB = 4,
    CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
    CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER = 11,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD = 12,
    CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26,
} cublasLtMatmulDescAttributes_t;

typedef enum {
    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
    CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8,
} cublasLtMatmulPreferenceAttributes_t;

typedef enum { CUBLASLT_ALGO_CONFIG_ID = 0 } cublasLtMatmulAlgoConfigAttributes_t;

const char *cublasLtGetStatusString(cublasStatus_t status);
size_t cublasLtGetVersion(void);
CUDA_CHECKED cublasStatus_t cublasLtCreate(cublasLtHandle_t *out);
CUDA_CHECKED cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle);
CUDA_CHECKED cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type,
                                                       uint64_t rows, uint64_t cols, int64_t ld);
CUDA_CHECKED cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout);
CUDA_CHECKED cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                             cublasLtMatrixLayoutAttribute_t which,
                                                             const void *value, size_t size_bytes);
CUDA_CHECKED cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                                     cudaDataType_t scale);
CUDA_CHECKED cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product);
CUDA_CHECKED cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                                           cublasLtMatmulDescAttributes_t which,
                                                           const void *value, size_t size_bytes);
CUDA_CHECKED cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out);
CUDA_CHECKED cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference);
CUDA_CHECKED cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                                 cublasLtMatmulPreferenceAttributes_t which,
                                                                 const void *value, size_t size_bytes);
CUDA_CHECKED cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int wanted,
    cublasLtMatmulHeuristicResult_t *results, int *n_found);
CUDA_CHECKED cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                                 cublasLtMatmulAlgoConfigAttributes_t which,
                                                                 void *value, size_t size_bytes,
                                                                 size_t *written);
CUDA_CHECKED cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                           const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                                           const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                                           const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                                           cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                                           void *workspace, size_t workspace_bytes, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
