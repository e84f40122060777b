/*
 * A graph of cuDNN's operations, read from descriptors, and what it computes: one operation after the other,
 * as each is documented.
 */
#ifndef EMULATED_CUDNN_PROGRAM_H
#define EMULATED_CUDNN_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

#include "shard_runtime/cuda/cudnn_api.h"

enum { PROGRAM_MAX_OPS = 40, PROGRAM_MAX_TENSORS = 64, PROGRAM_DIMS = 4 };

struct tensor {
    int64_t uid, dims[PROGRAM_DIMS], strides[PROGRAM_DIMS];
    int data;
    bool within, by_value;
    bool adds;      /* to what is in memory */
    size_t n_elems; /* that its strides reach */
    float *values;  /* by the same strides */
    void *memory;
};

struct op {
    enum cudnn_object what;
    int mode, axis, x, b, t, y; /* tensors by place; -1: none */
};

struct program {
    struct tensor tensors[PROGRAM_MAX_TENSORS];
    struct op ops[PROGRAM_MAX_OPS];
    int n_tensors, n_ops;
};

/**
 * Compute it on the memory that its tensors name, and free their numbers. A tensor that is a value brings its
 * number; of the others `values` are made here.
 */
void program_compute(struct program *program);

#endif
