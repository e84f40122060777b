#include <criterion/criterion.h>
#include <stdint.h>

#include "shard_runtime/shard/layout.h"

enum { MAX_D = 40, MAX_W = 9 };

Test(layout, shards_cover_all_rows_in_order_without_overlap)
{
    for (size_t D = 0; D <= MAX_D; D++)
        for (int W = 1; W <= MAX_W; W++) {
            size_t next = 0;

            for (int rank = 0; rank < W; rank++) {
                struct layout_rows rows = layout_shard(D, W, rank);

                cr_assert(rows.first == next, "D %zu W %d rank %d", D, W, rank);
                next = rows.first + rows.n_rows;
            }
            cr_assert(next == D, "D %zu W %d", D, W);
        }
}

Test(layout, shards_are_those_of_the_definition)
{
    for (size_t D = 0; D <= MAX_D; D++)
        for (int W = 1; W <= MAX_W; W++) {
            const size_t C = (D + (size_t)W - 1) / (size_t)W;

            cr_assert(layout_chunk(D, W) == C);
            for (int rank = 0; rank < W; rank++) {
                const size_t r = (size_t)rank;
                const size_t first = r * C < D ? r * C : D, end = (r + 1) * C < D ? (r + 1) * C : D;
                struct layout_rows rows = layout_shard(D, W, rank);

                cr_assert(rows.first == first && rows.n_rows == end - first, "D %zu W %d rank %d", D, W,
                          rank);
                cr_assert(rows.n_rows + layout_padding(D, W, rank) == C, "D %zu W %d rank %d", D, W, rank);
            }
        }
}

Test(layout, five_rows_over_four_ranks)
{
    static const size_t want[4][2] = { { 0, 2 }, { 2, 2 }, { 4, 1 }, { 5, 0 } };

    for (int rank = 0; rank < 4; rank++) {
        struct layout_rows rows = layout_shard(5, 4, rank);

        cr_assert(rows.first == want[rank][0] && rows.n_rows == want[rank][1], "rank %d", rank);
    }
}

Test(layout, padded_rows_are_whole_chunks_and_less_than_a_chunk_a_rank_more)
{
    for (size_t D = 0; D <= MAX_D; D++)
        for (int W = 1; W <= MAX_W; W++) {
            size_t padded = 99;

            cr_assert(layout_padded_rows(D, W, &padded));
            cr_assert(padded == layout_chunk(D, W) * (size_t)W && padded >= D && padded < D + (size_t)W);
        }
}

Test(layout, owner_is_the_rank_whose_shard_holds_the_row)
{
    for (size_t D = 1; D <= MAX_D; D++)
        for (int W = 1; W <= MAX_W; W++)
            for (size_t row = 0; row < D; row++) {
                struct layout_rows rows = layout_shard(D, W, layout_owner(D, W, row));

                cr_assert(row >= rows.first && row - rows.first < rows.n_rows, "D %zu W %d row %zu", D, W,
                          row);
            }
}

Test(layout, reads_move_every_row_from_where_it_was_saved_to_where_it_is_wanted)
{
    struct layout_read reads[MAX_W];

    for (size_t D = 0; D <= MAX_D; D++)
        for (int W_save = 1; W_save <= MAX_W; W_save++)
            for (int W_load = 1; W_load <= MAX_W; W_load++)
                for (int rank = 0; rank < W_load; rank++) {
                    const struct layout_rows own = layout_shard(D, W_load, rank);
                    const size_t n = layout_reads(D, W_save, W_load, rank, reads, MAX_W);
                    size_t row = own.first;

                    cr_assert(n <= (size_t)W_save);
                    for (size_t i = 0; i < n; i++) {
                        struct layout_rows saved = layout_shard(D, W_save, reads[i].file_rank);

                        cr_assert(reads[i].first == row && reads[i].n_rows > 0);
                        cr_assert(reads[i].own_row == row - own.first);
                        cr_assert(reads[i].file_row == row - saved.first);
                        cr_assert(reads[i].file_row + reads[i].n_rows <= saved.n_rows);
                        cr_assert(i == 0 || reads[i].file_rank > reads[i - 1].file_rank);
                        row += reads[i].n_rows;
                    }
                    cr_assert(row == own.first + own.n_rows);
                }
}

Test(layout, reads_beyond_the_capacity_are_counted_and_not_written)
{
    struct layout_read reads[2] = { { .file_rank = -1 }, { .file_rank = -1 } };

    cr_assert(layout_reads(9, 3, 1, 0, reads, 1) == 3);

    cr_assert(reads[0].file_rank == 0 && reads[1].file_rank == -1);
}

Test(layout, sizes_near_the_limit_do_not_wrap)
{
    const size_t D = SIZE_MAX - 1;
    size_t padded = 7, next = 0;

    for (int rank = 0; rank < 7; rank++) {
        struct layout_rows rows = layout_shard(D, 7, rank);

        cr_assert(rows.first == next);
        next = rows.first + rows.n_rows;
    }
    cr_assert(next == D);
    cr_assert(!layout_padded_rows(SIZE_MAX, 2, &padded) && padded == 7);
    cr_assert(layout_padded_rows(SIZE_MAX, 1, &padded) && padded == SIZE_MAX);
}
