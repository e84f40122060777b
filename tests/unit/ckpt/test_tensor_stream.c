#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/ckpt/tensor_stream.h"
#include "shard_runtime/shardfile/weights.h"
#include "tests/unit/ckpt/made.h"
#include "tests/unit/shardfile/files.h"

static const char *folder;

static void begin(void)
{
    folder = files_begin();
}
TestSuite(tensor_stream, .init = begin, .fini = files_end, .timeout = 60);

/* Reads the only tensor in blocks of `block` bytes: its elements count from 0. */
static void check(const char *directory, size_t n_elems, size_t block)
{
    struct fsdp_err err = { 0 };
    char found[IO_PATH_BYTES];
    struct contents contents;
    struct tensor_stream *stream;
    unsigned char *bytes = malloc(4 * n_elems + 1);

    cr_assert(weights_list(&io_posix, directory, &contents, found, &err) == FSDP_OK, "%s", err.message);
    cr_assert(eq(u64, tensor_stream_size(&contents, 0), 4 * n_elems));
    cr_assert(tensor_stream_create(&stream, &io_posix, &contents, found, &err) == FSDP_OK);
    for (int again = 0; again < 2; again++) {
        cr_assert(tensor_stream_begin(stream, 0, &err) == FSDP_OK);
        for (size_t at = 0; at < 4 * n_elems; at += block)
            cr_assert(tensor_stream_read(stream, bytes + at,
                                         at + block < 4 * n_elems ? block : 4 * n_elems - at,
                                         &err) == FSDP_OK,
                      "%s", err.message);
        for (size_t i = 0; i < n_elems; i++) {
            float value;

            memcpy(&value, bytes + 4 * i, sizeof value);
            cr_assert(eq(flt, value, (float)i), "block %zu, element %zu", block, i);
        }
        cr_assert(tensor_stream_read(stream, bytes, 1, &err) == FSDP_ERR_FORMAT,
                  "nothing comes after the end");
    }
    tensor_stream_destroy(stream);
    contents_free(&contents);
    free(bytes);
}

static void check_blocks(const char *directory, size_t n_elems)
{
    for (size_t block = 1; block <= 4 * n_elems + 1; block += block < 9 ? 1 : 13)
        check(directory, n_elems, block);
}

Test(tensor_stream, rows_of_any_number_of_ranks)
{
    char *directory = strdup(files_path(folder, "rows"));

    for (uint32_t world = 1; world <= 5; world++) {
        const uint64_t rows = 7, each = (rows + world - 1) / world;
        struct made_piece pieces[5];
        size_t n = 0;
        char name[32];

        for (uint32_t rank = 0; rank * each < rows; rank++, n++)
            pieces[n] = (struct made_piece){
                .rank = rank,
                .name = "a",
                .rows = rows,
                .columns = 3,
                .offsets = { rank * each, 0 },
                .sizes = { rows - rank * each < each ? rows - rank * each : each, 3 },
            };
        made_checkpoint(directory, world, world, pieces, n);
        snprintf(name, sizeof name, "step-%08u", world);
        check_blocks(files_path(directory, name), 21);
    }
    free(directory);
}

/* Sharding and tensor parallelism together: four boxes, of which two make up each row. */
Test(tensor_stream, boxes_that_are_no_rows)
{
    static const struct made_piece pieces[] = {
        { .rank = 0, "a", 6, 5, { 0, 0 }, { 4, 2 } },
        { .rank = 1, "a", 6, 5, { 0, 2 }, { 4, 3 } },
        { .rank = 2, "a", 6, 5, { 4, 0 }, { 2, 2 } },
        { .rank = 3, "a", 6, 5, { 4, 2 }, { 2, 3 } },
    };
    char *directory = strdup(files_path(folder, "boxes"));

    made_checkpoint(directory, 1, 4, pieces, 4);
    check_blocks(files_path(directory, "step-00000001"), 30);
    free(directory);
}
