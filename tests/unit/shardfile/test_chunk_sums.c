#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "shard_runtime/shardfile/chunk_sums.h"
#include "tests/unit/ckpt/made.h"
#include "tests/unit/shardfile/files.h"

enum { FILE_BYTES = 3 * CHUNK_SUMS_BYTES + 5 };

static const char *path;
static unsigned char *bytes;

static void begin(void)
{
    path = strdup(files_path(files_begin(), "x.safetensors"));
    bytes = malloc(FILE_BYTES);
    for (size_t i = 0; i < FILE_BYTES; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 256);
}

static void end(void)
{
    free((void *)(uintptr_t)path);
    free(bytes);
    files_end();
}
TestSuite(chunk_sums, .init = begin, .fini = end, .timeout = 20);

/* A header of `header` bytes and one tensor: takes the bytes in parts of `part`, and writes the sums. */
static void write_sums(size_t part, size_t header)
{
    struct chunk_sums *sums;

    cr_assert(chunk_sums_create(&sums, NULL) == FSDP_OK);
    cr_assert(chunk_sums_add(sums, header, NULL) == FSDP_OK);
    cr_assert(chunk_sums_add(sums, FILE_BYTES - header, NULL) == FSDP_OK);
    for (size_t at = 0, n; at < FILE_BYTES; at += n) {
        uint64_t reach;

        n = part < FILE_BYTES - at ? part : FILE_BYTES - at;
        reach = chunk_sums_reach(sums, at, at + n);
        cr_assert(reach >= at + n && reach < at + n + CHUNK_SUMS_BYTES && reach <= FILE_BYTES);
        chunk_sums_take(sums, at, at + n, bytes + at);
    }
    cr_assert(chunk_sums_write(sums, &io_posix, path, NULL) == FSDP_OK);
    chunk_sums_destroy(sums);
}

Test(chunk_sums, they_are_of_the_chunks_however_the_bytes_came)
{
    static const size_t parts[] = { 1, 1000, CHUNK_SUMS_BYTES - 1, CHUNK_SUMS_BYTES, FILE_BYTES };
    static const uint64_t ends[] = { 10, 10 + CHUNK_SUMS_BYTES, 10 + 2 * CHUNK_SUMS_BYTES, FILE_BYTES };

    for (size_t s = 0; s < sizeof parts / sizeof *parts; s++) {
        struct chunk_sum *list;
        uint64_t at = 0;
        size_t n;

        write_sums(parts[s], 10);

        cr_assert(chunk_sums_read(&io_posix, path, FILE_BYTES, &list, &n, NULL) == FSDP_OK);
        cr_assert(eq(sz, n, 4));
        for (size_t i = 0; i < n; i++) {
            cr_expect(eq(u64, list[i].end, ends[i]), "part %zu", parts[s]);
            cr_expect(eq(u64, list[i].sum, XXH3_64bits(bytes + at, ends[i] - at)), "part %zu", parts[s]);
            at = ends[i];
        }
        free(list);
    }
}

Test(chunk_sums, damaged_cut_short_or_of_another_file_they_are_refused)
{
    char sums[IO_PATH_BYTES];
    struct chunk_sum *list;
    size_t n, size;
    unsigned char *text;

    write_sums(FILE_BYTES, 0);
    cr_assert(chunk_sums_read(&io_posix, path, FILE_BYTES - 1, &list, &n, NULL) == FSDP_ERR_FORMAT);
    cr_assert(chunk_sums_path(sums, path, NULL) == FSDP_OK);
    text = files_read(sums, &size);
    for (size_t at = 0; at < size; at++) {
        made_flip(sums, at);
        cr_assert(chunk_sums_read(&io_posix, path, FILE_BYTES, &list, &n, NULL) == FSDP_ERR_FORMAT,
                  "byte %zu", at);
        made_flip(sums, at);
        files_write(sums, text, at);
        cr_assert(chunk_sums_read(&io_posix, path, FILE_BYTES, &list, &n, NULL) == FSDP_ERR_FORMAT,
                  "%zu bytes", at);
        files_write(sums, text, size);
    }
    unlink(sums);
    cr_assert(chunk_sums_read(&io_posix, path, FILE_BYTES, &list, &n, NULL) == FSDP_ERR_NOT_FOUND);
    free(text);
}
