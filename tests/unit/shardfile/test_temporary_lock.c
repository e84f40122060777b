/* What keeps a process that cleans away from the temporary directories of saves. */
#include "shard_runtime/shardfile/temporary_lock.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/directory_lock.h"
#include "tests/unit/shardfile/files.h"

#define TEMPORARY ".step-00000050.g0.12345678"

static char checkpoints[512], path[600];

static void begin(void)
{
    snprintf(checkpoints, sizeof checkpoints, "%s/run/checkpoints", files_begin());
    snprintf(path, sizeof path, "%s/%s", checkpoints, TEMPORARY);
}

TestSuite(temporary_lock, .init = begin, .fini = files_end, .timeout = 600);

static struct fsdp_err err;

static int hold(struct fsdp_io *io)
{
    int fd;

    cr_assert(temporary_hold(io, checkpoints, TEMPORARY, &fd, &err) == FSDP_OK, "%s", err.message);
    return fd;
}

static void clean(void)
{
    cr_assert(commit_clean(&io_posix, checkpoints, 0, NULL, &err) == FSDP_OK, "%s", err.message);
}

static void keep_line(void *context, const char *words)
{
    snprintf(context, 256, "%s", words);
}

Test(temporary_lock, cleaning_leaves_what_one_rank_still_holds_and_says_so)
{
    char line[256] = "";
    const struct verify_log log = { keep_line, line };
    const int first = hold(&io_posix), second = hold(&io_posix);

    close(first);
    cr_assert(commit_clean(&io_posix, checkpoints, 0, &log, NULL) == FSDP_OK);
    cr_assert(files_exist(path));
    cr_assert_str_eq(line,
                     "event=checkpoint_not_cleaned name=" TEMPORARY " reason=\"another process uses it\"");

    close(second);
    clean();
    cr_assert(!files_exist(path));
}

/* Another process lists the name, and then claims and removes it, at the worst moment. */
static int n_cleaned;

static int clean_and_lock(struct fsdp_io *io, int fd, int operation)
{
    cr_assert(operation == LOCK_SH, "it waits for who cleans");
    if (n_cleaned++ == 0) {
        clean();
        cr_assert(!files_exist(path));
    }
    return io_posix.lock(io, fd, operation);
}

Test(temporary_lock, a_directory_that_is_removed_before_it_is_held_is_made_again)
{
    struct fsdp_io io = io_posix;
    struct stat held, named;
    int fd;

    io.lock = clean_and_lock;
    fd = hold(&io);

    cr_assert(n_cleaned == 2);
    cr_assert(fstat(fd, &held) == 0 && stat(path, &named) == 0 && held.st_ino == named.st_ino);
    clean();
    cr_assert(files_exist(path));
    close(fd);
}

/* Between its look at the name and its lock another save has made the directory again. */
static int replace_and_lock(struct fsdp_io *io, int fd, int operation)
{
    cr_assert(rmdir(path) == 0 && mkdir(path, 0777) == 0);
    return io_posix.lock(io, fd, operation);
}

Test(temporary_lock, a_claim_is_worth_nothing_when_the_name_is_another_directorys)
{
    struct fsdp_io io = io_posix;
    int fd;

    close(hold(&io_posix));
    io.lock = replace_and_lock;

    cr_assert(temporary_claim(&io, path, &fd, NULL) == FSDP_ERR_BUSY && fd < 0);
    cr_assert(commit_clean(&io, checkpoints, 0, NULL, NULL) == FSDP_OK);
    cr_assert(files_exist(path));
}

Test(temporary_lock, without_locks_a_save_and_a_removal_go_on)
{
    struct fsdp_io io = io_posix;
    int fd;

    io.lock = files_no_locks;
    cr_assert(hold(&io) < 0 && files_exist(path));
    cr_assert(temporary_claim(&io, path, &fd, NULL) == FSDP_OK && fd < 0);
}

static int too_many_files(struct fsdp_io *io, const char *name, int flags, mode_t mode)
{
    (void)io, (void)name, (void)flags, (void)mode;
    errno = EMFILE;
    return -1;
}

Test(temporary_lock, what_cannot_be_claimed_is_not_removed)
{
    struct fsdp_io io = io_posix;

    close(hold(&io_posix));
    io.open = too_many_files;
    cr_assert(commit_clean(&io, checkpoints, 0, NULL, NULL) == FSDP_OK);
    cr_assert(files_exist(path));
}

/* The lock of the directory of checkpoints, which a process that cleans only shares */

static struct directory_lock *cleaners;
static int n_waits;

static int let_go_after_a_wait(struct fsdp_io *io, int fd, int operation)
{
    const int result = io_posix.lock(io, fd, operation);

    if (operation == LOCK_UN && ++n_waits == 3)
        directory_lock_release(&cleaners, &io_posix);
    return result;
}

Test(temporary_lock, who_saves_waits_for_those_that_clean_and_refuses_them_from_then_on)
{
    struct directory_lock *ours = NULL, *theirs = NULL;
    struct fsdp_io io = io_posix;
    bool held;

    close(hold(&io_posix));
    io.lock = let_go_after_a_wait;
    cr_assert(directory_lock_share(&theirs, &io_posix, checkpoints, &held, &err) == FSDP_OK && held);
    directory_lock_release(&theirs, &io_posix);
    cr_assert(directory_lock_share(&cleaners, &io_posix, checkpoints, &held, &err) == FSDP_OK && held);
    cr_assert(directory_lock_share(&theirs, &io_posix, checkpoints, &held, &err) == FSDP_OK && held,
              "two may clean: %s", err.message);
    directory_lock_release(&theirs, &io_posix);

    cr_assert(directory_lock_take(&ours, &io, checkpoints, &held, &err) == FSDP_OK && held, "%s",
              err.message);
    cr_assert(n_waits == 3 && cleaners == NULL);

    cr_assert(directory_lock_share(&theirs, &io_posix, checkpoints, &held, &err) == FSDP_ERR_BUSY);
    cr_assert(directory_lock_take(&theirs, &io_posix, checkpoints, &held, &err) == FSDP_ERR_BUSY);
    directory_lock_release(&ours, &io_posix);
}
