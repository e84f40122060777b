/* Element types. Job files call them by PyTorch's short names, and files on disk by safetensors' names. */
#ifndef FSDP_DTYPE_H
#define FSDP_DTYPE_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/export.h>

FSDP_BEGIN_DECLS

/** The precision of float32 matrix products, as in torch.set_float32_matmul_precision. */
enum fsdp_matmul_precision {
    FSDP_MATMUL_HIGHEST, /* float32 throughout */
    /*
     * may use products that are only as exact as three bfloat16 products, if these are faster: errors of 1e-5
     * of the terms' sizes
     */
    FSDP_MATMUL_HIGH,
};

/**
 * The dtypes of elements. FSDP_F16 occurs in weight files that other programs wrote: collectives move it, but
 * no operation computes with it.
 */
enum fsdp_dtype { FSDP_F32, FSDP_BF16, FSDP_F64, FSDP_I64, FSDP_I32, FSDP_U8, FSDP_F16, FSDP_DTYPE_COUNT };

/** Bytes per element; 0 if `dtype` is not one of the enum. */
FSDP_API size_t fsdp_dtype_size(enum fsdp_dtype dtype);

/** "float32", "bfloat16", ...; "unknown" if `dtype` is not one of the enum. */
FSDP_API const char *fsdp_dtype_name(enum fsdp_dtype dtype);

/** "F32", "BF16", ...: the name in a safetensors header; "unknown" if `dtype` is not one of the enum. */
FSDP_API const char *fsdp_dtype_safetensors_name(enum fsdp_dtype dtype);

/**
 * Finds a dtype by either of its names. Returns false, and leaves *out unchanged, if no dtype has that name.
 */
FSDP_API bool fsdp_dtype_parse(const char *name, enum fsdp_dtype *out);

FSDP_END_DECLS

#endif
