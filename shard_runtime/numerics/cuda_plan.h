/*
 * What the row `cuda` takes of memory, as functions of shapes alone: for plans, which are made where there is no GPU. The row
 * here prepares every operation as the plug-in's does, with its bytes of scratch, and computes nothing.
 *
 * tests/emulation/test_plan.c holds the numbers against the kernels' own.
 */
#ifndef NUMERICS_CUDA_PLAN_H
#define NUMERICS_CUDA_PLAN_H

#include <stddef.h>

#include "shard_runtime/numerics/numerics.h"

/* What a product of cuBLASLt may use beside it: all of them share it. NVIDIA's recommendation for sm_90. */
#define CUDA_PLAN_WORKSPACE_BYTES ((size_t)32 << 20)
/* Numbers on their way to the host, page-locked there; at most. */
enum { CUDA_PLAN_RESULTS_BYTES = 8192 };

/* Scratch of operations whose callers carve none; the row keeps the largest that was needed. */
size_t cuda_plan_column_sum_bytes(size_t rows, size_t cols);
size_t cuda_plan_embedding_backward_bytes(size_t rows, size_t cols);
size_t cuda_plan_cross_entropy_bytes(size_t rows);
size_t cuda_plan_sum_powers_bytes(size_t n_elems);

/* And of those whose callers do, from their arena. */
size_t cuda_plan_norm_backward_bytes(size_t rows, size_t cols);
size_t cuda_plan_attention_backward_bytes(const struct fused_attention_desc *desc);

extern const struct numerics_ops numerics_cuda_plan_ops;

#endif
