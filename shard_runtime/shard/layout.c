#include "shard_runtime/shard/layout.h"

#include <assert.h>
#include <stdint.h>

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

size_t layout_padding(size_t D, int W, int rank)
{
    return layout_chunk(D, W) - layout_shard(D, W, rank).n_rows;
}

bool layout_padded_rows(size_t D, int W, size_t *rows)
{
    size_t product;

    if (__builtin_mul_overflow(layout_chunk(D, W), (size_t)W, &product))
        return false;
    *rows = product;
    return true;
}

int layout_owner(size_t D, int W, size_t row)
{
    assert(row < D);
    return (int)(row / layout_chunk(D, W));
}

size_t layout_reads(size_t D, int W_save, int W_load, int rank, struct layout_read *reads, size_t capacity)
{
    const struct layout_rows own = layout_shard(D, W_load, rank);
    const size_t end = own.first + own.n_rows;
    size_t n = 0;

    for (size_t row = own.first; row < end;) {
        const int file_rank = layout_owner(D, W_save, row);
        const struct layout_rows saved = layout_shard(D, W_save, file_rank);
        const size_t saved_end = saved.first + saved.n_rows;
        const size_t stop = saved_end < end ? saved_end : end;

        if (n < capacity)
            reads[n] = (struct layout_read){ .file_rank = file_rank,
                                             .first = row,
                                             .n_rows = stop - row,
                                             .file_row = row - saved.first,
                                             .own_row = row - own.first };
        n++;
        row = stop;
    }
    return n;
}
