/*
 * The kernels whose traffic is counted: each case runs one launcher of kernels.h once, at a shape of
 * training, on the emulated device.
 */
#ifndef EMULATION_TRAFFIC_CASES_H
#define EMULATION_TRAFFIC_CASES_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/dtype.h>

struct traffic_case {
    const char *name;
    size_t rows, cols;     /* lists: tensors, elements of each; attention: positions, head_dim */
    enum fsdp_dtype dtype; /* what the kernel reads most of */
    unsigned variant;      /* the case's own: see its function */
    double most;           /* times the least that it may move; 0: only shown */
    unsigned each;         /* bytes that a warp's load or store moves at least, on average; 0: only shown */
    uint64_t (*run)(const struct traffic_case *c); /* returns the least bytes that it could move */
};

/** All cases; *n is their number. */
const struct traffic_case *traffic_cases(size_t *n);

/**
 * Device memory of the running case: zeros, aligned to 256, counted from its kernel's first access on. It is
 * the table's, which frees all of it after the case.
 */
void *traffic_memory(size_t size_bytes);
/** The same, filled with what `fill` returns for each element. */
int32_t *traffic_tokens(size_t n, int32_t (*fill)(size_t i));

#endif
