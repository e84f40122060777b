#include "shard_runtime/cuda/profile_product.h"

#include <stdio.h>

static const char *epilogue_name(uint32_t epilogue)
{
    switch (epilogue) {
    case CUBLASLT_EPILOGUE_BGRADB:
        return "BGRADB";
    case CUBLASLT_EPILOGUE_BGRADA:
        return "BGRADA";
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        return "GELU_AUX_BIAS";
    case CUBLASLT_EPILOGUE_GELU_AUX:
        return "GELU_AUX";
    case CUBLASLT_EPILOGUE_DGELU:
        return "DGELU";
    case CUBLASLT_EPILOGUE_DGELU_BGRAD:
        return "DGELU_BGRAD";
    case CUBLASLT_EPILOGUE_BIAS:
        return "BIAS";
    default:
        return "no epilogue";
    }
}

static char turned(const struct matmul_view *view, size_t cols)
{
    return view->col_stride == 1 || cols == 1 ? 'n' : 't';
}

void profile_product_name(const struct matmul_desc *d, char name[PROFILE_NAME_BYTES])
{
    const size_t n_batches = d->outer * d->inner;
    char batches[32] = "";

    if (n_batches > 1)
        snprintf(batches, sizeof batches, "%zu of ", n_batches);
    snprintf(name, PROFILE_NAME_BYTES, "product %s%zux%zux%zu %c%c %s%s%s%s", batches, d->m, d->n, d->k,
             turned(&d->a, d->k), turned(&d->b, d->n), fsdp_dtype_name(d->dtype),
             d->c_dtype != d->dtype ? " to " : "", d->c_dtype != d->dtype ? fsdp_dtype_name(d->c_dtype) : "",
             d->accumulate ? ", added" : "");
}

double profile_product_flops(const struct matmul_desc *d)
{
    return 2.0 * (double)d->m * (double)d->n * (double)d->k * (double)(d->outer * d->inner);
}

static int number_of(const cublasLtMatmulAlgo_t *algo)
{
    int32_t number = -1;
    size_t written;

    return cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_ID, &number, sizeof number,
                                                &written) == CUBLAS_STATUS_SUCCESS
               ? (int)number
               : -1;
}

void profile_product_way(uint32_t epilogue, const cublasLtMatmulAlgo_t *algo, size_t workspace_bytes,
                         bool aligned, char way[PROFILE_WAY_BYTES])
{
    snprintf(way, PROFILE_WAY_BYTES, "%s, algorithm %d, workspace %zu%s", epilogue_name(epilogue),
             number_of(algo), workspace_bytes, aligned ? "" : ", unaligned");
}
