#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "shard_runtime/shardfile/fingerprint.h"

#define MIB ((uint64_t)FINGERPRINT_BLOCK)

static FILE *file;

static void open_file(void)
{
    file = tmpfile();
    cr_assert_not_null(file);
}

static void close_file(void)
{
    (void)fclose(file);
}

TestSuite(fingerprint, .init = open_file, .fini = close_file, .timeout = 300);

static void put(uint64_t at, char byte)
{
    cr_assert(eq(long, pwrite(fileno(file), &byte, 1, (off_t)at), 1));
}

static struct fingerprint take(uint64_t size_bytes)
{
    struct fingerprint out;
    struct fsdp_err err = { 0 };

    cr_assert(eq(int, fingerprint_read(&io_posix, fileno(file), size_bytes, "f", &out, &err), FSDP_OK), "%s",
              err.message);
    cr_assert(eq(u64, out.size_bytes, size_bytes));
    return out;
}

Test(fingerprint, a_file_of_up_to_64_mib_is_hashed_whole)
{
    const size_t n = 3 * MIB + 17;
    unsigned char *bytes = malloc(n);
    struct fingerprint got;
    XXH128_hash_t want;

    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 16);
    cr_assert(eq(sz, fwrite(bytes, 1, n, file), n));
    (void)fflush(file);

    got = take(n);

    want = XXH3_128bits(bytes, n);
    cr_assert(got.checksum[0] == want.low64 && got.checksum[1] == want.high64);
    free(bytes);
}

Test(fingerprint, a_larger_file_is_sampled_at_its_ends_and_at_even_distances)
{
    const uint64_t size = 64 * MIB + 63 * 1000, distance = MIB + 1000;
    const uint64_t seen[] = { 0, MIB - 1, distance, 31 * distance + 7, 63 * distance, size - 1 };
    struct fingerprint before;

    /* sparse: nothing is written but what we put */
    cr_assert(eq(int, ftruncate(fileno(file), (off_t)size), 0));
    before = take(size);
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) {
        struct fingerprint after;

        put(seen[i], 1);
        after = take(size);
        cr_expect(not(fingerprint_same(&before, &after)), "byte %llu", (unsigned long long)seen[i]);
        put(seen[i], 0);
    }
    put(MIB, 1); /* in the first gap: the header says that it is not seen */
    {
        const struct fingerprint after = take(size);

        cr_expect(fingerprint_same(&before, &after));
    }
}

Test(fingerprint, two_lengths_of_zeros_differ_where_they_are_sampled_too)
{
    struct fingerprint shorter, longer;

    cr_assert(eq(int, ftruncate(fileno(file), (off_t)(80 * MIB)), 0));
    shorter = take(70 * MIB);
    longer = take(80 * MIB);

    cr_assert(shorter.checksum[0] != longer.checksum[0]);
}

Test(fingerprint, a_file_that_has_shrunk_is_refused)
{
    struct fingerprint out;
    struct fsdp_err err = { 0 };

    put(99, 1);

    cr_assert(eq(int, fingerprint_read(&io_posix, fileno(file), 101, "f", &out, &err), FSDP_ERR_FORMAT));
}
