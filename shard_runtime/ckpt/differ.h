/*
 * Compares the tensors of two checkpoints, or of weights of other programs, by name. Their world sizes may
 * differ. Both are read in blocks, on several threads, so no tensor needs to fit the memory.
 */
#ifndef CKPT_DIFFER_H
#define CKPT_DIFFER_H

#include <stddef.h>
#include <stdint.h>

#include "shard_runtime/shardfile/contents.h"

enum differ_kind {
    DIFFER_EQUAL,  /* the same dtype, shape and bits */
    DIFFER_VALUES, /* some elements differ */
    DIFFER_DTYPE,  /* the same values in another dtype */
    DIFFER_SHAPE,
    DIFFER_ONLY_A,
    DIFFER_ONLY_B,
    DIFFER_UNREAD, /* both sides have the tensor, in a dtype whose values this library does not read */
};

/**
 * How a tensor differs. The two pointers are into the contents of the two sides; NULL: that side lacks it.
 */
struct difference {
    const struct manifest_tensor *a, *b;
    enum differ_kind kind;
    /*
     * For equal shapes: how many elements differ, and the number of the first one in row-major order. Equal
     * dtypes are compared by bits, others by value.
     */
    uint64_t n_elems, n_differ, first;
    /*
     * The largest |a - b|, and the largest |a - b| / max(|a|, |b|). Both are infinite if a value is finite on
     * one side only.
     */
    double max_abs, max_rel;
};

/** Returns the word for a kind: "equal", "values", "dtype", "shape", "only in A", ... */
const char *differ_word(enum differ_kind kind);

/** A checkpoint or weights, as weights_list() gave them. */
struct differ_side {
    const struct contents *contents;
    const char *directory;
};

/**
 * Compares all tensors of both sides. The caller frees *list, which is sorted by name. Fails if a tensor
 * cannot be read, with the error of reading it.
 */
enum fsdp_status differ_all(struct fsdp_io *io, const struct differ_side *a, const struct differ_side *b,
                            struct difference **list, size_t *n, struct fsdp_err *err);

#endif
