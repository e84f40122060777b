/*
 * What the files of rows.h share: how work is cut over threads, and how bfloat16 is widened on its way
 * through a kernel.
 *
 * Three results add up what several threads computed: the gradients of a norm's parameters, the loss, and the
 * sum of squares. There the rows are cut into a number of chunks that depends on their count alone. Each
 * chunk is summed in double on its own, and the chunks are added in order, so the number of threads changes
 * no bit.
 */
#ifndef NUMERICS_ROWS_CUT_H
#define NUMERICS_ROWS_CUT_H

#include "shard_runtime/numerics/rows.h"

enum {
    GRAIN_ELEMS = 8192, /* the least work for which a second thread is woken: about 2 us */
    MAX_CHUNKS = 32,
};

/** Returns the kernels of a row of the numerics table whose state starts with a struct rows. */
static inline const struct row_kernels *kernels_of(const struct numerics *numerics)
{
    return ((const struct rows *)numerics->state)->kernels;
}

/** How many rows of `cols` elements make a grain of work. */
static inline size_t row_grain(size_t cols)
{
    return cols >= GRAIN_ELEMS ? 1 : GRAIN_ELEMS / (cols > 0 ? cols : 1);
}

/** Rows of one chunk; all chunks are equal, except the last one. There are at most MAX_CHUNKS. */
static inline size_t chunk_rows(size_t rows)
{
    return rows / MAX_CHUNKS + (rows % MAX_CHUNKS != 0);
}

static inline size_t chunk_count(size_t rows)
{
    return rows == 0 ? 0 : (rows - 1) / chunk_rows(rows) + 1;
}

/** Returns the number of the row after the last row of `chunk`. */
static inline size_t chunk_end(size_t rows, size_t chunk)
{
    const size_t end = (chunk + 1) * chunk_rows(rows);

    return end < rows ? end : rows;
}

/*
 * A kernel works on float32. It gets a float32 tensor as it is. A bfloat16 tensor is widened a few elements
 * at a time, into a small buffer that stays in the nearest cache. The result is rounded on its way back.
 */

/** Elements first to first + n - 1 of `data` as float32: in place, or widened into `buffer`. */
static inline const float *floats_in(const struct row_kernels *kernels, enum fsdp_dtype dtype,
                                     const void *data, size_t first, size_t n, float *buffer)
{
    if (dtype == FSDP_F32)
        return (const float *)data + first;
    kernels->from_bf16((const uint16_t *)data + first, buffer, n);
    return buffer;
}

/**
 * Returns where a kernel should write the elements of `data` from `first` on: in `data` itself, or in
 * `buffer`.
 */
static inline float *floats_out(enum fsdp_dtype dtype, void *data, size_t first, float *buffer)
{
    return dtype == FSDP_F32 ? (float *)data + first : buffer;
}

/**
 * Brings what a kernel wrote at floats_out() into `data`. If it was written in place, nothing is done;
 * otherwise it is rounded.
 */
static inline void floats_back(const struct row_kernels *kernels, enum fsdp_dtype dtype, void *data,
                               size_t first, size_t n, const float *buffer)
{
    if (dtype != FSDP_F32)
        kernels->to_bf16(buffer, (uint16_t *)data + first, n);
}

#endif
