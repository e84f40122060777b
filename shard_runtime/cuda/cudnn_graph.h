/*
 * A graph of tensors and operations for cuDNN, as data: nothing here calls the library, and what is computed can be read off it.
 * cudnn_attention.c describes attention so, cudnn_plan.c hands a description to the library.
 */
#ifndef CUDA_CUDNN_GRAPH_H
#define CUDA_CUDNN_GRAPH_H

#include <stdbool.h>
#include <stddef.h>

#include "shard_runtime/cuda/cudnn_api.h"

enum { CUDNN_DIMS = 4, CUDNN_MAX_TENSORS = 40, CUDNN_MAX_NODES = 24, CUDNN_ALIGN_BYTES = 16 };

enum cudnn_place {
    CUDNN_WITHIN,  /* of the graph alone: never in memory */
    CUDNN_MEMORY,  /* where the caller says at each run, aligned to CUDNN_ALIGN_BYTES */
    CUDNN_SCRATCH, /* in memory too, of nobody's interest: the caller's scratch, at `offset` */
    CUDNN_VALUE,   /* one float of the host's */
};

/* Strides in elements. A tensor's uid is its index plus one. */
struct cudnn_tensor {
    int64_t dims[CUDNN_DIMS], strides[CUDNN_DIMS];
    enum cudnn_data data;
    enum cudnn_place place;
    int slot;      /* CUDNN_MEMORY: which of the caller's pointers */
    size_t offset; /* CUDNN_SCRATCH: bytes */
    float value;
    bool
        adds; /* CUDNN_SCRATCH: the engine adds to what is there, in an order of its own; zeros before each run */
};

enum cudnn_work { CUDNN_DO_MATMUL, CUDNN_DO_POINTWISE, CUDNN_DO_REDUCTION, CUDNN_DO_RESHAPE };

/* Indexes of tensors; -1: none. All sums and functions are in float32. */
struct cudnn_node {
    enum cudnn_work work;
    int mode; /* enum cudnn_pointwise or cudnn_reduction */
    int axis; /* of CUDNN_INDEX */
    enum cudnn_data precision;
    int x, b, t, y; /* a matmul: y = x b */
};

struct cudnn_graph {
    struct cudnn_tensor tensors[CUDNN_MAX_TENSORS];
    struct cudnn_node nodes[CUDNN_MAX_NODES];
    int n_tensors, n_nodes;
    size_t scratch_bytes; /* of the CUDNN_SCRATCH tensors; a multiple of 64 */
};

#endif
