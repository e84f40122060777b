/*
 * Collecting reports and giving verdicts; that a published checkpoint is whole is shardfile's and the system
 * tests'.
 */
#include "agent/save/save.h"

#include <semaphore.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/directory_lock.h"
#include "shard_runtime/shardfile/temporary_lock.h"
#include "tests/unit/agent/scratch.h"
#include "tests/unit/checkpoint/state.h"

enum { W = 3, GENERATION = 4 };

static uv_loop_t loop;
static struct save *save;
static char directory[128], temporary[COMMIT_NAME_BYTES];
static struct {
    int n_published, n_prepared, n_lines;
    struct fsdp_link_published published;
    char directory[128];
    int64_t step;
    struct fsdp_err err;
} seen;

static void on_published(void *arg, const struct fsdp_link_published *published, const char *named,
                         uint64_t size_bytes, double seconds, double blocked_s)
{
    snprintf(seen.directory, sizeof seen.directory, "%s", named);
    seen.n_published++;
    seen.published = *published;
}

static void on_line(void *arg, const char *words)
{
    seen.n_lines++;
}

static void on_prepared(void *arg, int64_t step, const struct fsdp_err *err)
{
    seen.n_prepared++;
    seen.step = step;
    seen.err = *err;
}

static uint64_t term;
static int64_t last_step;
static bool replaces; /* the coordinator has taken another one's place */

/* In place of the one there is. `run_directory` NULL: the run has none. */
static void create(struct fsdp_io *io, const char *run_directory, int64_t patience_ms, int world_size)
{
    const struct save_handlers handlers = { .published = on_published,
                                            .line = on_line,
                                            .last_step = last_step,
                                            .term = term,
                                            .replaces = replaces,
                                            .patience_ms = patience_ms };

    save_destroy(save);
    cr_assert_eq(save_create(&save, &loop, io, run_directory, &handlers, NULL), FSDP_OK);
    save_begin(save, GENERATION, world_size, -1);
}

static void begin(void)
{
    scratch_make();
    snprintf(directory, sizeof directory, "%s/checkpoints", scratch);
    uv_loop_init(&loop);
    create(&io_posix, scratch, 0, W);
    commit_temporary_name(&(struct commit_fence){ 50, GENERATION, W, 0 }, "secret", 6, temporary);
    cr_assert_eq(commit_begin(&io_posix, directory, temporary, NULL), FSDP_OK);
}

static void end(void)
{
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect(save_idle(save));
    save_destroy(save);
    cr_expect_eq(uv_loop_close(&loop), 0);
    scratch_remove();
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

/* The report of one rank, on a step into the directory `mine` below the run's; NULL: the run's own. */
static void report_of_step(int rank, int64_t step, const char *mine)
{
    struct fsdp_link_saved saved = report_of(rank);

    saved.step = step;
    if (mine != NULL)
        snprintf(saved.directory, sizeof saved.directory, "%s/%s", scratch, mine);
    save_take(save, GENERATION, rank, &saved, rank == 0 ? head() : -1);
}

static void report(int rank)
{
    report_of_step(rank, 50, NULL);
}

static void report_all(void)
{
    for (int rank = W - 1; rank >= 0; rank--)
        report(rank);
}

static void run(void)
{
    uv_run(&loop, UV_RUN_DEFAULT);
}

static void prepare(void)
{
    save_prepare(save, on_prepared, NULL);
    run();
}

static bool is_there(const char *folder, const char *name)
{
    return access(scratch_path("%s/%s", folder, name), F_OK) == 0;
}

static bool temporary_is_there(void)
{
    return is_there("checkpoints", temporary);
}

static bool published_is_there(void)
{
    return is_there("checkpoints", "step-00000050");
}

Test(save, no_verdict_before_every_rank_has_reported)
{
    report(0);
    report(1);
    run();
    cr_expect_eq(seen.n_published, 0);
}

Test(save, parts_that_are_not_there_are_refused_and_removed)
{
    report_all();
    cr_expect_not(save_idle(save));
    run();
    cr_expect_eq(seen.n_published, 1);
    cr_expect(seen.published.step == 50 && seen.published.status != FSDP_OK &&
              seen.published.words[0] != '\0');
    cr_expect(!published_is_there() && !temporary_is_there());
}

Test(save, a_head_that_is_a_pipe_is_refused_without_waiting_for_its_end)
{
    const struct fsdp_link_saved saved = report_of(0);
    int ends[2];

    cr_assert_eq(pipe(ends), 0);
    create(&io_posix, scratch, 0, 1);
    save_take(save, GENERATION, 0, &saved, ends[0]);
    run();
    cr_expect(seen.n_published == 1 && seen.published.status == FSDP_ERR_FORMAT);
    close(ends[1]);
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
    run();
    cr_expect_eq(seen.n_published, 1, "no second verdict");
    cr_expect_not(temporary_is_there());
}

/* Rank 0 knows that its part failed, and goes on to the next save. Another rank's part is still written. */
Test(save, the_next_save_needs_no_report_of_the_one_that_was_refused)
{
    struct fsdp_link_saved saved = report_of(0);

    saved.status = FSDP_ERR_IO;
    save_take(save, GENERATION, 0, &saved, -1);
    report_of_step(0, 60, NULL);
    report(1);
    report_of_step(1, 60, NULL);
    cr_expect_eq(seen.n_published, 1, "no verdict on step 60: %s", seen.published.words);
    report(2);
    run();
    cr_expect_eq(seen.n_published, 1, "no second verdict on step 50");
    cr_expect_not(temporary_is_there(), "it was removed");
    report_of_step(2, 60, NULL);
    run();
    cr_expect(seen.n_published == 2 && seen.published.step == 60);
    cr_expect(seen.published.status != FSDP_ERR_BUSY, "%s", seen.published.words);
}

Test(save, a_refused_save_is_removed_though_its_generation_ends_within_the_next_one)
{
    struct fsdp_link_saved saved = report_of(0);

    saved.status = FSDP_ERR_IO;
    save_take(save, GENERATION, 0, &saved, -1);
    report_of_step(0, 60, NULL);
    save_abandon(save);
    run();
    cr_expect_eq(seen.n_published, 1, "no verdict on step 60");
    cr_expect_not(temporary_is_there());
}

Test(save, the_rest_of_a_refused_save_is_removed_when_a_rank_ends_before_it_reports)
{
    struct fsdp_link_saved saved = report_of(1);

    saved.status = FSDP_ERR_IO;
    save_take(save, GENERATION, 1, &saved, -1);
    save_abandon(save);
    run();
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
    run();
    cr_expect_eq(seen.n_published, 0);
    save_begin(save, GENERATION + 1, W, -1);
    save_take(save, GENERATION + 1, 2, &saved, -1);
    run();
    cr_expect_eq(seen.n_published, 0, "what was collected is forgotten with its generation");
}

Test(save, reports_that_do_not_agree_are_refused)
{
    struct fsdp_link_saved elsewhere = report_of(1), headless = report_of(0);

    strcpy(elsewhere.temporary, ".step-00000050.g4.00000000");
    for (int i = 0; i < 3; i++) {
        save_begin(save, GENERATION, W, -1);
        if (i == 0) { /* another directory */
            report(0);
            save_take(save, GENERATION, 1, &elsewhere, -1);
        } else if (i == 1) { /* twice */
            report(1);
            report(1);
        } else { /* rank 0 without the manifest's head */
            save_take(save, GENERATION, 0, &headless, -1);
        }
        cr_expect_eq(seen.n_published, i + 1);
        cr_expect_eq(seen.published.status, FSDP_ERR_MISMATCH);
    }
}

Test(save, a_run_without_a_directory_saves_nothing_and_finds_nothing)
{
    create(&io_posix, NULL, 0, 1);
    report(0);
    cr_expect_eq(seen.published.status, FSDP_ERR_CONFIG);
    prepare();
    cr_expect(seen.n_prepared == 1 && seen.step == -1 && seen.err.status == FSDP_OK);
}

/* One verdict on step 50 + i, the i-th that was saved. */
static void check_verdict(int i)
{
    run();
    cr_expect_eq(seen.n_published, i + 1, "one verdict each");
    cr_expect_eq(seen.published.step, 50 + i);
    cr_expect(seen.published.status != FSDP_OK && seen.published.status != FSDP_ERR_BUSY, "%s",
              seen.published.words);
}

Test(save, a_rank_that_names_no_directory_where_the_run_has_none_ends_that_save_alone)
{
    create(&io_posix, NULL, 0, 2);
    for (int i = 0; i < 3; i++) { /* the last time each rank names it */
        for (int rank = 0; rank < 2; rank++)
            report_of_step(rank, 50 + i, rank != i ? "mine" : NULL);
        check_verdict(i);
    }
}

Test(save, a_report_that_finds_no_memory_ends_that_save_alone)
{
    for (int victim = 0; victim < W; victim++) {
        for (int rank = 0; rank < W; rank++) {
            alloc_fail_nth(rank == victim ? 1 : 0);
            report_of_step(rank, 50 + victim, rank == victim ? temporary : NULL);
        }
        alloc_fail_nth(0);
        check_verdict(victim);
        cr_expect_eq(seen.published.status, FSDP_ERR_NOMEM, "%s", seen.published.words);
    }
}

/* Here the collection itself finds none, when the first `n_lost` reports of a save come. */
Test(save, a_save_whose_first_reports_find_no_memory_fails_once_and_the_next_ones_do_not)
{
    for (int n_lost = 1; n_lost <= W; n_lost++) {
        cr_assert_eq(commit_begin(&io_posix, directory, temporary, NULL), FSDP_OK);
        for (int rank = W - 1; rank >= 0; rank--) {
            alloc_fail_nth(rank >= W - n_lost ? 1 : 0);
            report_of_step(rank, 50 + n_lost, NULL);
        }
        alloc_fail_nth(0);
        run();
        cr_expect_eq(seen.n_published, n_lost, "one verdict each");
        cr_expect_eq(seen.published.step, 50 + n_lost);
        cr_expect_eq(seen.published.status, FSDP_ERR_NOMEM, "%s", seen.published.words);
        cr_expect_eq(temporary_is_there(), n_lost == W, "%d lost: what was written is removed", n_lost);
    }
    report_all();
    run();
    cr_expect(seen.n_published == W + 1 && seen.published.step == 50);
    cr_expect(seen.published.status != FSDP_ERR_BUSY && seen.published.status != FSDP_ERR_NOMEM, "%s",
              seen.published.words);
}

Test(save, preparing_waits_for_a_publication_that_is_under_way)
{
    report_all();
    save_abandon(save); /* the generation is over; the thread is not */
    save_prepare(save, on_prepared, NULL);
    cr_expect_eq(seen.n_prepared, 0);
    run();
    cr_expect_eq(seen.n_published, 1);
    cr_expect_eq(seen.n_prepared, 1);
}

Test(save, checkpoints_of_which_none_verifies_are_no_fresh_start)
{
    cr_assert_eq(mkdir(scratch_path("checkpoints/step-00000010"), 0777), 0);
    prepare();
    cr_expect_eq(seen.n_prepared, 1);
    cr_expect(seen.err.status != FSDP_OK && seen.step == -1);
}

/* A coordinator that was lost, and is only stopped. */
Test(save, who_takes_the_place_of_another_does_not_wait_for_its_lock)
{
    struct directory_lock *others = NULL;
    bool held;

    replaces = true;
    create(&io_posix, scratch, 0, W);
    cr_assert(directory_lock_take(&others, &io_posix, directory, &held, NULL) == FSDP_OK && held);
    report_all();
    run();
    cr_expect(seen.n_published == 1 && strstr(seen.published.words, "the head") != NULL, "%s",
              seen.published.words);
    cr_assert_eq(commit_begin(&io_posix, directory, temporary, NULL), FSDP_OK);
    prepare();
    cr_expect(seen.err.status == FSDP_OK && !temporary_is_there(), "%s", seen.err.message);
    directory_lock_release(&others, &io_posix);
}

/* Its ranks stand still too, so they hold what they wrote. */
Test(save, what_the_leader_before_has_not_published_is_taken_away)
{
    const struct commit_fence of_before = { 50, GENERATION, W, 1 }, other = { 60, GENERATION, W, 1 };
    char in_own[COMMIT_NAME_BYTES];
    int fds[2];

    term = 2;
    commit_temporary_name(&of_before, "secret", 6, temporary);
    commit_temporary_name(&other, "secret", 6, in_own);
    cr_assert_eq(temporary_hold(&io_posix, directory, temporary, &fds[0], NULL), FSDP_OK);
    cr_assert_eq(temporary_hold(&io_posix, scratch_path("mine"), in_own, &fds[1], NULL), FSDP_OK);
    create(&io_posix, scratch, 0, W);
    prepare();
    cr_expect(seen.err.status == FSDP_OK && !temporary_is_there(), "%s", seen.err.message);

    for (int rank = 0; rank < W; rank++)
        report_of_step(rank, 50, "mine");
    run();
    cr_expect(seen.n_published == 1 && seen.published.status != FSDP_OK);
    cr_expect_not(is_there("mine", in_own), "a directory of the program's own is known from its first save");
    close(fds[0]);
    close(fds[1]);
}

/* A process without an agent that saves to the same directory, here in the same process. */
Test(save, a_directory_that_another_process_saves_to_is_left_alone)
{
    struct directory_lock *others = NULL;
    bool held;

    cr_assert(directory_lock_take(&others, &io_posix, directory, &held, NULL) == FSDP_OK && held);
    report_all();
    run();
    cr_expect(seen.n_published == 1 && seen.published.status == FSDP_ERR_BUSY);
    cr_expect(strstr(seen.published.words, "another process (pid ") != NULL, "%s", seen.published.words);
    cr_expect(!published_is_there() && !temporary_is_there());

    cr_assert_eq(commit_begin(&io_posix, directory, temporary, NULL), FSDP_OK);
    prepare();
    cr_expect(seen.err.status == FSDP_ERR_BUSY, "%s", seen.err.message);
    cr_expect(temporary_is_there(), "it may be the other's");
    directory_lock_release(&others, &io_posix);
    prepare();
    cr_expect(seen.err.status == FSDP_OK && !temporary_is_there());
}

/* A disk that answers some calls late: when the gate is opened. The suite's end still uses it. */
static struct {
    struct fsdp_io base;
    sem_t gate;
} late;

static void wait_for_disk(void)
{
    while (sem_wait(&late.gate) != 0)
        continue;
    sem_post(&late.gate);
}

static int late_rename(struct fsdp_io *io, const char *from, const char *to)
{
    wait_for_disk();
    return io_posix.rename(&io_posix, from, to);
}

static int late_rmdir(struct fsdp_io *io, const char *path)
{
    wait_for_disk();
    return io_posix.rmdir(&io_posix, path);
}

static int late_open(struct fsdp_io *io, const char *path, int flags, mode_t mode)
{
    if (strstr(path, "manifest.json") != NULL)
        wait_for_disk();
    return io_posix.open(&io_posix, path, flags, mode);
}

static void create_late(int64_t patience_ms)
{
    late.base = io_posix;
    late.base.open = late_open;
    late.base.rename = late_rename;
    late.base.rmdir = late_rmdir;
    sem_init(&late.gate, 0, 0);
    create(&late.base, scratch, patience_ms, W);
}

/* Until the disk answers after all; then nothing more is said, and the memory is free (LeakSanitizer). */
Test(save, a_search_that_the_disk_does_not_answer_fails_once_and_names_the_directory)
{
    create_late(20);
    cr_assert_eq(mkdir(scratch_path("checkpoints/step-00000010"), 0777), 0);
    save_prepare(save, on_prepared, NULL);
    while (seen.n_prepared == 0)
        uv_run(&loop, UV_RUN_ONCE);
    cr_expect(seen.err.status == FSDP_ERR_IO && seen.step == -1);
    cr_expect(strstr(seen.err.message, directory) != NULL, "%s", seen.err.message);
    cr_expect(!save_idle(save), "the thread is where it was");

    sem_post(&late.gate);
    run();
    cr_expect(seen.n_prepared == 1 && save_idle(save));
}

static int n_idle;
static bool busy_when_idle;

static void on_idle(void *arg)
{
    n_idle++;
    busy_when_idle = !save_idle(save) || seen.n_published == 0;
}

/*
 * What the end of a run waits for (run.c): it comes once, when the disk has answered and the verdict is out.
 */
Test(save, the_end_of_what_is_under_way_is_an_event_and_comes_no_earlier)
{
    create_late(0);
    report_all();
    cr_assert_not(save_idle(save));
    save_when_idle(save, on_idle, NULL);
    for (int turn = 0; turn < 100; turn++)
        uv_run(&loop, UV_RUN_NOWAIT);
    cr_expect(!save_idle(save) && n_idle == 0 && seen.n_published == 0, "the disk has not answered");

    sem_post(&late.gate);
    run();
    cr_expect_eq(n_idle, 1);
    cr_expect_not(busy_when_idle, "nothing is under way any more, and the verdict was given");
    cr_expect_eq(seen.n_published, 1);
}

/* A rank has begun to write in a directory of the program's own, below the run's, and reports that. */
static void save_to(const char *mine, int rank)
{
    cr_assert_eq(commit_begin(&io_posix, scratch_path("%s", mine), temporary, NULL), FSDP_OK);
    report_of_step(rank, 50, mine);
}

Test(save, what_a_generation_left_in_a_programs_own_directory_is_removed_before_the_next)
{
    save_to("mine", 1);
    save_abandon(save);
    prepare();

    cr_expect_not(is_there("mine", temporary));
    cr_expect_eq(seen.n_published, 0);
    cr_expect(seen.n_prepared == 1 && seen.step == -1 && seen.err.status == FSDP_OK);
}

Test(save, a_refused_save_leaves_nothing_in_any_directory_that_was_named)
{
    static const char *const mine[W] = { "mine0", "mine1", "mine2" };

    for (int rank = 0; rank < W; rank++)
        save_to(mine[rank], rank);
    run();

    cr_expect(seen.n_published == 1 && seen.published.status == FSDP_ERR_MISMATCH);
    for (int rank = 0; rank < W; rank++)
        cr_expect_not(is_there(mine[rank], temporary), "rank %d", rank);
}

/* Checkpoints of real tensors, and a disk that removes them late and counts how often tensors are opened. */

enum { D = 5 };
static int n_tensor_opens, n_before_verdict;

static int count_open(struct fsdp_io *io, const char *path, int flags, mode_t mode)
{
    n_tensor_opens += strstr(path, ".safetensors") != NULL;
    return io_posix.open(&io_posix, path, flags, mode);
}

static int late_unlink(struct fsdp_io *io, const char *path)
{
    if (strstr(path, "/.trash-") != NULL)
        wait_for_disk();
    return io_posix.unlink(&io_posix, path);
}

static void create_counting(int n_gates_open)
{
    late.base = io_posix;
    late.base.open = count_open;
    late.base.unlink = late_unlink;
    sem_init(&late.gate, 0, (unsigned)n_gates_open);
    create(&late.base, scratch, 0, W);
    n_tensor_opens = 0;
}

static void published_before(int64_t step)
{
    cr_assert_eq(state_save(&io_posix, directory, step, GENERATION, D, W, NULL), FSDP_OK);
}

/* All ranks write their parts of step 50 and report them. */
static void save_step_50(uint32_t keep, int64_t loaded_step)
{
    struct state_parts parts;

    cr_assert_eq(state_write_parts(&io_posix, directory, 50, GENERATION, D, W, &parts, NULL), FSDP_OK);
    for (int rank = 0; rank < W; rank++) {
        const struct checkpoint_part *part = &parts.parts[rank];
        struct fsdp_link_saved saved = { .step = 50,
                                         .keep = keep,
                                         .loaded_step = loaded_step,
                                         .size_bytes = part->size_bytes,
                                         .checksum = { part->checksum[0], part->checksum[1] } };
        const int fd = rank == 0 ? memfd_create("head", MFD_CLOEXEC) : -1;

        snprintf(saved.temporary, sizeof saved.temporary, "%s", parts.temporary);
        snprintf(saved.file, sizeof saved.file, "%s", part->file);
        if (fd >= 0)
            cr_assert_eq(write(fd, parts.head, parts.head_length), (ssize_t)parts.head_length);
        save_take(save, GENERATION, rank, &saved, fd);
    }
    free(parts.head);
}

Test(save, the_ranks_have_their_verdict_before_anything_old_is_removed)
{
    published_before(30);
    published_before(40);
    create_counting(0);
    save_step_50(1, -1);
    while (seen.n_published == 0)
        uv_run(&loop, UV_RUN_ONCE);
    n_before_verdict = n_tensor_opens;
    cr_expect_eq(seen.published.status, FSDP_OK, "%s", seen.published.words);
    cr_expect(!save_idle(save), "the disk has removed nothing yet");

    sem_post(&late.gate);
    run();
    cr_expect(published_is_there() && seen.n_published == 1);
    cr_expect(!is_there("checkpoints", "step-00000030") && !is_there("checkpoints", "step-00000040"));
    cr_expect(!is_there("checkpoints", ".trash-step-00000030"));
    cr_expect_eq(n_tensor_opens, n_before_verdict, "to remove them no tensor is read");
}

Test(save, what_the_ranks_loaded_is_kept_even_if_the_agent_had_found_another)
{
    published_before(30);
    published_before(40);
    create_counting(1);
    save_begin(save, GENERATION, W, 40);
    save_step_50(1, 30);
    run();
    cr_expect(seen.n_published == 1 && seen.published.status == FSDP_OK, "%s", seen.published.words);
    cr_expect(is_there("checkpoints", "step-00000030") && !is_there("checkpoints", "step-00000040"));
}

/* Flips a bit of the last tensor. */
static void damage(int64_t step)
{
    const char *path =
        scratch_path("checkpoints/step-%08d/shard-00001-model-00001-of-00001.safetensors", (int)step);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    const off_t at = lseek(fd, -1, SEEK_END);
    char byte;

    cr_assert(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 1;
    cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

Test(save, a_step_that_ranks_will_load_is_chosen_by_manifest_and_sizes_alone)
{
    published_before(30);
    published_before(40);
    damage(40);
    last_step = 41;
    create_counting(1);
    prepare();
    cr_expect(seen.err.status == FSDP_OK && seen.step == 40, "step %d: %s", (int)seen.step, seen.err.message);
    cr_expect_eq(n_tensor_opens, 0, "the ranks verify it");
}

/* No rank may load it: the run has all its steps. */
Test(save, the_last_step_of_a_run_is_verified_before_it_counts_as_complete)
{
    published_before(30);
    published_before(40);
    damage(40);
    last_step = 40;
    create_counting(1);
    prepare();
    cr_expect(seen.err.status == FSDP_OK && seen.step == 30, "step %d: %s", (int)seen.step, seen.err.message);
    cr_expect_eq(seen.n_lines, 2, "what begin() left is removed, and the damaged one named");
}

/* This leader was stopped, and does not know yet that another one leads, whose ranks save. */
Test(save, what_the_leader_after_has_not_published_stays)
{
    const struct commit_fence of_after = { 50, GENERATION, W, 3 };
    char after[COMMIT_NAME_BYTES];

    term = 2;
    create(&io_posix, scratch, 0, W);
    save_to("mine", 1);
    save_abandon(save);
    commit_temporary_name(&of_after, "secret", 6, after);
    cr_assert_eq(commit_begin(&io_posix, directory, after, NULL), FSDP_OK);
    cr_assert_eq(commit_begin(&io_posix, scratch_path("mine"), after, NULL), FSDP_OK);

    prepare();

    cr_expect(is_there("checkpoints", after) && is_there("mine", after));
    cr_expect(!is_there("mine", temporary) && !temporary_is_there());
}

/* Ranks that resume from memory */

Test(save, settling_answers_with_what_is_known_and_looks_at_no_file)
{
    published_before(40);
    create_counting(1);
    cr_expect(save_settle(save, on_prepared, NULL));
    cr_expect_eq(seen.n_prepared, 1, "at once");
    cr_expect_eq(seen.step, -1, "nobody has looked for step 40");
    prepare();
    cr_expect_eq(save_known_step(save), 40);
    save_step_50(1, -1);
    run();
    cr_expect_eq(save_known_step(save), 50);
    cr_expect(save_settle(save, on_prepared, NULL));
    cr_expect_eq(seen.step, 50);
}

Test(save, settling_waits_for_a_publication_that_is_under_way)
{
    report_all();
    save_abandon(save);
    cr_expect(save_settle(save, on_prepared, NULL));
    cr_expect_eq(seen.n_prepared, 0);
    run();
    cr_expect(seen.n_published == 1 && seen.n_prepared == 1);
}

Test(save, what_older_generations_left_is_removed_while_the_next_one_saves)
{
    char current[COMMIT_NAME_BYTES];

    commit_temporary_name(&(struct commit_fence){ 60, GENERATION + 1, W, 0 }, "secret", 6, current);
    cr_expect(save_settle(save, on_prepared, NULL));
    run();
    cr_expect(temporary_is_there(), "no generation runs yet, and none waits for this");
    cr_assert_eq(commit_begin(&io_posix, directory, current, NULL), FSDP_OK);
    save_begin(save, GENERATION + 1, W, -1);
    run();
    cr_expect_not(temporary_is_there());
    cr_expect(is_there("checkpoints", current), "it is being written");
    cr_assert_eq(commit_begin(&io_posix, directory, temporary, NULL), FSDP_OK);
    save_begin(save, GENERATION + 1, W, -1);
    run();
    cr_expect(temporary_is_there(), "this is done once for each time that nothing was searched");
}

Test(save, a_programs_own_directory_must_be_looked_at)
{
    report_of_step(0, 50, "mine");
    save_abandon(save);
    cr_expect_not(save_settle(save, on_prepared, NULL));
    run();
    cr_expect_eq(seen.n_prepared, 0);
}

/* Processes that write after the last cleaning: KILL does not end them, so no generation waits for them */

/* Makes a temporary directory of a generation in `mine`, below the run's. *fd holds it; NULL: none does. */
static void leave(const char *mine, uint32_t generation, char name[COMMIT_NAME_BYTES], int *fd)
{
    int hold;

    commit_temporary_name(&(struct commit_fence){ 70, generation, W, 0 }, mine, strlen(mine), name);
    cr_assert_eq(temporary_hold(&io_posix, scratch_path("%s", mine), name, &hold, NULL), FSDP_OK);
    if (fd != NULL)
        *fd = hold;
    else
        close(hold);
}

Test(save, what_an_older_generation_makes_after_the_cleaning_is_removed_by_the_next_save)
{
    char older[COMMIT_NAME_BYTES], current[COMMIT_NAME_BYTES];

    prepare();
    save_begin(save, GENERATION, W, -1);
    leave("checkpoints", GENERATION - 1, older, NULL);
    leave("checkpoints", GENERATION, current, NULL);

    save_step_50(0, -1);
    run();

    cr_expect(seen.n_published == 1 && seen.published.status == FSDP_OK, "%s", seen.published.words);
    cr_expect_not(is_there("checkpoints", older));
    cr_expect(is_there("checkpoints", current), "it is being written");
}

Test(save, what_a_process_still_holds_is_kept_without_a_line_until_a_save_finds_it_free)
{
    char older[COMMIT_NAME_BYTES];
    int fd;

    prepare();
    save_begin(save, GENERATION, W, -1);
    leave("checkpoints", GENERATION - 1, older, &fd);
    seen.n_lines = 0;
    save_step_50(0, -1);
    run();
    cr_expect(is_there("checkpoints", older) && seen.n_lines == 0);

    close(fd);
    save_begin(save, GENERATION, W, -1);
    save_step_50(0, -1);
    run();
    cr_expect(seen.n_published == 2 && seen.published.status == FSDP_OK, "%s", seen.published.words);
    cr_expect_not(is_there("checkpoints", older));
}

Test(save, the_end_of_a_run_removes_what_any_generation_left_and_nothing_that_is_held)
{
    char last[COMMIT_NAME_BYTES], others[COMMIT_NAME_BYTES], own[COMMIT_NAME_BYTES];
    int fd;

    save_to("mine", 1);
    save_abandon(save);
    run();
    leave("checkpoints", GENERATION, last, NULL);
    leave("checkpoints", GENERATION + 1, others, &fd);
    leave("mine", GENERATION, own, NULL);

    save_end(save);
    run();

    cr_expect(!is_there("checkpoints", last) && !temporary_is_there());
    cr_expect_not(is_there("mine", own));
    cr_expect(is_there("checkpoints", others), "another run begins to save there");
    close(fd);
}

static double told_blocked_s;

static void on_published_blocked(void *arg, const struct fsdp_link_published *published, const char *named,
                                 uint64_t size_bytes, double seconds, double blocked_s)
{
    told_blocked_s = blocked_s;
    on_published(arg, published, named, size_bytes, seconds, blocked_s);
}

Test(save, a_save_through_memory_blocked_the_rank_for_as_long_as_it_says)
{
    const struct save_handlers handlers = { .published = on_published_blocked, .line = on_line };
    struct fsdp_link_saved saved = report_of(0);

    save_destroy(save);
    cr_assert_eq(save_create(&save, &loop, &io_posix, scratch, &handlers, NULL), FSDP_OK);
    save_begin(save, GENERATION, 1, -1);
    saved.started_ns = 1;
    saved.stalled_ns = 250000000;
    save_take(save, GENERATION, 0, &saved, head());
    run();
    cr_expect_eq(seen.n_published, 1);
    cr_expect_eq(told_blocked_s, 0.25);
}
