#include "shard_runtime/shardfile/directory_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>

#include "shard_runtime/core/holder.h"

struct directory_lock {
    struct directory_lock *next;
    int fd;
    uint64_t device, inode; /* of the lock file */
};

static enum fsdp_status open_lock_file(struct fsdp_io *io, const char *path, int *fd, struct io_stat *stat,
                                       struct fsdp_err *err)
{
    /* O_NONBLOCK: a fifo under this name must not hold us. */
    do
        *fd = io->open(io, path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0666);
    while (*fd < 0 && errno == EINTR);
    if (*fd < 0 && errno == EACCES) { /* another user's: reading is enough for a lock */
        do
            *fd = io->open(io, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
        while (*fd < 0 && errno == EINTR);
        if (*fd < 0)
            errno = EACCES;
    }
    if (*fd < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "open %s: %s", path, strerror(errno));
    if (io->fstat(io, *fd, stat) < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "stat %s: %s", path, strerror(errno));
    if (stat->kind != IO_FILE)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%s is not a regular file", path);
    return FSDP_OK;
}

/*
 * Leave our words for others to read. They are for people: a full disk, or another user's file, must not keep a lock from
 * being held.
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
    if (!holder_may_live(words)) /* the holder could not write, and these are of one before it */
        words[0] = '\0';
    return fsdp_fail(err, FSDP_ERR_BUSY,
                     "another process%s%s%s saves to %s, and two cannot share a directory of checkpoints",
                     words[0] != '\0' ? " (" : "", words, words[0] != '\0' ? ")" : "", directory);
}

/*
 * Lock it for ourselves. Where it can be shared, those that have it only clean, and are waited for. flock(2) cannot do this:
 * it would wait for a process that saves as well.
 */
static int lock_alone(struct fsdp_io *io, int fd)
{
    const struct timespec pause = { .tv_nsec = 5000000 };

    while (io->lock(io, fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK || io->lock(io, fd, LOCK_SH | LOCK_NB) < 0)
            return -1;
        (void)io->lock(io, fd, LOCK_UN); /* or two that wait would wait for each other */
        (void)nanosleep(&pause, NULL);
    }
    return 0;
}

static enum fsdp_status lock_file(struct fsdp_io *io, int fd, const char *directory, bool shared, bool *held,
                                  struct fsdp_err *err)
{
    if ((shared ? io->lock(io, fd, LOCK_SH | LOCK_NB) : lock_alone(io, fd)) == 0) {
        *held = true;
        if (!shared)
            sign(io, fd);
        return FSDP_OK;
    }
    if (errno == EWOULDBLOCK)
        return say_who(io, fd, directory, err);
    if (io_has_no_locks(errno)) /* a save is worth more */
        return FSDP_OK;
    return fsdp_fail(err, FSDP_ERR_IO, "lock %s/.lock: %s", directory, strerror(errno));
}

static bool is_held(const struct directory_lock *lock, const struct io_stat *stat)
{
    while (lock != NULL && (lock->device != stat->device || lock->inode != stat->inode))
        lock = lock->next;
    return lock != NULL;
}

static enum fsdp_status add_lock(struct directory_lock **locks, struct fsdp_io *io, const char *directory,
                                 bool shared, bool *held, struct fsdp_err *err)
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
    /* Looked up by the file each time: the directory may have been deleted and made again since. */
    if (is_held(*locks, &stat)) {
        *held = true;
        goto done;
    }
    lock = malloc(sizeof *lock);
    if (lock == NULL) {
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "locking %s: out of memory", directory);
        goto done;
    }
    status = lock_file(io, fd, directory, shared, held, err);
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
    return add_lock(locks, io, directory, false, held, err);
}

enum fsdp_status directory_lock_share(struct directory_lock **locks, struct fsdp_io *io, const char *directory,
                                      bool *held, struct fsdp_err *err)
{
    return add_lock(locks, io, directory, true, held, err);
}

void directory_lock_release(struct directory_lock **locks, struct fsdp_io *io)
{
    while (*locks != NULL) {
        struct directory_lock *lock = *locks;

        *locks = lock->next;
        (void)io->ftruncate(io, lock->fd, 0); /* our words; of a file that we may only read it fails */
        (void)io->lock(io, lock->fd, LOCK_UN); /* a child forked meanwhile has the open file, too */
        (void)io->close(io, lock->fd);
        free(lock);
    }
}
