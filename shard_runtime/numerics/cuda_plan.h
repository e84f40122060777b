/*
 * The row `cuda` for plans, which are made where there is no GPU. It prepares every operation as the
 * plug-in's row does, with the bytes of scratch that the operation takes there (cuda_shapes.h), and computes
 * nothing.
 */
#ifndef NUMERICS_CUDA_PLAN_H
#define NUMERICS_CUDA_PLAN_H

#include "shard_runtime/numerics/numerics.h"

extern const struct numerics_ops numerics_cuda_plan_ops;

#endif
