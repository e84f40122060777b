#include "shard_runtime/objectstore/s3_plan.h"

const struct s3_patience s3_patience_default = {
    .tries = 6, .pause_ms = 250, .longest_pause_ms = 4000, .connect_ms = 5000, .silent_ms = 15000
};

uint64_t s3_part_bytes(uint64_t size_bytes)
{
    const uint64_t unit = 1 << 20;
    const uint64_t units = size_bytes / S3_PARTS_MAX / unit + 1;

    if (size_bytes > (uint64_t)5 << 40) /* the largest object of S3 */
        return 0;
    return units * unit > S3_PART_BYTES ? units * unit : S3_PART_BYTES;
}

int64_t s3_pause_ms(const struct s3_patience *patience, int try, uint32_t random)
{
    int64_t pause_ms = patience->pause_ms;

    if (try < 2)
        return 0;
    for (int i = 2; i < try && pause_ms < patience->longest_pause_ms; i++)
        pause_ms *= 2;
    if (pause_ms > patience->longest_pause_ms)
        pause_ms = patience->longest_pause_ms;
    return pause_ms / 2 + (int64_t)((uint64_t)random * (uint64_t)(pause_ms - pause_ms / 2) >> 32);
}

/* 409: another conditional write to the same key is in progress, and the next try may succeed. */
bool s3_is_passing(long http_status)
{
    return http_status == 0 || http_status == 408 || http_status == 409 || http_status == 429 ||
           http_status == 500 || http_status == 502 || http_status == 503 || http_status == 504;
}
