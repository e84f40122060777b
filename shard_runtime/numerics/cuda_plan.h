/*
 * The row `cuda` for plans that are made on a machine without a GPU. It prepares each operation as the
 * plug-in's row does, and reports the scratch bytes that the operation takes there (cuda_shapes.h). It
 * computes nothing.
 */
#ifndef NUMERICS_CUDA_PLAN_H
#define NUMERICS_CUDA_PLAN_H

#include "shard_runtime/numerics/numerics.h"

extern const struct numerics_ops numerics_cuda_plan_ops;

#endif
