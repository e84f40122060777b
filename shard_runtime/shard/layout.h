/*
 * Who owns what: sharding along dimension 0, and others, as PyTorch's fully_shard does it (Shard(d)). Pure arithmetic.
 *
 * A parameter of D rows over W ranks is cut into shards of C = ceil(D / W) rows: rank r owns the rows
 * [min(r * C, D), min((r + 1) * C, D)). Trailing ranks may own fewer rows than C, or none (D = 5, W = 4 gives
 * 2, 2, 1, 0). Every rank's buffer holds C rows, the tail padded with zeros, so that a gathered parameter is
 * (W * C, ...) with all padding behind row D.
 *
 * W is at least 1 and 0 <= rank < W everywhere: anything else is a bug of the caller and asserted.
 */
#ifndef SHARD_LAYOUT_H
#define SHARD_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

/** Rows first .. first + n_rows - 1 of the global tensor; `first` is min(r * C, D) also where n_rows is 0. */
struct layout_rows {
    size_t first, n_rows;
};

/** C: rows of one rank's buffer. 0 when D is 0. */
size_t layout_chunk(size_t D, int W);

/** The rows that `rank` owns. */
struct layout_rows layout_shard(size_t D, int W, int rank);

/**
 * A shard along any dimension as contiguous pieces of the whole tensor, row-major: `whole` = (outer, rows, inner) with
 * the cut dimension in the middle. Along dimension 0 (outer 1) a shard is one piece, rows as layout_shard() says. Along
 * others the ranks divide the rows evenly, and each of the `outer` pieces stands behind the one before it in the shard.
 */
struct layout_cut {
    size_t outer, rows, inner;
};

struct layout_piece {
    size_t shard_at, whole_at, n_elems; /* in elements */
};

struct layout_cut layout_cut_of(const size_t *shape, int n_dims, int dim);
/** Elements of one rank's buffer, padding included. */
size_t layout_chunk_elems(const struct layout_cut *cut, int W);
/** Piece number `i` of cut->outer; n_elems 0 where the rank owns no rows. */
struct layout_piece layout_piece_of(const struct layout_cut *cut, int W, int rank, size_t i);

enum { LAYOUT_MAX_DIMS = 8 };

/**
 * The same where the tensor is itself one of n_parts equal parts, along `part_dim`, of a whole of shape `whole_shape`: a shard
 * as runs that lie together both in it and in the whole.
 */
struct layout_walk {
    struct layout_cut cut, split; /* of the part over ranks; of the whole into parts */
    int W, rank, n_parts, part;
    size_t piece, done; /* runs given so far: whole pieces, elements of the current one */
};

struct layout_walk layout_walk_of(const size_t *whole_shape, int n_dims, int part_dim, int n_parts, int part,
                                  int shard_dim, int W, int rank);
/** The next run, with whole_at its place in the whole; false behind the last. */
bool layout_walk_next(struct layout_walk *walk, struct layout_piece *run);

#endif
