/* What FSDP_CUDA_PROFILE tells of a product. */
#ifndef CUDA_PROFILE_PRODUCT_H
#define CUDA_PROFILE_PRODUCT_H

#include <cublasLt.h>

#include "shard_runtime/cuda/profile.h"
#include "shard_runtime/numerics/numerics.h"

/** "product 8192x2304x768 nt bfloat16": m, n and k; a factor that is turned is "t"; the dtypes; ", added". */
void profile_product_name(const struct matmul_desc *desc, char name[PROFILE_NAME_BYTES]);

/** Multiplications and additions of all batches. */
double profile_product_flops(const struct matmul_desc *desc);

/** "BIAS, algorithm 66, workspace 0, unaligned": the number is the library's own, -1 where it does not tell.
 */
void profile_product_way(uint32_t epilogue, const cublasLtMatmulAlgo_t *algo, size_t workspace_bytes,
                         bool aligned, char way[PROFILE_WAY_BYTES]);

#endif
