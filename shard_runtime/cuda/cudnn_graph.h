/*
 * A graph of tensors and operations for cuDNN, as data. Nothing here calls the library, so a test can compute
 * what the graph says. cudnn_attention.c describes attention as such a graph, and cudnn_plan.c hands it to
 * the library. Pure.
 */
#ifndef CUDA_CUDNN_GRAPH_H
#define CUDA_CUDNN_GRAPH_H

#include <stdbool.h>
#include <stddef.h>

#include "shard_runtime/cuda/cudnn_api.h"

enum { CUDNN_DIMS = 4, CUDNN_MAX_TENSORS = 40, CUDNN_MAX_NODES = 24, CUDNN_ALIGN_BYTES = 16 };

enum cudnn_place {
    CUDNN_WITHIN, /* exists only between operations of the graph, never in memory */
    /*
     * the tensor is in memory at an address that the caller gives for each run, aligned to CUDNN_ALIGN_BYTES
     */
    CUDNN_MEMORY,
    CUDNN_SCRATCH, /* the tensor is in the caller's scratch, at `offset`; the caller does not read it */
    CUDNN_VALUE,   /* one float in host memory */
};

/* Strides are in elements. A tensor's uid in cuDNN is its index plus one. */
struct cudnn_tensor {
    int64_t dims[CUDNN_DIMS], strides[CUDNN_DIMS];
    enum cudnn_data data;
    enum cudnn_place place;
    int slot;      /* for CUDNN_MEMORY: which of the caller's pointers */
    size_t offset; /* for CUDNN_SCRATCH: in bytes */
    float value;
    /*
     * for CUDNN_SCRATCH: the engine adds to what is there, in any order, so it must be zeros before each
     * run
     */
    bool adds;
};

enum cudnn_work { CUDNN_DO_MATMUL, CUDNN_DO_POINTWISE, CUDNN_DO_REDUCTION, CUDNN_DO_RESHAPE };

/* Numbers of tensors; -1: none. All sums and functions are computed in float32. */
struct cudnn_node {
    enum cudnn_work work;
    int mode; /* enum cudnn_pointwise or cudnn_reduction */
    int axis; /* of CUDNN_INDEX */
    enum cudnn_data precision;
    int x, b, t, y; /* a matmul computes y = x b */
};

struct cudnn_graph {
    struct cudnn_tensor tensors[CUDNN_MAX_TENSORS];
    struct cudnn_node nodes[CUDNN_MAX_NODES];
    int n_tensors, n_nodes;
    size_t scratch_bytes; /* bytes of all CUDNN_SCRATCH tensors; a multiple of 64 */
};

#endif
