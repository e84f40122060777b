/*
 * Boxes of a tensor: what one rank has of it, as a start and a size in each dimension. A box lies in memory, or in a file,
 * row-major by itself; where it meets another one they share runs of bytes. Pure.
 */
#ifndef SHARDFILE_BOX_H
#define SHARDFILE_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shard_runtime/shardfile/manifest.h"

/** Of a tensor without dimensions the first size is 1. */
struct box {
    size_t n_dims; /* at least 1 */
    uint64_t offsets[MANIFEST_MAX_DIMS], sizes[MANIFEST_MAX_DIMS];
};

/** All of a tensor, whose elements can be counted in 64 bits. */
struct box box_whole(const uint64_t *shape, size_t n_dims);
uint64_t box_elems(const struct box *box);
bool box_is_within(const struct box *box, const struct box *outer);
/** False, with *meet without meaning, where they share nothing. */
bool box_meet(const struct box *a, const struct box *b, struct box *meet);
/** All of the tensor in every dimension but the first: rows. */
bool box_is_rows(const struct box *box, const struct box *whole);

/** The runs that `meet`, which is within both, is made of in boxes a and b, in the order of either. */
struct box_runs {
    const struct box *a, *b, *meet;
    size_t n_outer; /* dimensions that are counted through; the others are one run */
    uint64_t run_elems, at[MANIFEST_MAX_DIMS];
    bool over;
};

struct box_run {
    uint64_t in_a, in_b, n_elems; /* elements from the start of each box */
};

struct box_runs box_runs_of(const struct box *meet, const struct box *a, const struct box *b);
bool box_runs_next(struct box_runs *runs, struct box_run *run);

#endif
