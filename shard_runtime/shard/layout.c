#include "shard_runtime/shard/layout.h"

#include <assert.h>

size_t layout_chunk(size_t D, int W)
{
    assert(W >= 1);
    return D / (size_t)W + (D % (size_t)W != 0);
}

/* min(rank * C, D) without the product, which may not fit: C is 0 only when D is. */
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

size_t layout_chunk_elems(const struct layout_cut *cut, int W)
{
    return cut->outer * layout_chunk(cut->rows, W) * cut->inner;
}

struct layout_piece layout_piece_of(const struct layout_cut *cut, int W, int rank, size_t i)
{
    const struct layout_rows own = layout_shard(cut->rows, W, rank);

    return (struct layout_piece){ .shard_at = i * own.n_rows * cut->inner,
                                  .whole_at = (i * cut->rows + own.first) * cut->inner,
                                  .n_elems = own.n_rows * cut->inner };
}
