/*
 * How the row kernels' work is cut over threads. Products of a thread's range with the others' are needed in
 * three places only: the parameters' gradients of LayerNorm, the loss, and the sum of squares. There the rows
 * are cut into a number of chunks that their count decides, each summed in double by itself, and the chunks
 * are added in order: the threads do not show.
 */
#ifndef NUMERICS_ROWS_CUT_H
#define NUMERICS_ROWS_CUT_H

#include "shard_runtime/numerics/rows.h"

enum {
    GRAIN_ELEMS = 8192, /* what a second thread is woken for: about 2 us of work */
    MAX_CHUNKS = 32,
};

static inline const struct row_kernels *kernels_of(const struct numerics *numerics)
{
    return ((const struct rows *)numerics->state)->kernels;
}

/* Rows that make a grain. */
static inline size_t row_grain(size_t cols)
{
    return cols >= GRAIN_ELEMS ? 1 : GRAIN_ELEMS / (cols > 0 ? cols : 1);
}

/* Chunks of equal size, but the last: how many rows each has. At most MAX_CHUNKS of them. */
static inline size_t chunk_rows(size_t rows)
{
    return rows / MAX_CHUNKS + (rows % MAX_CHUNKS != 0);
}

static inline size_t chunk_count(size_t rows)
{
    return rows == 0 ? 0 : (rows - 1) / chunk_rows(rows) + 1;
}

static inline size_t chunk_end(size_t rows, size_t chunk)
{
    const size_t end = (chunk + 1) * chunk_rows(rows);

    return end < rows ? end : rows;
}

#endif
