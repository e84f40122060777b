/* The tables of the plug-in's back ends. */
#ifndef CUDA_OPS_H
#define CUDA_OPS_H

struct device_ops;
struct numerics_ops;
struct device_collectives;

extern const struct device_ops device_cuda_ops;
extern const struct numerics_ops numerics_cuda_ops;
extern const struct device_collectives nccl_collectives;

#endif
