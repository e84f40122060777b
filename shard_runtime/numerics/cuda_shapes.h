/*
 * How the CUDA kernels cut their work, and the scratch that follows from it. The kernels (cuda/kernels/)
 * include this header, and so does the plan, which is made where there is no GPU. So a kernel uses just what
 * was planned. Every number follows from the shapes alone. C11 and CUDA C++ both read it; it includes nothing
 * of CUDA.
 */
#ifndef NUMERICS_CUDA_SHAPES_H
#define NUMERICS_CUDA_SHAPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shard_runtime/numerics/numerics.h"

/* Device memory that all products of cuBLASLt share as a workspace. NVIDIA recommends this size for sm_90. */
#define CUDA_WORKSPACE_BYTES ((size_t)32 << 20)

enum {
    CUDA_RESULTS_BYTES = 8192,    /* the most page-locked memory that numbers on their way to the host take */
    CUDA_COLUMN_CHUNK_ROWS = 128, /* a column sum is cut into chunks of at least so many rows */
    CUDA_COLUMN_MAX_CHUNKS = 128, /* and the most chunks */
    CUDA_SPAN_CHUNK_ELEMS = 16384, /* elements that one block of a norm over a list sums */
    /* rows of one token that are added up in float32; such pieces are then added */
    CUDA_EMBEDDING_PIECE_ROWS = 32,
    /* rows on which a block works at the same time in a norm's backward, each with one warp */
    CUDA_NORM_TEAMS = 4,
    CUDA_NORM_FEW_BLOCKS = 256,
    /*
     * four blocks for each multiprocessor of an H100; the sums of so many blocks are small compared with the
     * rows
     */
    CUDA_NORM_MAX_BLOCKS = 512,
    CUDA_NORM_TEAM_ROWS = 16,
    CUDA_NORM_TILE = 32 * 8,   /* columns that a warp takes at once, at most */
    CUDA_NORM_LONG_ROW = 2048, /* columns above which a whole block works on a row */
    /* what a block may have on every device from sm_80 on: sm_86, sm_89, sm_120 */
    CUDA_LEAST_SHARED_BYTES = 99 * 1024,
    /* the most shared memory that a block of a norm's backward asks for */
    CUDA_NORM_SHARED_BYTES = 160 * 1024,
    CUDA_CUDNN_TILE_ROWS = 128,
    CUDA_CUDNN_SPARE_BYTES = 64 << 10, /* for engines of cuDNN that want little */
    CUDA_CUDNN_ALIGN_BYTES = 64,
};

/** Returns how many pieces of `each` are needed for `n`. */
static inline size_t cuda_pieces(size_t n, size_t each)
{
    return n / each + (n % each != 0);
}

/** Returns how many rows one block adds up in the first pass of a column sum. */
static inline size_t cuda_column_chunk_rows(size_t rows)
{
    const size_t even = cuda_pieces(rows, CUDA_COLUMN_MAX_CHUNKS);

    return even > CUDA_COLUMN_CHUNK_ROWS ? even : (size_t)CUDA_COLUMN_CHUNK_ROWS;
}

/** Scratch of a column sum: a row of doubles for each chunk. */
static inline size_t cuda_column_sum_bytes(size_t rows, size_t cols)
{
    return cuda_pieces(rows, cuda_column_chunk_rows(rows)) * cols * sizeof(double);
}

/** Scratch of the embedding's backward: two lists of keys to sort, and two sums for each piece. */
static inline size_t cuda_embedding_backward_bytes(size_t rows, size_t cols)
{
    return 2 * rows * sizeof(uint64_t) +
           2 * cuda_pieces(rows, CUDA_EMBEDDING_PIECE_ROWS) * cols * sizeof(float);
}

/** Scratch of the loss: a double for each row. */
static inline size_t cuda_cross_entropy_bytes(size_t rows)
{
    return rows * sizeof(double);
}

/**
 * Scratch of the norm of one span of a list: a double for each chunk. A list needs the sum over its spans.
 */
static inline size_t cuda_sum_powers_bytes(size_t n_elems)
{
    return cuda_pieces(n_elems, CUDA_SPAN_CHUNK_ELEMS) * sizeof(double);
}

/** How a norm's backward is cut. A run is (2, padded) floats: a team's sums of dweight, then of dbias. */
struct cuda_norm_cut {
    size_t blocks;
    size_t teams;  /* of a block; each owns rows */
    size_t padded; /* cols, rounded up to whole tiles */
};

static inline struct cuda_norm_cut cuda_norm_cut_of(size_t rows, size_t cols)
{
    struct cuda_norm_cut cut;

    cut.padded = cuda_pieces(cols, CUDA_NORM_TILE) * CUDA_NORM_TILE;
    cut.teams = cut.padded > CUDA_NORM_LONG_ROW ? 1 : (size_t)CUDA_NORM_TEAMS;
    cut.blocks = cuda_pieces(rows, cut.teams);
    if (cut.blocks > CUDA_NORM_FEW_BLOCKS) {
        cut.blocks = cuda_pieces(cut.blocks, CUDA_NORM_TEAM_ROWS);
        if (cut.blocks < CUDA_NORM_FEW_BLOCKS)
            cut.blocks = CUDA_NORM_FEW_BLOCKS;
        if (cut.blocks > CUDA_NORM_MAX_BLOCKS)
            cut.blocks = CUDA_NORM_MAX_BLOCKS;
    }
    return cut;
}

/** Scratch of a norm's backward, aligned to 16: a run for each block. */
static inline size_t cuda_norm_backward_bytes(size_t rows, size_t cols)
{
    const struct cuda_norm_cut cut = cuda_norm_cut_of(rows, cols);

    return cut.blocks * 2 * cut.padded * sizeof(float);
}

/**
 * Does the row `cuda` compute the second output desc->beside, as far as the shape decides? For a matrix
 * before a GELU, rows must be multiples of 16 bytes.
 */
static inline bool cuda_takes_beside(const struct matmul_desc *desc)
{
    const bool has_z = desc->beside != MATMUL_SUMS_OF_A && desc->beside != MATMUL_SUMS_OF_B;

    return desc->outer * desc->inner == 1 && desc->m > 0 && desc->n > 0 && desc->k > 0 && !desc->accumulate &&
           (!desc->bias || desc->beside == MATMUL_BEFORE_GELU) && (!has_z || desc->n % 8 == 0);
}

/** Scratch of our attention's backward: for each of n_rows = batch * heads * seq the sum of dout * out. */
static inline size_t cuda_attention_backward_bytes(size_t n_rows)
{
    return n_rows * sizeof(float);
}

/*
 * What cuDNN may use: float32 in addition to its graph's tensors, and its engine's own workspace. The engines
 * of cuDNN 9.19 and 9.26 (tests/support/oracles/cudnn_graphs.c) need at most 256 bytes in forward. In
 * backward they need 256 for sm_90. For sm_80 they need a float32 for each element of dq and of some more
 * rows, because positions are rounded up.
 */

/** Bytes of n_floats floats in cuDNN's scratch, and those that align the next ones. */
static inline size_t cuda_cudnn_span_bytes(size_t n_floats)
{
    return cuda_pieces(n_floats * sizeof(float), CUDA_CUDNN_ALIGN_BYTES) * CUDA_CUDNN_ALIGN_BYTES;
}

/** Scratch of cuDNN's forward for the logarithms of sums, if the caller keeps no place for them. */
static inline size_t cuda_cudnn_lse_bytes(const struct attention_desc *shape)
{
    return cuda_cudnn_span_bytes(shape->batch * shape->heads * shape->seq);
}

/** Scratch of cuDNN's forward: the logarithms of sums, then the workspace. */
static inline size_t cuda_cudnn_forward_bytes(const struct attention_desc *shape)
{
    return cuda_cudnn_lse_bytes(shape) + CUDA_CUDNN_SPARE_BYTES;
}

/** Scratch of cuDNN's backward: delta and dq in float32, and what an engine may want of the same size. */
static inline size_t cuda_cudnn_backward_bytes(const struct attention_desc *shape)
{
    const size_t columns = shape->batch * shape->heads;
    const size_t engine = columns * cuda_pieces(shape->seq, CUDA_CUDNN_TILE_ROWS) * CUDA_CUDNN_TILE_ROWS *
                          (shape->head_dim + 2) * sizeof(float);

    return cuda_cudnn_span_bytes(columns * shape->seq) +
           cuda_cudnn_span_bytes(columns * shape->seq * shape->head_dim) + engine + CUDA_CUDNN_SPARE_BYTES;
}

#endif
