/*
 * Attention by the row's own products: which blocks of queries a shape is computed in, the products of each, and the scratch
 * that they work in. rows_attention_tiles.c decides these when a description is made, rows_attention.c runs them.
 */
#ifndef NUMERICS_ROWS_ATTENTION_H
#define NUMERICS_ROWS_ATTENTION_H

#include "shard_runtime/numerics/attention_desc.h"
#include "shard_runtime/numerics/rows_cut.h"

enum {
    ATTENTION_KEY_STEPS = 4, /* causal: how many numbers of keys there are products for */
    ATTENTION_MAX_TILES = 2 * ATTENTION_KEY_STEPS + 2
};

/* The products of a block of `rows` queries with `keys` keys. The last block is the first to be run backward: it sees
 * all keys and overwrites dk and dv, the others add. */
struct attention_tile {
    size_t rows, keys;
    bool adds;
    struct matmul *scores, *out, *dprobabilities, *dq, *dk, *dv;
};

struct fused_attention {
    struct numerics *numerics;
    struct fused_attention_desc desc;
    size_t samples, heads, block; /* of one call of a product; queries of a block */
    size_t n_blocks;
    struct attention_tile tiles[ATTENTION_MAX_TILES];
    int n_tiles;
    bool beside;      /* D and dS do not lie where P and dP lie: other elements, or both are wanted */
    bool sums_beside; /* dk and dv are summed in float32 and rounded at the end */
    size_t product_scratch, wide_bytes, beside_bytes, sums_bytes;
};

/** The products of this block of queries. */
const struct attention_tile *attention_tile_of(const struct fused_attention *attention, size_t block);

/* In this order: scores or probabilities; D or dS, where they are not in the place of P and dP; dP; the sums of dk and
 * dv; a product's own. */
struct attention_areas {
    float *p, *dp, *dk, *dv;
    void *d, *ds, *product;
};

/** Where they lie in the scratch that a run is given. */
struct attention_areas attention_areas_of(const struct fused_attention *attention, bool backward,
                                          char *scratch);

#endif
