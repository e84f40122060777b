/* A program on libfsdp: saves and checks a small state of two ranks; strace kills it, call by call.
 *
 *   crash_save save DIRECTORY STEP KEEP   writes both ranks' parts, publishes, applies retention; "done STEP"
 *   crash_save check DIRECTORY            recovers as a job's start does and prints the step that is found,
 *   after every
 *                                         value of it was compared; "none" for a fresh run; 1 with words
 *                                         otherwise
 *
 * The save stands between two access(2) calls of names that do not exist, so that its calls are found in a
 * trace.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/checkpoint/load.h"
#include "shard_runtime/checkpoint/save.h"
#include "shard_runtime/shardfile/commit.h"

enum { W = 2, ROWS = 40001, COLUMNS = 8, N_TENSORS = 3 };

static struct checkpoint_tensor tensors[N_TENSORS] = {
    { .name = "w",
      .dtype = FSDP_F32,
      .n_dims = 2,
      .shape = { ROWS, COLUMNS } }, /* 1.2 MB: around the page cache */
    { .name = "optimizer.exp_avg.w", .dtype = FSDP_F32, .n_dims = 2, .shape = { ROWS, COLUMNS } },
    { .name = "b", .dtype = FSDP_F32, .n_dims = 1, .shape = { 1 } },
};

static float value(int64_t step, int tensor, uint64_t at)
{
    return (float)(step * 1000003 + tensor * 1009 + (int64_t)at);
}

static void fail(const char *what, const struct fsdp_err *err)
{
    fprintf(stderr, "%s: %s\n", what, err->message);
    exit(1);
}

/* Point the tensors at fresh memory for `rank` of `size`. */
static void allocate(int size, int rank)
{
    for (int t = 0; t < N_TENSORS; t++) {
        static float nothing;
        struct checkpoint_rows rows;

        tensors[t].rows = &nothing;
        if (checkpoint_tensor_rows(&tensors[t], size, rank, &rows, NULL) != FSDP_OK)
            abort();
        tensors[t].rows = calloc(1, rows.n_rows * rows.row_bytes + 1);
        if (tensors[t].rows == NULL)
            abort();
    }
}

static void release(void)
{
    for (int t = 0; t < N_TENSORS; t++)
        free(tensors[t].rows);
}

/* Set (or compare, returning how many differ) every element of this rank. */
static uint64_t visit(int64_t step, int size, int rank, int set)
{
    uint64_t n_wrong = 0;

    for (int t = 0; t < N_TENSORS; t++) {
        struct checkpoint_rows rows;
        float *at = tensors[t].rows;
        uint64_t n, first;

        checkpoint_tensor_rows(&tensors[t], size, rank, &rows, NULL);
        n = rows.n_rows * rows.row_bytes / sizeof *at;
        first = rows.first * rows.row_bytes / sizeof *at;
        for (uint64_t i = 0; i < n; i++) {
            if (set)
                at[i] = value(step, t, first + i);
            else
                n_wrong += at[i] != value(step, t, first + i);
        }
    }
    return n_wrong;
}

static void save(const char *directory, int64_t step, uint32_t keep)
{
    const struct checkpoint_state state = { .step = step,
                                            .cursor = (uint64_t)step,
                                            .optimizer_step = (uint64_t)step };
    const struct commit_fence fence = { step, 0, W, 0 };
    char temporary[COMMIT_NAME_BYTES], *head = NULL;
    struct checkpoint_part parts[W];
    struct manifest_file files[W];
    struct fsdp_err err = { 0 };
    size_t length = 0;
    int n_files = 0;

    commit_temporary_name(&fence, "secret", 6, temporary);
    if (checkpoint_head(&state, 0, W, tensors, N_TENSORS, &head, &length, &err) != FSDP_OK)
        fail("head", &err);
    for (int rank = 0; rank < W; rank++) {
        allocate(W, rank);
        visit(step, W, rank, 1);
        if (rank == 0)
            access("/crash-save-begins", F_OK);
        if (checkpoint_write_part(&io_posix, directory, temporary, &state, 0, W, rank, tensors, N_TENSORS,
                                  &parts[rank], &err) != FSDP_OK) {
            commit_abort(&io_posix, directory, temporary, NULL);
            fail("write", &err);
        }
        files[n_files++] = (struct manifest_file){ parts[rank].file,
                                                   (uint32_t)rank,
                                                   parts[rank].size_bytes,
                                                   { parts[rank].checksum[0], parts[rank].checksum[1] } };
        release();
    }
    if (commit_publish(&io_posix, directory, temporary, &fence, head, length, files, W, &err) != FSDP_OK)
        fail("publish", &err);
    printf("done %lld\n", (long long)step);
    fflush(stdout);
    commit_retain(&io_posix, directory, keep, step, -1, NULL, NULL);
    access("/crash-save-ends", F_OK);
    free(head);
}

static void check(const char *directory)
{
    struct fsdp_err err = { 0 };
    char path[IO_PATH_BYTES];
    int64_t step = -1;

    if (commit_clean(&io_posix, directory, 0, NULL, &err) != FSDP_OK ||
        verify_newest(&io_posix, directory, VERIFY_CHECKSUMS, &step, NULL, &err) != FSDP_OK)
        fail("find", &err);
    if (step < 0) {
        puts("none");
        return;
    }
    commit_step_path(directory, step, path, &err);
    for (int rank = 0; rank < 3; rank++) {
        struct manifest manifest;

        allocate(3, rank);
        if (checkpoint_load(&io_posix, path, 3, rank, tensors, N_TENSORS, 0, NULL, &manifest, NULL, &err) !=
            FSDP_OK)
            fail("load", &err);
        if (visit(step, 3, rank, 0) != 0 || manifest.cursor != (uint64_t)step) {
            fprintf(stderr, "step %lld holds other values than were saved\n", (long long)step);
            exit(1);
        }
        manifest_free(&manifest);
        release();
    }
    printf("%lld\n", (long long)step);
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "save") == 0)
        save(argv[2], atoll(argv[3]), (uint32_t)atoi(argv[4]));
    else if (argc == 3 && strcmp(argv[1], "check") == 0)
        check(argv[2]);
    else
        return 2;
    return 0;
}
