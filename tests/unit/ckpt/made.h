/* Checkpoints that the suites of this folder make: any boxes of float32 tensors, in any files. */
#ifndef TESTS_CKPT_MADE_H
#define TESTS_CKPT_MADE_H

#include <stdint.h>

#include "shard_runtime/shardfile/safetensors.h"

/**
 * A piece of a two-dimensional float32 tensor for rank `rank`: element (r, c) has the value
 * r * columns + c, times `scale`.
 */
struct made_piece {
    uint32_t rank;
    const char *name;
    uint64_t rows, columns; /* of the whole tensor */
    uint64_t offsets[2], sizes[2];
    float scale; /* of the values; 0: 1 */
};

/** Publishes directory/step-<step> of `world` ranks from the pieces, which are in order of rank. */
void made_checkpoint(const char *directory, int64_t step, uint32_t world, const struct made_piece *pieces,
                     size_t n);

/** Flips one bit of byte `at` of a file. */
void made_flip(const char *path, size_t at);

#endif
