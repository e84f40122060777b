/*
 * Attention by the matrix products of the back end itself. The queries are computed in blocks; each block has
 * its own products and its own parts of the scratch. rows_attention_tiles.c decides these when
 * attention_create is called. rows_attention.c runs them.
 */
#ifndef NUMERICS_ROWS_ATTENTION_H
#define NUMERICS_ROWS_ATTENTION_H

#include "shard_runtime/numerics/attention_desc.h"
#include "shard_runtime/numerics/rows_cut.h"

enum {
    /* With a causal mask, the blocks' numbers of keys are rounded up to one of at most this many values. */
    ATTENTION_KEY_STEPS = 4,
    ATTENTION_MAX_TILES = 2 * ATTENTION_KEY_STEPS + 2
};

/**
 * The products of a block of `rows` queries with `keys` keys. Backward runs the last block first: that block
 * sees all keys, and its products overwrite dk and dv. The products of the other blocks add to dk and dv
 * (`adds`).
 */
struct attention_tile {
    size_t rows, keys;
    bool adds;
    struct matmul *scores, *out, *dprobabilities, *dq, *dk, *dv;
};

/** A prepared attention. rows_attention_tiles.c fills it in; rows_attention.c only reads it. */
struct fused_attention {
    struct numerics *numerics;
    struct fused_attention_desc desc;
    size_t samples, heads, block; /* one product covers so many samples, heads and queries */
    size_t n_blocks;
    struct attention_tile tiles[ATTENTION_MAX_TILES];
    int n_tiles;
    /*
     * D has memory of its own, because it is bfloat16 or because P is needed as well. If dS is bfloat16, it
     * uses the same memory later.
     */
    bool beside;
    bool sums_beside; /* dk and dv are summed in float32 memory and rounded at the end */
    size_t product_scratch, wide_bytes, beside_bytes, sums_bytes;
};

/** Returns the products of block number `block`. */
const struct attention_tile *attention_tile_of(const struct fused_attention *attention, size_t block);

/**
 * The parts of the scratch, in this order:
 *   - P, which is first the scores
 *   - D if it has memory of its own, and later a dS in bfloat16
 *   - backward: dP, which becomes a dS in float32, and the sums of dk and dv
 *   - the scratch of a product
 */
struct attention_areas {
    float *p, *dp, *dk, *dv;
    void *d, *ds, *product;
};

/** Returns the addresses of the parts within `scratch`, for a forward or a backward run. */
struct attention_areas attention_areas_of(const struct fused_attention *attention, bool backward,
                                          char *scratch);

#endif
