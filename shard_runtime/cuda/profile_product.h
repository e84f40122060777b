/* How FSDP_CUDA_PROFILE names products. */
#ifndef CUDA_PROFILE_PRODUCT_H
#define CUDA_PROFILE_PRODUCT_H

#include <cublasLt.h>

#include "shard_runtime/cuda/profile.h"
#include "shard_runtime/numerics/numerics.h"

/**
 * Write "product 8192x2304x768 nt bfloat16" to the buffer: m, n and k; "t" for a transposed factor; the
 * dtypes; ", added" if it adds.
 */
void profile_product_name(const struct matmul_desc *desc, char name[PROFILE_NAME_BYTES]);

/** The number of multiplications and additions, over all batches. */
double profile_product_flops(const struct matmul_desc *desc);

/**
 * Writes how a product is computed: "BIAS, algorithm 66, workspace 0, unaligned". The algorithm's number is
 * the library's own; -1: the library does not report it.
 */
void profile_product_way(uint32_t epilogue, const cublasLtMatmulAlgo_t *algo, size_t workspace_bytes,
                         bool aligned, char way[PROFILE_WAY_BYTES]);

#endif
