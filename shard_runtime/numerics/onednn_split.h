/*
 * A product of float32 matrices as three of bfloat16, for train.matmul_precision: high. With a = a1 + a2 and b = b1 + b2,
 * a1 and b1 rounded to bfloat16 and a2 and b2 what is left, rounded again,
 *   a b = a2 b1 + a1 b2 + a1 b1, sums in float32;
 * a2 b2 is left out. Each product of two elements is within 3 * 2^-16 of itself: Henry, Tang, Heinecke, "Leveraging the
 * bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations", ARITH 2019. It pays where a product of
 * bfloat16 takes less than a third of the time: with AMX.
 */
#ifndef NUMERICS_ONEDNN_SPLIT_H
#define NUMERICS_ONEDNN_SPLIT_H

#include "shard_runtime/numerics/numerics.h"

struct onednn_split;

/** Is a product of this description computed so? One of two matrices, none of them empty, of float32. */
bool onednn_splits(const struct numerics *numerics, const struct matmul_desc *desc);

/** As matmul_create, of a description that onednn_splits() and that was checked. */
enum fsdp_status onednn_split_create(struct numerics *numerics, const struct matmul_desc *desc,
                                     struct onednn_split **out, size_t *scratch_bytes, struct fsdp_err *err);
void onednn_split_destroy(struct onednn_split *split);
enum fsdp_status onednn_split_run(struct onednn_split *split, struct device_stream *stream, const float *a,
                                  const float *b, const float *bias, float *c, void *scratch,
                                  struct fsdp_err *err);

#endif
