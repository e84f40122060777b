#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/ckpt/export.h"
#include "shard_runtime/shardfile/weights.h"
#include "tests/unit/ckpt/made.h"
#include "tests/unit/shardfile/files.h"

static const char *folder;
static struct contents contents;
static char directory[IO_PATH_BYTES];
static struct export_result result;
static struct fsdp_err err;

static const struct made_piece pieces[] = {
    { .rank = 0, "a", 4, 8, { 0, 0 }, { 4, 3 } },
    { .rank = 0, "b", 2, 2, { 0, 0 }, { 1, 2 } },
    { .rank = 0, "optimizer.exp_avg.a", 4, 8, { 0, 0 }, { 4, 8 } },
    { .rank = 1, "a", 4, 8, { 0, 3 }, { 4, 5 } },
    { .rank = 1, "b", 2, 2, { 1, 0 }, { 1, 2 } },
    { .rank = 1, "c", 1, 5, { 0, 0 }, { 1, 5 } },
};

static void begin(void)
{
    folder = files_begin();
    made_checkpoint(folder, 3, 2, pieces, sizeof pieces / sizeof *pieces);
    cr_assert(weights_list(&io_posix, files_path(folder, "step-00000003"), &contents, directory, &err) ==
              FSDP_OK);
}

static void end(void)
{
    contents_free(&contents);
    files_end();
}
TestSuite(export, .init = begin, .fini = end, .timeout = 60);

static enum fsdp_status export_to(struct fsdp_io *io, const char *name, uint64_t most_bytes)
{
    const struct export_options options = { .prefix = "model.", .config = "{}\n", .most_bytes = most_bytes };

    return export_tensors(io, &contents, directory, files_path(folder, name), &options, &result, &err);
}

/* The elements of a tensor in weights that were exported count from 0. */
static void check_values(const char *path, const char *name, size_t n)
{
    struct contents written;
    char found[IO_PATH_BYTES], file_path[IO_PATH_BYTES];
    const struct contents_piece *piece;
    int64_t t;
    int fd;

    cr_assert(weights_list(&io_posix, path, &written, found, &err) == FSDP_OK, "%s", err.message);
    t = contents_find(&written, name);
    cr_assert(t >= 0, "%s", name);
    cr_assert(eq(sz, written.starts[t + 1] - written.starts[t], 1), "it is whole");
    piece = &written.pieces[written.starts[t]];
    cr_assert(contents_open_file(&io_posix, &written, piece->file, found, file_path, &fd, &err) == FSDP_OK);
    for (size_t i = 0; i < n; i++) {
        float value;

        cr_assert(io_read_all(&io_posix, fd, &value, 4, piece->offset + 4 * i, file_path, &err) == FSDP_OK);
        cr_assert(eq(flt, value, (float)i), "%s, element %zu", name, i);
    }
    io_posix.close(&io_posix, fd);
    contents_free(&written);
}

Test(export, a_directory_has_whole_tensors_and_a_config)
{
    cr_assert(export_to(&io_posix, "out", UINT64_MAX) == FSDP_OK, "%s", err.message);

    cr_expect(eq(sz, result.n_tensors, 3), "the optimizer's state stays behind");
    cr_expect(eq(u64, result.bytes, 4 * (32 + 4 + 5)));
    cr_expect(eq(int, files_count(files_path(folder, "out")), 2));
    cr_expect(files_exist(files_path(folder, "out/config.json")));
    check_values(files_path(folder, "out/model.safetensors"), "model.a", 32);
    check_values(files_path(folder, "out"), "model.b", 4);
    check_values(files_path(folder, "out"), "model.c", 5);
}

Test(export, several_files_have_an_index_that_names_each_tensor)
{
    cr_assert(export_to(&io_posix, "out/", 4 * 36) == FSDP_OK, "%s", err.message);

    cr_expect(eq(sz, result.n_files, 2), "c does not fit the first one");
    cr_expect(files_exist(files_path(folder, "out/model-00001-of-00002.safetensors")));
    check_values(files_path(folder, "out/model.safetensors.index.json"), "model.a", 32);
    check_values(files_path(folder, "out/model.safetensors.index.json"), "model.c", 5);
}

Test(export, a_tensor_larger_than_a_file_has_one_to_itself)
{
    cr_assert(export_to(&io_posix, "out", 1) == FSDP_OK, "%s", err.message);

    cr_expect(eq(sz, result.n_files, 3));
    check_values(files_path(folder, "out/model.safetensors.index.json"), "model.a", 32);
}

Test(export, a_file_has_all_of_it)
{
    cr_assert(export_to(&io_posix, "one.safetensors", 1) == FSDP_OK, "%s", err.message);

    check_values(files_path(folder, "one.safetensors"), "model.a", 32);
    check_values(files_path(folder, "one.safetensors"), "model.c", 5);
}

Test(export, what_is_there_stays)
{
    files_write(files_path(folder, "out"), "x", 1);

    cr_expect(eq(int, export_to(&io_posix, "out", 100), FSDP_ERR_CONFIG));
    cr_expect_not_null(strstr(err.message, "is there already"));
}

/* The real operations, of which one fails. */
static struct failing {
    struct fsdp_io base;
    int calls, fail_at;
} failing;

static bool fails(void)
{
    errno = ENOSPC;
    return ++failing.calls == failing.fail_at;
}

static ssize_t pwrite_or_fail(struct fsdp_io *io, int fd, const void *bytes, size_t size_bytes,
                              uint64_t offset)
{
    return fails() ? -1 : io_posix.pwrite(io, fd, bytes, size_bytes, offset);
}

static int fsync_or_fail(struct fsdp_io *io, int fd)
{
    return fails() ? -1 : io_posix.fsync(io, fd);
}

static int mkdir_or_fail(struct fsdp_io *io, const char *path, mode_t mode)
{
    return fails() ? -1 : io_posix.mkdir(io, path, mode);
}

static int rename_or_fail(struct fsdp_io *io, const char *from, const char *to)
{
    return fails() ? -1 : io_posix.rename(io, from, to);
}

Test(export, a_failure_leaves_nothing)
{
    const int n_before = files_count(folder);
    int n_failed = 0;
    enum fsdp_status status;

    failing.base = io_posix;
    failing.base.pwrite = pwrite_or_fail;
    failing.base.fsync = fsync_or_fail;
    failing.base.mkdir = mkdir_or_fail;
    failing.base.rename = rename_or_fail;
    do {
        failing.calls = 0;
        failing.fail_at = ++n_failed;
        status = export_to(&failing.base, "out", 4 * 36);

        /* After the rename it is all there; only the sync of its name failed. */
        if (status != FSDP_OK && !files_exist(files_path(folder, "out")))
            cr_assert(eq(int, files_count(folder), n_before), "failing call %d", n_failed);
    } while (status != FSDP_OK && !files_exist(files_path(folder, "out")));
    cr_assert(gt(int, n_failed, 8), "writes, syncs, a directory and a rename were made to fail");
}
