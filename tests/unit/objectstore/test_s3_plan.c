#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "shard_runtime/objectstore/s3_plan.h"

Test(s3_plan, any_object_that_s3_takes_fits_its_parts)
{
    static const uint64_t sizes[] = { 0,
                                      1,
                                      S3_PART_BYTES,
                                      (uint64_t)S3_PART_BYTES * S3_PARTS_MAX,
                                      (uint64_t)S3_PART_BYTES * S3_PARTS_MAX + 1,
                                      (uint64_t)5 << 40 };

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const uint64_t part = s3_part_bytes(sizes[i]);

        cr_assert(part >= S3_PART_BYTES && part % (1 << 20) == 0, "size %zu", i);
        cr_assert(le(u64, (sizes[i] + part - 1) / part, S3_PARTS_MAX), "size %zu", i);
    }
    cr_assert(eq(u64, s3_part_bytes(sizes[3]), S3_PART_BYTES + (1 << 20)));
    cr_assert(eq(u64, s3_part_bytes(((uint64_t)5 << 40) + 1), 0));
}

Test(s3_plan, pauses_double_up_to_the_longest_and_are_spread)
{
    const struct s3_patience patience = { .tries = 6, .pause_ms = 100, .longest_pause_ms = 350 };
    static const int64_t longest[] = { 0, 0, 100, 200, 350, 350, 350 };

    for (int try = 1; try <= 6; try++) {
        cr_assert(eq(i64, s3_pause_ms(&patience, try, 0), longest[try] / 2));
        cr_assert(le(i64, s3_pause_ms(&patience, try, UINT32_MAX), longest[try]));
        cr_assert(ge(i64, s3_pause_ms(&patience, try, UINT32_MAX), longest[try] - 1));
    }
}

Test(s3_plan, only_what_may_pass_is_tried_again)
{
    static const long passing[] = { 0, 408, 409, 429, 500, 502, 503, 504 };
    static const long lasting[] = { 301, 307, 400, 401, 403, 404, 411, 412, 416, 501 };

    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
        cr_assert(s3_is_passing(passing[i]), "%ld", passing[i]);
    for (size_t i = 0; i < sizeof lasting / sizeof *lasting; i++)
        cr_assert(not(s3_is_passing(lasting[i])), "%ld", lasting[i]);
}
