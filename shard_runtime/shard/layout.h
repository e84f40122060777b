/*
 * Who owns which rows: dim-0 sharding as PyTorch's fully_shard does it (Shard(0)). Pure arithmetic.
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

#include <stddef.h>

/** Rows first .. first + n_rows - 1 of the global tensor; `first` is min(r * C, D) also where n_rows is 0. */
struct layout_rows {
    size_t first, n_rows;
};

/** C: rows of one rank's buffer. 0 when D is 0. */
size_t layout_chunk(size_t D, int W);

/** The rows that `rank` owns. */
struct layout_rows layout_shard(size_t D, int W, int rank);

#endif
