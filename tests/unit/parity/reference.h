/*
 * A stored case: what tests/parity/fsdp2_reference.py wrote, read back.
 */
#ifndef TEST_PARITY_REFERENCE_H
#define TEST_PARITY_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>

enum { REFERENCE_STEPS = 10, REFERENCE_BATCH = 24, REFERENCE_SEED = 1234, REFERENCE_MAX = 80 };

struct reference_tensor {
    char name[64];
    double *values;
    size_t n_elems;
};

/* How far PyTorch's own bfloat16 training was from the reference, for one tensor or "losses". */
struct reference_error {
    char reduce[12], name[64];
    int W;
    double error;
};

struct reference {
    char kind[16];                                 /* "linears" or "tiny" */
    size_t widths[3];                              /* of linears */
    size_t layers, dim, heads, vocab, seq, hidden; /* of tiny */
    size_t visits;                                 /* times each block is called */
    size_t tied, rms;                              /* 1: it is */
    size_t skips;           /* 1: the second half of each step's samples goes past block 1's feed_forward */
    char trains[16];        /* pattern of the parameters that do */
    char group_pattern[32]; /* "" without an optimizer group */
    double group_lr, group_decay;
    double lr, eps, decay, clip_norm, clip_order;
    double losses[REFERENCE_STEPS], norms[REFERENCE_STEPS];
    int n_steps, n_gradients, n_errors;
    struct reference_tensor gradients[REFERENCE_MAX]; /* raw, of step 1 */
    struct reference_error errors[12 * REFERENCE_MAX];
};

/** Read the case `name`; fails the test when there is no such one. To be released with reference_free(). */
struct reference *reference_read(const char *name);
void reference_free(struct reference *reference);

/** The gradient of this name, or NULL. */
const struct reference_tensor *reference_gradient(const struct reference *reference, const char *name);

/** PyTorch's own error of `name` with this dtype of reduction: the largest of its worlds. */
double reference_error_of(const struct reference *reference, const char *reduce, const char *name);

#endif
