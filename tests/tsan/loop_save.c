/*
 * Links libfsdp.
 *
 * The coordinator's part of checkpoints under the thread sanitizer. Publishing, retention and the search for
 * the newest run on libuv's threads while its loop takes the next reports.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/save/save.h"
#include "shard_runtime/checkpoint/save.h"
#include "shard_runtime/shardfile/commit.h"

enum { W = 2, GENERATION = 3, STEPS = 6, ROWS = 64 };

static struct {
    int n_published, n_prepared;
    int64_t newest;
} seen;

static void require(bool good, const char *words)
{
    if (good)
        return;
    fprintf(stderr, "%s\n", words);
    exit(1);
}

static void on_published(void *arg, const struct fsdp_link_published *published, const char *directory,
                         uint64_t size_bytes, double seconds, double blocked_s)
{
    (void)arg, (void)directory, (void)size_bytes, (void)seconds, (void)blocked_s;
    require(published->status == FSDP_OK, published->words);
    seen.n_published++;
}

static void on_line(void *arg, const char *words)
{
    (void)arg, (void)words;
}

static void on_prepared(void *arg, int64_t step, const struct fsdp_err *err)
{
    (void)arg;
    require(err == NULL || err->status == FSDP_OK, "no checkpoint was found");
    seen.n_prepared++;
    seen.newest = step;
}

static int head_of(const struct checkpoint_state *state, const struct checkpoint_tensor *tensor)
{
    const int fd = memfd_create("head", MFD_CLOEXEC);
    char *text;
    size_t length;

    require(checkpoint_head(state, GENERATION, W, tensor, 1, &text, &length, NULL) == FSDP_OK, "no head");
    require(fd >= 0 && write(fd, text, length) == (ssize_t)length, "no memfd");
    free(text);
    return fd;
}

/* Each rank writes its part and reports it, as the link would bring it. */
static void report_step(struct save *save, const char *directory, int64_t step)
{
    const struct checkpoint_state state = { .step = step };
    char temporary[COMMIT_NAME_BYTES];
    float rows[ROWS];

    commit_temporary_name(&(struct commit_fence){ step, GENERATION, W, 0 }, "secret", 6, temporary);
    for (int rank = 0; rank < W; rank++) {
        struct checkpoint_tensor tensor = {
            .name = "w", .dtype = FSDP_F32, .n_dims = 1, .shape = { ROWS }, .rows = rows
        };
        struct fsdp_link_saved saved = { .step = step, .keep = 2 };
        struct checkpoint_part part;
        struct fsdp_err err = { 0 };

        for (int i = 0; i < ROWS; i++)
            rows[i] = (float)(step * ROWS + i);
        require(checkpoint_write_part(&io_posix, directory, temporary, &state, GENERATION, W, rank, &tensor,
                                      1, &part, &err) == FSDP_OK,
                err.message);
        saved.size_bytes = part.size_bytes;
        saved.checksum[0] = part.checksum[0];
        saved.checksum[1] = part.checksum[1];
        snprintf(saved.temporary, sizeof saved.temporary, "%s", temporary);
        snprintf(saved.file, sizeof saved.file, "%s", part.file);
        save_take(save, GENERATION, rank, &saved, rank == 0 ? head_of(&state, &tensor) : -1);
    }
}

int main(void)
{
    const struct save_handlers handlers = { .published = on_published, .line = on_line };
    char run_dir[] = "/var/tmp/fsdp-tsan-XXXXXX", directory[64], command[64];
    struct save *save;
    uv_loop_t loop;

    require(mkdtemp(run_dir) != NULL, "no directory");
    snprintf(directory, sizeof directory, "%s/checkpoints", run_dir);
    uv_loop_init(&loop);
    require(save_create(&save, &loop, &io_posix, run_dir, &handlers, NULL) == FSDP_OK, "no save");
    save_begin(save, GENERATION, W, -1);
    for (int64_t step = 1; step <= STEPS; step++) {
        while (seen.n_published < step - 1) /* no rank saves before the verdict on its save before */
            (void)uv_run(&loop, UV_RUN_ONCE);
        report_step(save, directory, step); /* older checkpoints are removed meanwhile */
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    }
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    save_prepare(save, on_prepared, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    require(seen.n_published == STEPS && seen.n_prepared == 1 && seen.newest == STEPS,
            "not all was published");
    save_destroy(save);
    require(uv_loop_close(&loop) == 0, "the loop is not done");
    snprintf(command, sizeof command, "rm -rf %s", run_dir);
    return system(command) == 0 ? 0 : 1;
}
