#include <criterion/criterion.h>
#include <stdint.h>

#include "shard_runtime/shard/layout.h"

enum { MAX_D = 40, MAX_W = 9 };

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
            }
        }
}

Test(layout, sizes_near_the_limit_do_not_wrap)
{
    const size_t D = SIZE_MAX - 1;
    size_t next = 0;

    for (int rank = 0; rank < 7; rank++) {
        struct layout_rows rows = layout_shard(D, 7, rank);

        cr_assert(rows.first == next);
        next = rows.first + rows.n_rows;
    }
    cr_assert(next == D);
}
