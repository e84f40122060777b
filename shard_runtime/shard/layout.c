#include "shard_runtime/shard/layout.h"

#include <assert.h>

size_t layout_chunk(size_t D, int W)
{
    assert(W >= 1);
    return D / (size_t)W + (D % (size_t)W != 0);
}

/* Returns min(rank * C, D) without the product, which may overflow. C is 0 only if D is. */
static size_t shard_start(size_t D, size_t C, size_t rank)
{
    return C == 0 || rank > D / C ? D : rank * C;
}

struct layout_rows layout_shard(size_t D, int W, int rank)
{
    const size_t C = layout_chunk(D, W);
    struct layout_rows rows;

    assert(rank >= 0 && rank < W);
    rows.first = shard_start(D, C, (size_t)rank);
    rows.n_rows = shard_start(D, C, (size_t)rank + 1) - rows.first;
    return rows;
}

struct layout_cut layout_cut_of(const size_t *shape, int n_dims, int dim)
{
    struct layout_cut cut = { 1, shape[dim], 1 };

    for (int d = 0; d < dim; d++)
        cut.outer *= shape[d];
    for (int d = dim + 1; d < n_dims; d++)
        cut.inner *= shape[d];
    return cut;
}

struct layout_piece layout_piece_of(const struct layout_cut *cut, int W, int rank, size_t i)
{
    const struct layout_rows own = layout_shard(cut->rows, W, rank);

    return (struct layout_piece){ .shard_at = i * own.n_rows * cut->inner,
                                  .whole_at = (i * cut->rows + own.first) * cut->inner,
                                  .n_elems = own.n_rows * cut->inner };
}

struct layout_walk layout_walk_of(const size_t *whole_shape, int n_dims, int part_dim, int n_parts, int part,
                                  int shard_dim, int W, int rank)
{
    size_t shape[LAYOUT_MAX_DIMS];

    assert(n_dims <= LAYOUT_MAX_DIMS);
    for (int d = 0; d < n_dims; d++)
        shape[d] = whole_shape[d] / (d == part_dim ? (size_t)n_parts : 1);
    return (struct layout_walk){ .cut = layout_cut_of(shape, n_dims, shard_dim),
                                 .split = layout_cut_of(whole_shape, n_dims, part_dim),
                                 .W = W,
                                 .rank = rank,
                                 .n_parts = n_parts,
                                 .part = part };
}

bool layout_walk_next(struct layout_walk *walk, struct layout_piece *run)
{
    const struct layout_piece piece = layout_piece_of(&walk->cut, walk->W, walk->rank, walk->piece);
    /* The whole is rows of n_parts blocks, one of each part; `block` elements of a part are contiguous. */
    const size_t block = walk->split.rows / (size_t)walk->n_parts * walk->split.inner;
    const size_t at = piece.whole_at + walk->done, in_block = at % block, left = piece.n_elems - walk->done;

    if (walk->piece >= walk->cut.outer || piece.n_elems == 0)
        return false;
    run->shard_at = piece.shard_at + walk->done;
    run->whole_at = (at / block * (size_t)walk->n_parts + (size_t)walk->part) * block + in_block;
    run->n_elems = left < block - in_block ? left : block - in_block;
    walk->done += run->n_elems;
    if (walk->done == piece.n_elems) {
        walk->piece++;
        walk->done = 0;
    }
    return true;
}
