#include "shard_runtime/shardfile/directory_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>

#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/holder.h"

struct directory_lock {
    struct directory_lock *next;
    int fd;
    uint64_t device, inode; /* identity of the lock file */
};

static enum fsdp_status open_lock_file(struct fsdp_io *io, const char *path, int *fd, struct io_stat *stat,
                                       struct fsdp_err *err)
{
    /* O_NONBLOCK: opening must not block if the name is a fifo. */
    *fd = io_open(io, path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0666);
    /* The file belongs to another user. A lock needs only read access. */
    if (*fd < 0 && errno == EACCES) {
        *fd = io_open(io, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
        if (*fd < 0)
            errno = EACCES;
    }
    if (*fd < 0)
        return file_fail(err, "open", path);
    if (io->fstat(io, *fd, stat) < 0)
        return file_fail(err, "stat", path);
    if (stat->kind != IO_FILE)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%s is not a regular file", path);
    return FSDP_OK;
}

/*
 * Writes into the lock file which process holds the lock, for people to read. Failures are ignored: a full
 * disk, or a file of another user, must not prevent the lock.
 */
static void sign(struct fsdp_io *io, int fd)
{
    char words[HOLDER_BYTES];
    const size_t length = holder_words(words);

    if (io->ftruncate(io, fd, 0) == 0)
        (void)io->pwrite(io, fd, words, length, 0);
}

static enum fsdp_status say_who(struct fsdp_io *io, int fd, const char *directory, struct fsdp_err *err)
{
    char words[HOLDER_BYTES] = "";
    const ssize_t n = io->pread(io, fd, words, sizeof words - 1, 0);

    words[n > 0 ? (size_t)n : 0] = '\0';
    words[strcspn(words, "\n")] = '\0';
    if (!holder_may_live(words)) /* the holder could not write; this text is of an earlier holder */
        words[0] = '\0';
    return fsdp_fail(err, FSDP_ERR_BUSY,
                     "another process%s%s%s saves to %s, and two cannot share a directory of checkpoints",
                     words[0] != '\0' ? " (" : "", words, words[0] != '\0' ? ")" : "", directory);
}

/*
 * Takes the exclusive lock of the file `fd` for this owner:
 *   1. If the lock is free, the function takes it and returns 0.
 *   2. If the lock can be shared, the processes that hold it only clean. The function tries again, for up to
 *      wait_ms, and then fails with errno ETIME.
 *   3. If the lock cannot be shared either, a process saves, and the function fails with EWOULDBLOCK at once.
 *
 * A blocking flock(2) is no alternative: it would also wait for a process that saves.
 */
static int lock_alone(struct fsdp_io *io, int fd, int wait_ms)
{
    const struct timespec pause = { .tv_nsec = 5000000 };
    const int64_t end_ms = clock_now_ms() + wait_ms;

    while (io->lock(io, fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK || io->lock(io, fd, LOCK_SH | LOCK_NB) < 0)
            return -1;
        (void)io->lock(io, fd, LOCK_UN); /* otherwise two waiting processes would block each other */
        if (clock_now_ms() >= end_ms) {
            errno = ETIME;
            return -1;
        }
        (void)nanosleep(&pause, NULL);
    }
    return 0;
}

/* Locks the file: exclusively with wait_ms >= 0, shared with wait_ms < 0. */
static enum fsdp_status lock_file(struct fsdp_io *io, int fd, const char *directory, int wait_ms, bool *held,
                                  struct fsdp_err *err)
{
    if ((wait_ms < 0 ? io->lock(io, fd, LOCK_SH | LOCK_NB) : lock_alone(io, fd, wait_ms)) == 0) {
        *held = true;
        if (wait_ms >= 0)
            sign(io, fd);
        return FSDP_OK;
    }
    if (errno == EWOULDBLOCK)
        return say_who(io, fd, directory, err);
    if (errno == ETIME)
        return fsdp_fail(
            err, FSDP_ERR_BUSY,
            "another process has cleaned %s for %d s without end; it may be stopped, and is one that "
            "`fuser %s/.lock` names",
            directory, wait_ms / 1000, directory);
    if (io_has_no_locks(errno)) /* saving matters more than the lock */
        return FSDP_OK;
    return fsdp_fail(err, FSDP_ERR_IO, "lock %s/.lock: %s", directory, file_error_words(errno));
}

static bool is_held(const struct directory_lock *lock, const struct io_stat *stat)
{
    while (lock != NULL && (lock->device != stat->device || lock->inode != stat->inode))
        lock = lock->next;
    return lock != NULL;
}

static enum fsdp_status add_lock(struct directory_lock **locks, struct fsdp_io *io, const char *directory,
                                 int wait_ms, bool *held, struct fsdp_err *err)
{
    struct directory_lock *lock = NULL;
    char path[IO_PATH_BYTES];
    struct io_stat stat;
    enum fsdp_status status;
    int fd = -1;

    *held = false;
    status = io_join(path, directory, ".lock", err);
    if (status == FSDP_OK)
        status = open_lock_file(io, path, &fd, &stat, err);
    if (status != FSDP_OK)
        goto done;
    /* Compare the file each time: the directory may have been deleted and created again since. */
    if (is_held(*locks, &stat)) {
        *held = true;
        goto done;
    }
    lock = malloc(sizeof *lock);
    if (lock == NULL) {
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "locking %s: out of memory", directory);
        goto done;
    }
    status = lock_file(io, fd, directory, wait_ms, held, err);
    if (*held) {
        *lock =
            (struct directory_lock){ .next = *locks, .fd = fd, .device = stat.device, .inode = stat.inode };
        *locks = lock;
        return FSDP_OK;
    }
    free(lock);
done:
    if (fd >= 0)
        (void)io->close(io, fd);
    return status;
}

enum fsdp_status directory_lock_take(struct directory_lock **locks, struct fsdp_io *io, const char *directory,
                                     bool *held, struct fsdp_err *err)
{
    return add_lock(locks, io, directory, DIRECTORY_LOCK_WAIT_MS, held, err);
}

enum fsdp_status directory_lock_take_within(struct directory_lock **locks, struct fsdp_io *io,
                                            const char *directory, int wait_ms, bool *held,
                                            struct fsdp_err *err)
{
    return add_lock(locks, io, directory, wait_ms, held, err);
}

enum fsdp_status directory_lock_share(struct directory_lock **locks, struct fsdp_io *io,
                                      const char *directory, bool *held, struct fsdp_err *err)
{
    return add_lock(locks, io, directory, -1, held, err);
}

void directory_lock_release(struct directory_lock **locks, struct fsdp_io *io)
{
    while (*locks != NULL) {
        struct directory_lock *lock = *locks;

        *locks = lock->next;
        /*
         * Remove the text that names this process. This fails, without harm, for a file that is open
         * read-only.
         */
        (void)io->ftruncate(io, lock->fd, 0);
        /* Unlock explicitly: a child that was forked in the meantime shares the open file. */
        (void)io->lock(io, lock->fd, LOCK_UN);
        (void)io->close(io, lock->fd);
        free(lock);
    }
}
