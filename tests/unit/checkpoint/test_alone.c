/*
 * A process without an agent saves. It is its own publisher. So no other process keeps two of them apart, or
 * removes what one that was killed left.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fsdp/link.h>

#include "shard_runtime/checkpoint/save.h"
#include "shard_runtime/comm/link_client.h"
#include "shard_runtime/shardfile/directory_lock.h"
#include "tests/unit/checkpoint/state.h"
#include "tests/unit/shardfile/files.h"
#include "tests/unit/shardfile/memory_io.h"

static struct link *link_to_nobody;
static struct state_shard shard;
static struct fsdp_err err;
static char directory[600]; /* of checkpoints, on a real disk */

static void begin(void)
{
    unsetenv(FSDP_LINK_FD_ENV);
    snprintf(directory, sizeof directory, "%s/c", files_begin());
    cr_assert(link_open(&link_to_nobody, &err) == FSDP_OK, "%s", err.message);
    state_init(&shard, 13, 1, 0);
}

static void end(void)
{
    state_free(&shard);
    link_close(link_to_nobody);
    files_end();
}

TestSuite(alone, .init = begin, .fini = end, .timeout = 1200);

static enum fsdp_status save_in(struct fsdp_io *io, const char *place, struct directory_lock **locks,
                                int64_t step)
{
    const struct checkpoint_save_options options = {
        .io = io, .link = link_to_nobody, .directory = place, .loaded_step = -1, .locks = locks
    };
    const struct checkpoint_state head = state_head(step);

    err = (struct fsdp_err){ 0 };
    state_fill(&shard, step);
    return checkpoint_save(&options, &head, shard.tensors, STATE_TENSORS, NULL, &err);
}

static void saves(struct fsdp_io *io, const char *place, struct directory_lock **locks, int64_t step)
{
    cr_assert(save_in(io, place, locks, step) == FSDP_OK, "%s", err.message);
}

/* Names */

static char made[16][IO_PATH_BYTES];
static int n_made;

static int note_mkdir(struct fsdp_io *io, const char *path, mode_t mode)
{
    const int result = io_posix.mkdir(io, path, mode);

    if (result == 0 && strstr(path, "/.step-") != NULL)
        snprintf(made[n_made++ % 16], IO_PATH_BYTES, "%s", path);
    return result;
}

Test(alone, two_saves_of_one_step_have_different_temporary_names)
{
    struct fsdp_io io = io_posix;

    io.mkdir = note_mkdir;
    saves(&io, directory, NULL, 7);
    saves(&io, directory, NULL, 7);

    cr_assert(n_made == 2, "%d", n_made);
    cr_assert_str_neq(made[0], made[1]);
}

/* The lock */

Test(alone, a_directory_has_one_owner_until_that_lets_go)
{
    char same[640];
    struct directory_lock *ours = NULL, *theirs = NULL;

    snprintf(same, sizeof same, "%s/../c/.", directory);
    saves(NULL, directory, &ours, 1);
    saves(NULL, same, &ours, 2); /* under another name */

    cr_assert(save_in(NULL, directory, &theirs, 3) == FSDP_ERR_BUSY);
    directory_lock_release(&ours, &io_posix);
    cr_assert(ours == NULL);
    saves(NULL, directory, &theirs, 3);
    directory_lock_release(&theirs, &io_posix);
}

/* As that of a process which was stopped while it cleans. */
Test(alone, a_cleaner_that_does_not_end_is_waited_for_so_long_and_named)
{
    struct directory_lock *ours = NULL, *cleaner = NULL;
    bool held;

    cr_assert(io_make_directories(&io_posix, directory, &err) == FSDP_OK);
    cr_assert(directory_lock_share(&cleaner, &io_posix, directory, &held, &err) == FSDP_OK && held);

    cr_assert(directory_lock_take_within(&ours, &io_posix, directory, 20, &held, &err) == FSDP_ERR_BUSY);
    cr_assert(ours == NULL && !held && strstr(err.message, "cleaned ") != NULL, "%s", err.message);
    directory_lock_release(&cleaner, &io_posix);
    saves(NULL, directory, &ours, 1);
    directory_lock_release(&ours, &io_posix);
}

Test(alone, a_directory_that_was_deleted_and_made_again_is_locked_again)
{
    char command[700];
    struct directory_lock *ours = NULL, *theirs = NULL;

    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    saves(NULL, directory, &ours, 1);
    cr_assert(system(command) == 0);
    saves(NULL, directory, &ours, 2);

    cr_assert(save_in(NULL, directory, &theirs, 3) == FSDP_ERR_BUSY);
    directory_lock_release(&ours, &io_posix);
}

/* As of a file that another user made: it may be read and locked, not written. */
static int open_for_reading_only(struct fsdp_io *io, const char *path, int flags, mode_t mode)
{
    if (strstr(path, "/.lock") != NULL && (flags & O_ACCMODE) != O_RDONLY) {
        errno = EACCES;
        return -1;
    }
    return io_posix.open(io, path, flags, mode);
}

static int no_lock_on_what_is_read(struct fsdp_io *io, int fd, int operation)
{
    if ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY) {
        errno = EBADF; /* as on NFS */
        return -1;
    }
    return io_posix.lock(io, fd, operation);
}

/* The words of an owner that has ended without letting go. */
static void leave_words(void)
{
    struct directory_lock *lock = NULL;
    int status;
    bool held;
    pid_t child = fork();

    if (child == 0)
        _exit(directory_lock_take(&lock, &io_posix, directory, &held, NULL) == FSDP_OK && held ? 0 : 1);
    cr_assert(waitpid(child, &status, 0) == child && status == 0);
}

Test(alone, a_lock_file_of_another_user_is_locked_and_names_no_wrong_holder)
{
    struct directory_lock *ours = NULL, *theirs = NULL;
    char *before, *after;
    struct fsdp_io other_user = io_posix;
    size_t n;
    bool held;

    other_user.open = open_for_reading_only;
    cr_assert(io_make_directories(&io_posix, directory, &err) == FSDP_OK);
    cr_assert(directory_lock_take(&ours, &other_user, directory, &held, &err) == FSDP_ERR_IO);
    cr_assert(strstr(err.message, strerror(EACCES)) != NULL, "none can be made: %s", err.message);
    for (int round = 0; round < 2; round++) { /* the words of one that ended; none, of one that let go */
        if (round == 0) {
            leave_words();
        } else {
            cr_assert(directory_lock_take(&ours, &io_posix, directory, &held, &err) == FSDP_OK);
            directory_lock_release(&ours, &io_posix);
        }
        cr_assert(io_read_file(&io_posix, files_path(directory, ".lock"), 512, &before, &n, &err) == FSDP_OK);
        saves(&other_user, directory, &ours, 1 + round);
        cr_assert(save_in(NULL, directory, &theirs, 3) == FSDP_ERR_BUSY);
        cr_assert(strstr(err.message, "another process saves to ") != NULL, "%s", err.message);
        cr_assert(io_read_file(&io_posix, files_path(directory, ".lock"), 512, &after, &n, &err) == FSDP_OK);
        cr_assert_str_eq(before, after);
        directory_lock_release(&ours, &other_user);
        free(before);
        free(after);
    }
    other_user.lock = no_lock_on_what_is_read;
    cr_assert(directory_lock_take(&ours, &other_user, directory, &held, &err) == FSDP_OK && !held);
}

/* Then the leftover may be another process's that writes it just now. */
Test(alone, a_file_system_without_locks_takes_saves_and_keeps_leftovers)
{
    struct memory_io io;
    struct io_stat stat;

    memory_io_init(&io);
    io.base.lock = files_no_locks;
    cr_assert(io_make_directories(&io.base, "c", &err) == FSDP_OK);
    cr_assert(commit_begin(&io.base, "c", ".step-00000001.g0.12345678", &err) == FSDP_OK);

    saves(&io.base, "c", NULL, 2);

    cr_assert(io.base.stat(&io.base, "c/step-00000002", &stat) == 0);
    cr_assert(io.base.stat(&io.base, "c/.step-00000001.g0.12345678", &stat) == 0);
    memory_io_fini(&io);
}

/* Leftovers, and every call of a save that fails once */

static int count_temporaries(struct fsdp_io *io)
{
    struct io_names names;
    struct commit_fence save;
    int n = 0;

    cr_assert(io->list(io, "c", &names) == 0);
    for (size_t i = 0; i < names.n; i++)
        n += commit_parse_temporary(names.names[i], &save);
    io_names_free(&names);
    return n;
}

static void save_twice(struct memory_io *io, int n)
{
    enum fsdp_status status;
    int64_t step = -1;

    saves(&io->base, "c", NULL, 40);
    cr_assert(commit_begin(&io->base, "c", ".step-00000045.g0.12345678", NULL) == FSDP_OK);
    cr_assert(io_write_file(&io->base, "c/.step-00000045.g0.12345678/x", "x", 1, NULL) == FSDP_OK);
    io->calls = 0;
    io->fail_at = n;
    status = save_in(&io->base, "c", NULL, 50);
    io->fail_at = 0;

    cr_assert(status == FSDP_OK || err.message[0] != '\0', "call %d", n);
    cr_assert(verify_newest(&io->base, "c", VERIFY_CHECKSUMS, &step, NULL, &err) == FSDP_OK);
    cr_assert(step == 50 || (step == 40 && status != FSDP_OK), "call %d: step %d", n, (int)step);
    cr_assert(save_in(&io->base, "c", NULL, 60) == FSDP_OK, "call %d: the next save: %s", n, err.message);
    cr_assert(count_temporaries(&io->base) == 0, "call %d", n);
}

Test(alone, each_call_fails_once_and_the_next_save_clears_up)
{
    cr_assert_gt(memory_io_fail_each(EIO, save_twice), 39);
}
