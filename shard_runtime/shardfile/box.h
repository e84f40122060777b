/*
 * Boxes of a tensor. A box is the part of a tensor that one rank or one file has: a start and a size in each
 * dimension. The elements of a box are stored contiguously and row-major, in memory or in a file. The
 * intersection of two boxes consists of runs: elements that follow one another in both boxes. Pure functions.
 */
#ifndef SHARDFILE_BOX_H
#define SHARDFILE_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shard_runtime/shardfile/manifest.h"

/** A part of a tensor. A tensor without dimensions is a box with one dimension of size 1. */
struct box {
    size_t n_dims; /* at least 1 */
    uint64_t offsets[MANIFEST_MAX_DIMS], sizes[MANIFEST_MAX_DIMS];
};

/**
 * Returns the box that is the whole tensor. A caller that counts its elements must know that the count fits
 * 64 bits.
 */
struct box box_whole(const uint64_t *shape, size_t n_dims);
/** Returns the number of elements in `box`: the product of its sizes. */
uint64_t box_elems(const struct box *box);
/** Returns true if every element of `box` is also in `outer`. */
bool box_is_within(const struct box *box, const struct box *outer);
/** Computes the intersection of `a` and `b`. Returns false if it is empty; *meet then has no meaning. */
bool box_meet(const struct box *a, const struct box *b, struct box *meet);
/** Returns true if `box` consists of whole rows: it spans `whole` in every dimension but the first. */
bool box_is_rows(const struct box *box, const struct box *whole);

/**
 * Walks the runs of `meet`, the intersection of boxes `a` and `b`. The runs come in row-major order, which is
 * ascending in both boxes.
 */
struct box_runs {
    const struct box *a, *b, *meet;
    size_t n_outer; /* dimensions that are iterated; the dimensions after them form one run */
    uint64_t run_elems, at[MANIFEST_MAX_DIMS];
    bool over;
};

/* One run of elements that are contiguous in both boxes. */
struct box_run {
    /* position of the run's first element in each box, and its length, in elements */
    uint64_t in_a, in_b, n_elems;
};

/** Prepares to walk `meet`, which must be within both `a` and `b`. The three boxes are borrowed. */
struct box_runs box_runs_of(const struct box *meet, const struct box *a, const struct box *b);
/** Stores the next run in *run. Returns false, without a run, after the last one. */
bool box_runs_next(struct box_runs *runs, struct box_run *run);

#endif
