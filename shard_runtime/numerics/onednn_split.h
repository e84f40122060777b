/*
 * Computes a product of float32 matrices as three products of bfloat16, for train.matmul_precision: high. The
 * operands are split into a = a1 + a2 and b = b1 + b2. a1 and b1 are a and b rounded to bfloat16; a2 and b2
 * are the remainders, rounded again. Then
 *   a b = a2 b1 + a1 b2 + a1 b1,
 * with sums in float32. a2 b2 is left out. The product of two elements has a relative error of at most 3 *
 * 2^-16. Source: Henry, Tang, Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For
 * Higher-Precision Computations", ARITH 2019.
 *
 * This is faster if a product of bfloat16 takes less than a third of the time, as with AMX.
 */
#ifndef NUMERICS_ONEDNN_SPLIT_H
#define NUMERICS_ONEDNN_SPLIT_H

#include "shard_runtime/numerics/numerics.h"

struct onednn_split;

/**
 * Returns true if the product `desc` is to be computed as three. `desc` must be a single product of two
 * float32 matrices, and each of its sizes must be at least 2.
 */
bool onednn_splits(const struct numerics *numerics, const struct matmul_desc *desc);

/**
 * Does the same as matmul_create, for a description that was checked and for which onednn_splits() is true.
 */
enum fsdp_status onednn_split_create(struct numerics *numerics, const struct matmul_desc *desc,
                                     struct onednn_split **out, size_t *scratch_bytes, struct fsdp_err *err);
/** Frees the product. NULL is a no-op. */
void onednn_split_destroy(struct onednn_split *split);
/**
 * Does the same as matmul_run. `scratch` holds the two parts of both operands and, after them, the scratch of
 * the three products.
 */
enum fsdp_status onednn_split_run(struct onednn_split *split, struct device_stream *stream, const float *a,
                                  const float *b, const float *bias, float *c, void *scratch,
                                  struct fsdp_err *err);

#endif
