/* Collecting reports and giving verdicts; that a published checkpoint is whole is shardfile's and the system tests'. */
#include "agent/record/save.h"

#include <criterion/criterion.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/directory_lock.h"

enum { W = 3, GENERATION = 4 };

static uv_loop_t loop;
static struct save *save;
static char run_dir[64], directory[128], temporary[COMMIT_NAME_BYTES];
static struct {
    int n_published, n_prepared, n_lines;
    struct fsdp_link_published published;
    char directory[128];
    int64_t step;
    struct fsdp_err err;
} seen;

static void on_published(void *arg, const struct fsdp_link_published *published, const char *named,
                         uint64_t size_bytes, double seconds)
{
    (void)arg;
    snprintf(seen.directory, sizeof seen.directory, "%s", named);
    (void)size_bytes;
    (void)seconds;
    seen.n_published++;
    seen.published = *published;
}

static void on_line(void *arg, const char *words)
{
    (void)arg;
    (void)words;
    seen.n_lines++;
}

static void on_prepared(void *arg, int64_t step, const struct fsdp_err *err)
{
    (void)arg;
    seen.n_prepared++;
    seen.step = step;
    seen.err = *err;
}

static void begin(void)
{
    const struct save_handlers handlers = { .published = on_published, .line = on_line };

    strcpy(run_dir, "/tmp/fsdp-save-XXXXXX");
    cr_assert_not_null(mkdtemp(run_dir));
    snprintf(directory, sizeof directory, "%s/checkpoints", run_dir);
    uv_loop_init(&loop);
    cr_assert_eq(save_create(&save, &loop, &io_posix, run_dir, &handlers, NULL), FSDP_OK);
    save_begin(save, GENERATION, W, -1);
    commit_temporary_name(50, GENERATION, "secret", 6, temporary);
    cr_assert_eq(commit_begin(&io_posix, directory, temporary, NULL), FSDP_OK);
}

static void end(void)
{
    char command[128];

    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect(save_idle(save));
    save_destroy(save);
    cr_expect_eq(uv_loop_close(&loop), 0);
    snprintf(command, sizeof command, "rm -rf %s", run_dir);
    cr_expect_eq(system(command), 0);
}

TestSuite(save, .init = begin, .fini = end, .timeout = 300);

static struct fsdp_link_saved report_of(int rank)
{
    struct fsdp_link_saved saved = { .step = 50, .size_bytes = 100 };

    snprintf(saved.temporary, sizeof saved.temporary, "%s", temporary);
    snprintf(saved.file, sizeof saved.file, "shard-%05d-model-00001-of-00001.safetensors", rank + 1);
    return saved;
}

static int head(void)
{
    int fd = memfd_create("head", MFD_CLOEXEC);

    cr_assert_eq(write(fd, "{}", 2), 2);
    return fd;
}

static void report(int rank)
{
    struct fsdp_link_saved saved = report_of(rank);

    save_take(save, GENERATION, rank, &saved, rank == 0 ? head() : -1);
}

static bool temporary_is_there(void)
{
    char path[256];
    struct stat info;

    snprintf(path, sizeof path, "%s/%s", directory, temporary);
    return stat(path, &info) == 0;
}

static bool published_is_there(void)
{
    char path[256];
    struct stat info;

    snprintf(path, sizeof path, "%s/step-00000050", directory);
    return stat(path, &info) == 0;
}

Test(save, no_verdict_before_every_rank_has_reported)
{
    report(0);
    report(1);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect_eq(seen.n_published, 0);
}

Test(save, parts_that_are_not_there_are_refused_and_removed)
{
    for (int rank = W - 1; rank >= 0; rank--)
        report(rank);
    cr_expect_not(save_idle(save));
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect_eq(seen.n_published, 1);
    cr_expect(seen.published.step == 50 && seen.published.status != FSDP_OK &&
              seen.published.words[0] != '\0');
    cr_expect(!published_is_there() && !temporary_is_there());
}

Test(save, one_ranks_failure_is_told_at_once_and_the_rest_removed_when_all_are_done)
{
    struct fsdp_link_saved saved = report_of(1);

    saved.status = FSDP_ERR_IO;
    strcpy(saved.words, "no space");
    report(0);
    save_take(save, GENERATION, 1, &saved, -1);
    cr_expect_eq(seen.n_published, 1);
    cr_expect_eq(seen.published.status, FSDP_ERR_IO);
    cr_expect_str_eq(seen.published.words, "rank 1: no space");
    cr_expect(temporary_is_there(), "rank 2 may still write there");
    report(2);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect_eq(seen.n_published, 1, "no second verdict");
    cr_expect_not(temporary_is_there());
}

Test(save, reports_of_another_generation_do_not_count)
{
    struct fsdp_link_saved saved = report_of(2);

    report(0);
    report(1);
    save_take(save, GENERATION - 1, 2, &saved, -1);
    save_take(save, GENERATION + 1, 2, &saved, -1);
    save_take(save, GENERATION, W, &saved, -1);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect_eq(seen.n_published, 0);
}

Test(save, what_was_collected_is_forgotten_with_its_generation)
{
    report(0);
    report(1);
    save_begin(save, GENERATION + 1, W, -1);
    struct fsdp_link_saved saved = report_of(2);
    save_take(save, GENERATION + 1, 2, &saved, -1);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect_eq(seen.n_published, 0);
}

Test(save, ranks_that_do_not_agree_are_refused)
{
    struct fsdp_link_saved saved = report_of(1);

    strcpy(saved.temporary, ".step-00000050.g4.00000000");
    report(0);
    save_take(save, GENERATION, 1, &saved, -1);
    cr_expect_eq(seen.n_published, 1);
    cr_expect_eq(seen.published.status, FSDP_ERR_MISMATCH);
}

Test(save, a_report_that_comes_twice_is_refused)
{
    report(1);
    report(1);
    cr_expect_eq(seen.n_published, 1);
    cr_expect_eq(seen.published.status, FSDP_ERR_MISMATCH);
}

Test(save, the_head_comes_from_rank_0_alone)
{
    struct fsdp_link_saved saved = report_of(0);

    save_take(save, GENERATION, 0, &saved, -1);
    cr_expect_eq(seen.n_published, 1);
    cr_expect_eq(seen.published.status, FSDP_ERR_MISMATCH);
}

Test(save, a_run_without_a_directory_saves_nothing_and_finds_nothing)
{
    const struct save_handlers handlers = { .published = on_published, .line = on_line };
    struct save *homeless;
    struct fsdp_link_saved saved = report_of(0);

    cr_assert_eq(save_create(&homeless, &loop, &io_posix, NULL, &handlers, NULL), FSDP_OK);
    save_begin(homeless, 0, 1, -1);
    save_take(homeless, 0, 0, &saved, head());
    cr_expect_eq(seen.published.status, FSDP_ERR_CONFIG);
    save_prepare(homeless, on_prepared, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect(seen.n_prepared == 1 && seen.step == -1 && seen.err.status == FSDP_OK);
    save_destroy(homeless);
}

Test(save, a_rank_that_names_no_directory_where_the_run_has_none_ends_that_save_alone)
{
    const struct save_handlers handlers = { .published = on_published, .line = on_line };
    struct save *homeless;

    cr_assert_eq(save_create(&homeless, &loop, &io_posix, NULL, &handlers, NULL), FSDP_OK);
    save_begin(homeless, 0, 2, -1);
    for (int save_number = 0; save_number < 3; save_number++) { /* the last time each rank names it */
        for (int rank = 0; rank < 2; rank++) {
            struct fsdp_link_saved saved = report_of(rank);

            saved.step = 50 + save_number;
            if (rank != save_number)
                snprintf(saved.directory, sizeof saved.directory, "%s/mine", run_dir);
            save_take(homeless, 0, rank, &saved, rank == 0 ? head() : -1);
        }
        uv_run(&loop, UV_RUN_DEFAULT);
        cr_expect_eq(seen.n_published, save_number + 1, "one verdict each");
        cr_expect_eq(seen.published.step, 50 + save_number);
        cr_expect(seen.published.status != FSDP_OK && seen.published.status != FSDP_ERR_BUSY, "%s",
                  seen.published.words);
    }
    save_destroy(homeless);
}

Test(save, a_report_that_finds_no_memory_ends_that_save_alone)
{
    for (int victim = 0; victim < W; victim++) {
        for (int rank = 0; rank < W; rank++) {
            struct fsdp_link_saved saved = report_of(rank);

            saved.step = 50 + victim;
            if (rank == victim)
                snprintf(saved.directory, sizeof saved.directory, "%s/mine%d", run_dir, victim);
            alloc_fail_nth(rank == victim ? 1 : 0);
            save_take(save, GENERATION, rank, &saved, rank == 0 ? head() : -1);
        }
        alloc_fail_nth(0);
        uv_run(&loop, UV_RUN_DEFAULT);
        cr_expect_eq(seen.n_published, victim + 1, "one verdict each");
        cr_expect_eq(seen.published.step, 50 + victim);
        cr_expect_eq(seen.published.status, FSDP_ERR_NOMEM, "%s", seen.published.words);
    }
}

/* Here the collection itself finds none, when the first `n_lost` reports of a save come. */
Test(save, a_save_whose_first_reports_find_no_memory_fails_once_and_the_next_ones_do_not)
{
    for (int n_lost = 1; n_lost <= W; n_lost++) {
        cr_assert_eq(commit_begin(&io_posix, directory, temporary, NULL), FSDP_OK);
        for (int rank = W - 1; rank >= 0; rank--) {
            struct fsdp_link_saved saved = report_of(rank);

            saved.step = 50 + n_lost;
            alloc_fail_nth(rank >= W - n_lost ? 1 : 0);
            save_take(save, GENERATION, rank, &saved, rank == 0 ? head() : -1);
        }
        alloc_fail_nth(0);
        uv_run(&loop, UV_RUN_DEFAULT);
        cr_expect_eq(seen.n_published, n_lost, "one verdict each");
        cr_expect_eq(seen.published.step, 50 + n_lost);
        cr_expect_eq(seen.published.status, FSDP_ERR_NOMEM, "%s", seen.published.words);
        cr_expect_eq(temporary_is_there(), n_lost == W, "%d lost: what was written is removed", n_lost);
    }
    for (int rank = 0; rank < W; rank++)
        report(rank);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect(seen.n_published == W + 1 && seen.published.step == 50);
    cr_expect(seen.published.status != FSDP_ERR_BUSY && seen.published.status != FSDP_ERR_NOMEM, "%s",
              seen.published.words);
}

Test(save, preparing_removes_what_an_earlier_save_left_and_finds_nothing)
{
    save_prepare(save, on_prepared, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect(seen.n_prepared == 1 && seen.step == -1 && seen.err.status == FSDP_OK);
    cr_expect_not(temporary_is_there());
}

Test(save, preparing_waits_for_a_publication_that_is_under_way)
{
    for (int rank = 0; rank < W; rank++)
        report(rank);
    save_abandon(save); /* the generation is over; the thread is not */
    save_prepare(save, on_prepared, NULL);
    cr_expect_eq(seen.n_prepared, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect_eq(seen.n_published, 1);
    cr_expect_eq(seen.n_prepared, 1);
}

Test(save, checkpoints_of_which_none_verifies_are_no_fresh_start)
{
    char path[256];

    snprintf(path, sizeof path, "%s/step-00000010", directory);
    cr_assert_eq(mkdir(path, 0777), 0);
    save_prepare(save, on_prepared, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect_eq(seen.n_prepared, 1);
    cr_expect(seen.err.status != FSDP_OK && seen.step == -1);
}

/* A process without an agent that saves to the same directory, here in the same process. */
Test(save, a_directory_that_another_process_saves_to_is_left_alone)
{
    struct directory_lock *others = NULL;
    bool held;

    cr_assert(directory_lock_take(&others, &io_posix, directory, &held, NULL) == FSDP_OK && held);
    for (int rank = 0; rank < W; rank++)
        report(rank);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect(seen.n_published == 1 && seen.published.status == FSDP_ERR_BUSY);
    cr_expect(strstr(seen.published.words, "another process (pid ") != NULL, "%s", seen.published.words);
    cr_expect(!published_is_there() && !temporary_is_there());

    cr_assert_eq(commit_begin(&io_posix, directory, temporary, NULL), FSDP_OK);
    save_prepare(save, on_prepared, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect(seen.err.status == FSDP_ERR_BUSY, "%s", seen.err.message);
    cr_expect(temporary_is_there(), "it may be the other's");
    directory_lock_release(&others, &io_posix);
    save_prepare(save, on_prepared, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect(seen.err.status == FSDP_OK && !temporary_is_there());
}

static sem_t opened;

static int hanging_open(struct fsdp_io *io, const char *path, int flags, mode_t mode)
{
    if (strstr(path, "manifest.json") != NULL)
        while (sem_wait(&opened) != 0)
            continue;
    return io_posix.open(io, path, flags, mode);
}

/* Until the disk answers after all; then nothing more is said, and the memory is free (LeakSanitizer). */
Test(save, a_search_that_the_disk_does_not_answer_fails_once_and_names_the_directory)
{
    const struct save_handlers handlers = { .published = on_published, .line = on_line, .patience_ms = 20 };
    static struct fsdp_io io; /* the suite's end destroys `save`, which still uses it */
    char path[256];

    save_destroy(save);
    io = io_posix;
    io.open = hanging_open;
    sem_init(&opened, 0, 0);
    cr_assert_eq(save_create(&save, &loop, &io, run_dir, &handlers, NULL), FSDP_OK);
    snprintf(path, sizeof path, "%s/step-00000010", directory);
    cr_assert_eq(mkdir(path, 0777), 0);
    save_prepare(save, on_prepared, NULL);
    while (seen.n_prepared == 0)
        uv_run(&loop, UV_RUN_ONCE);
    cr_expect(seen.err.status == FSDP_ERR_IO && seen.step == -1);
    cr_expect(strstr(seen.err.message, directory) != NULL, "%s", seen.err.message);
    cr_expect(!save_idle(save), "the thread is where it was");

    sem_post(&opened);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect(seen.n_prepared == 1 && save_idle(save));
    sem_destroy(&opened);
}

/* A disk on which nothing is renamed until it is let go: as one that is late. */
static struct {
    struct fsdp_io base;
    sem_t gate;
} late;
static int n_idle;
static bool busy_when_idle;

static void wait_for_disk(void)
{
    while (sem_wait(&late.gate) != 0)
        continue;
    sem_post(&late.gate);
}

static int late_rename(struct fsdp_io *io, const char *from, const char *to)
{
    (void)io;
    wait_for_disk();
    return io_posix.rename(&io_posix, from, to);
}

static int late_rmdir(struct fsdp_io *io, const char *path)
{
    (void)io;
    wait_for_disk();
    return io_posix.rmdir(&io_posix, path);
}

static void on_idle(void *arg)
{
    (void)arg;
    n_idle++;
    busy_when_idle = !save_idle(save) || seen.n_published == 0;
}

/* What the end of a run waits for (run.c): it comes once, when the disk has answered and the verdict is out. */
Test(save, the_end_of_what_is_under_way_is_an_event_and_comes_no_earlier)
{
    const struct save_handlers handlers = { .published = on_published, .line = on_line };

    save_destroy(save);
    late.base = io_posix;
    late.base.rename = late_rename;
    late.base.rmdir = late_rmdir;
    sem_init(&late.gate, 0, 0);
    cr_assert_eq(save_create(&save, &loop, &late.base, run_dir, &handlers, NULL), FSDP_OK);
    save_begin(save, GENERATION, W, -1);
    for (int rank = 0; rank < W; rank++)
        report(rank);
    cr_assert_not(save_idle(save));
    save_when_idle(save, on_idle, NULL);
    for (int turn = 0; turn < 100; turn++)
        uv_run(&loop, UV_RUN_NOWAIT);
    cr_expect(!save_idle(save) && n_idle == 0 && seen.n_published == 0, "the disk has not answered");

    sem_post(&late.gate);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect_eq(n_idle, 1);
    cr_expect_not(busy_when_idle, "nothing is under way any more, and the verdict was given");
    cr_expect_eq(seen.n_published, 1);
    sem_destroy(&late.gate);
}

Test(save, what_a_generation_left_in_a_programs_own_directory_is_removed_before_the_next)
{
    struct fsdp_link_saved saved = report_of(1);
    struct stat info;
    char path[256];

    snprintf(saved.directory, sizeof saved.directory, "%s/mine", run_dir);
    cr_assert_eq(commit_begin(&io_posix, saved.directory, temporary, NULL), FSDP_OK);
    save_take(save, GENERATION, 1, &saved, -1);
    save_abandon(save);
    save_prepare(save, on_prepared, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);

    snprintf(path, sizeof path, "%s/mine/%s", run_dir, temporary);
    cr_expect(stat(path, &info) != 0);
    cr_expect_eq(seen.n_published, 0);
    cr_expect(seen.n_prepared == 1 && seen.step == -1 && seen.err.status == FSDP_OK);
}

Test(save, a_refused_save_leaves_nothing_in_any_directory_that_was_named)
{
    struct stat info;
    char path[256];

    for (int rank = 0; rank < W; rank++) {
        struct fsdp_link_saved saved = report_of(rank);

        snprintf(saved.directory, sizeof saved.directory, "%s/mine%d", run_dir, rank);
        cr_assert_eq(commit_begin(&io_posix, saved.directory, temporary, NULL), FSDP_OK);
        save_take(save, GENERATION, rank, &saved, rank == 0 ? head() : -1);
    }
    uv_run(&loop, UV_RUN_DEFAULT);

    cr_expect(seen.n_published == 1 && seen.published.status == FSDP_ERR_MISMATCH);
    for (int rank = 0; rank < W; rank++) {
        snprintf(path, sizeof path, "%s/mine%d/%s", run_dir, rank, temporary);
        cr_expect(stat(path, &info) != 0, "rank %d", rank);
    }
}
