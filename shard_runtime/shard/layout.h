/*
 * Which rank owns which rows: sharding along dimension 0 and others, as PyTorch's fully_shard does it
 * (Shard(d)). Pure arithmetic.
 *
 * A parameter of D rows over W ranks is cut into shards of C = ceil(D / W) rows. Rank r owns the rows [min(r
 * * C, D), min((r + 1) * C, D)). The last ranks may own fewer rows than C, or none: D = 5, W = 4 gives 2, 2,
 * 1 and 0 rows. Every rank's buffer holds C rows, its tail padded with zeros. So a gathered parameter is (W *
 * C, ...), with all padding after row D.
 *
 * W is at least 1 and 0 <= rank < W everywhere. Anything else is a bug of the caller, and asserted.
 */
#ifndef SHARD_LAYOUT_H
#define SHARD_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

/**
 * The rows first ... first + n_rows - 1 of the global tensor. `first` is min(r * C, D) also if n_rows is 0.
 */
struct layout_rows {
    size_t first, n_rows;
};

/** Returns C, the rows of one rank's buffer; 0 if D is 0. */
size_t layout_chunk(size_t D, int W);

/** Returns the rows that `rank` owns. */
struct layout_rows layout_shard(size_t D, int W, int rank);

/**
 * A tensor as (outer, rows, inner), row-major, with the dimension that is cut in the middle. A shard is
 * `outer` pieces, each contiguous in the whole tensor. Along dimension 0 (outer 1) it is one piece, the rows
 * of layout_shard(). Along another dimension the ranks divide its rows evenly, and the pieces follow each
 * other in the shard.
 */
struct layout_cut {
    size_t outer, rows, inner;
};

/** One contiguous piece: where it is in the shard and in the whole tensor, in elements. */
struct layout_piece {
    size_t shard_at, whole_at, n_elems;
};

/** Returns the cut of a tensor of `shape` (n_dims) along dimension `dim`. */
struct layout_cut layout_cut_of(const size_t *shape, int n_dims, int dim);
/** Returns piece `i` (0 ... cut->outer - 1) of `rank`'s shard; n_elems is 0 if the rank owns no rows. */
struct layout_piece layout_piece_of(const struct layout_cut *cut, int W, int rank, size_t i);

enum { LAYOUT_MAX_DIMS = 8 };

/**
 * A walk over a shard of a tensor that is itself one of n_parts equal parts of a whole (tensor parallelism).
 * It gives runs of elements that are contiguous both in the shard and in the whole.
 */
struct layout_walk {
    /* cut: how one part is cut over the ranks; split: how the whole tensor is cut into parts */
    struct layout_cut cut, split;
    int W, rank, n_parts, part;
    size_t piece, done; /* where the walk is: the current piece, and elements of it that are done */
};

/**
 * Begins a walk.
 *
 *   whole_shape      (n_dims) of the whole; n_dims is LAYOUT_MAX_DIMS at most
 *   part_dim         the dimension along which the whole is split into n_parts; this tensor is number `part`
 *   shard_dim        the dimension along which the part is sharded over W ranks
 */
struct layout_walk layout_walk_of(const size_t *whole_shape, int n_dims, int part_dim, int n_parts, int part,
                                  int shard_dim, int W, int rank);
/** Writes the next run to *run, with whole_at in the whole tensor. Returns false after the last one. */
bool layout_walk_next(struct layout_walk *walk, struct layout_piece *run);

#endif
