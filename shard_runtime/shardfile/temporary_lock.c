#include "shard_runtime/shardfile/temporary_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

#include "shard_runtime/shardfile/commit.h"

/* 0, or an errno; ESTALE: what stands under the name is another directory by the time the lock is there, or none. */
static int check_name(struct fsdp_io *io, int fd, const char *path)
{
    struct io_stat locked, named;

    if (io->fstat(io, fd, &locked) < 0)
        return errno;
    if (io->stat(io, path, &named) < 0)
        return errno == ENOENT ? ESTALE : errno;
    return locked.device == named.device && locked.inode == named.inode ? 0 : ESTALE;
}

/* The descriptor of the directory, locked; -1 with errno: ESTALE if the name is no longer this directory's. */
static int open_locked(struct fsdp_io *io, const char *path, int operation)
{
    int fd, result, error;

    do
        fd = io->open(io, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return -1;
    do
        result = io->lock(io, fd, operation);
    while (result < 0 && errno == EINTR);
    error = result == 0 ? check_name(io, fd, path) : errno;
    if (error == 0)
        return fd;
    (void)io->close(io, fd);
    errno = error;
    return -1;
}

enum fsdp_status temporary_hold(struct fsdp_io *io, const char *directory, const char *temporary, int *fd,
                                struct fsdp_err *err)
{
    char path[IO_PATH_BYTES];
    enum fsdp_status status = io_join(path, directory, temporary, err);

    *fd = -1;
    do {
        if (status == FSDP_OK)
            status = commit_begin(io, directory, temporary, err);
        if (status != FSDP_OK)
            return status;
        *fd = open_locked(io, path, LOCK_SH);
    } while (*fd < 0 && (errno == ENOENT || errno == ESTALE)); /* it was being removed */
    return *fd >= 0 || io_has_no_locks(errno)
               ? FSDP_OK
               : fsdp_fail(err, FSDP_ERR_IO, "lock %s: %s", path, strerror(errno));
}

enum fsdp_status temporary_claim(struct fsdp_io *io, const char *path, int *fd, struct fsdp_err *err)
{
    *fd = open_locked(io, path, LOCK_EX | LOCK_NB);
    /* A link under our name is removed itself, and needs no lock. */
    if (*fd >= 0 || io_has_no_locks(errno) || errno == ENOENT || errno == ENOTDIR || errno == ELOOP)
        return FSDP_OK;
    if (errno == EWOULDBLOCK || errno == ESTALE)
        return fsdp_fail(err, FSDP_ERR_BUSY, "another process uses it");
    return fsdp_fail(err, FSDP_ERR_IO, "lock %s: %s", path, strerror(errno));
}
