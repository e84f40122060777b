/*
 * Element types, named as PyTorch's short names in job files and as safetensors' names on disk.
 */
#ifndef FSDP_DTYPE_H
#define FSDP_DTYPE_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/export.h>

FSDP_BEGIN_DECLS

/** How exact products of float32 have to be; torch.set_float32_matmul_precision. */
enum fsdp_matmul_precision {
    FSDP_MATMUL_HIGHEST, /* float32 throughout */
    FSDP_MATMUL_HIGH, /* where it is faster, as exact as three products of bfloat16: 1e-5 of the terms' sizes */
};

/** FSDP_F16: in files of weights that others wrote; collectives move it, and nothing computes with it. */
enum fsdp_dtype { FSDP_F32, FSDP_BF16, FSDP_F64, FSDP_I64, FSDP_I32, FSDP_U8, FSDP_F16, FSDP_DTYPE_COUNT };

/** Bytes per element; 0 of what is no dtype. */
FSDP_API size_t fsdp_dtype_size(enum fsdp_dtype dtype);

/** "float32", "bfloat16", ...; "unknown" of what is no dtype, as below. */
FSDP_API const char *fsdp_dtype_name(enum fsdp_dtype dtype);

/** "F32", "BF16", ... as written in a safetensors header. */
FSDP_API const char *fsdp_dtype_safetensors_name(enum fsdp_dtype dtype);

/** Find a dtype by either name; false leaves *out alone. */
FSDP_API bool fsdp_dtype_parse(const char *name, enum fsdp_dtype *out);

FSDP_END_DECLS

#endif
