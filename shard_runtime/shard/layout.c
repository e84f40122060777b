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
