/* Cleaning in the directories of a program's own choice, on a disk that is slow or does not answer. */
#include <fcntl.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/save/save.h"
#include "shard_runtime/shardfile/commit.h"
#include "tests/unit/agent/scratch.h"

enum { N_FILES = 40, PATIENCE_MS = 200 };

static uv_loop_t loop;
static struct save *save;
static char temporary[COMMIT_NAME_BYTES];
static sem_t asked, answered;
static bool slow;
static int n_prepared;
static struct fsdp_err seen;

/* In place of the C library's, for all of this program. */
int unlinkat(int folder, const char *name, int flags)
{
    if (slow && (flags & AT_REMOVEDIR) == 0) {
        sem_post(&asked);
        while (sem_wait(&answered) != 0)
            continue;
    }
    return (int)syscall(SYS_unlinkat, folder, name, flags);
}

static void wait_for_ask(void)
{
    while (sem_wait(&asked) != 0)
        continue;
}

static void on_published(void *arg, const struct fsdp_link_published *published, const char *named,
                         uint64_t size_bytes, double seconds, double blocked_s)
{
    (void)arg, (void)published, (void)named, (void)size_bytes, (void)seconds;
}

static void on_line(void *arg, const char *words)
{
    (void)arg, (void)words;
}

static void on_prepared(void *arg, int64_t step, const struct fsdp_err *err)
{
    (void)arg, (void)step;
    n_prepared++;
    seen = *err;
}

static bool temporary_is_there(void)
{
    return access(scratch_path("%s", temporary), F_OK) == 0;
}

/* A run without a directory, of which one rank has left a part of a save in the program's. */
static void begin(void)
{
    const struct save_handlers handlers = { .published = on_published,
                                            .line = on_line,
                                            .patience_ms = PATIENCE_MS };
    struct fsdp_link_saved saved = { .step = 50, .size_bytes = 100 };

    scratch_make();
    uv_loop_init(&loop);
    sem_init(&asked, 0, 0);
    sem_init(&answered, 0, 0);
    cr_assert_eq(save_create(&save, &loop, &io_posix, NULL, &handlers, NULL), FSDP_OK);
    save_begin(save, 0, 2, -1);
    commit_temporary_name(&(struct commit_fence){ .step = 50 }, "secret", 6, temporary);
    cr_assert_eq(commit_begin(&io_posix, scratch, temporary, NULL), FSDP_OK);
    for (int i = 0; i < N_FILES; i++)
        cr_assert_eq(io_write_file(&io_posix, scratch_path("%s/%d", temporary, i), "x", 1, NULL), FSDP_OK);
    snprintf(saved.directory, sizeof saved.directory, "%s", scratch);
    snprintf(saved.temporary, sizeof saved.temporary, "%s", temporary);
    save_take(save, 0, 1, &saved, -1);
    save_abandon(save);
    slow = true;
    save_prepare(save, on_prepared, NULL);
    wait_for_ask();
}

static void end(void)
{
    for (int i = 0; i < N_FILES; i++)
        sem_post(&answered);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect(save_idle(save) && n_prepared == 1);
    save_destroy(save);
    cr_expect_eq(uv_loop_close(&loop), 0);
    slow = false;
    scratch_remove();
}

TestSuite(save_own, .init = begin, .fini = end, .timeout = 300);

/* Each removal lasts for a look of the watch at least: all together twice as long as its patience. */
Test(save_own, a_disk_that_removes_slowly_is_no_hang)
{
    for (int i = 0; i < N_FILES; i++) {
        if (i > 0)
            wait_for_ask();
        uv_run(&loop, UV_RUN_ONCE);
        cr_assert_eq(n_prepared, 0, "file %d: %s", i, seen.message);
        sem_post(&answered);
    }
    while (temporary_is_there())
        sched_yield();
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect(n_prepared == 1 && seen.status == FSDP_OK, "%s", seen.message);
}

Test(save_own, a_disk_that_does_not_answer_is_named)
{
    char words[128];

    while (n_prepared == 0)
        uv_run(&loop, UV_RUN_ONCE);
    snprintf(words, sizeof words, "the disk of %s has not answered for 0.2 s", scratch);
    cr_expect(seen.status == FSDP_ERR_IO && strstr(seen.message, words) != NULL, "%s", seen.message);
}
