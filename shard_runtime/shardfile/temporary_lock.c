#include "shard_runtime/shardfile/temporary_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

#include "shard_runtime/core/files.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/commit.h"

/*
 * Checks that `path` still names the locked directory `fd`. Returns 0 or an errno. ESTALE means that the name
 * was removed, or given to another directory, before the lock was granted.
 */
static int check_name(struct fsdp_io *io, int fd, const char *path)
{
    struct io_stat locked, named;

    if (io->fstat(io, fd, &locked) < 0)
        return errno;
    if (io->stat(io, path, &named) < 0)
        return errno == ENOENT ? ESTALE : errno;
    return locked.device == named.device && locked.inode == named.inode ? 0 : ESTALE;
}

/*
 * Opens and locks the directory and returns its descriptor. Returns -1 with errno on failure. ESTALE means
 * that the name no longer belongs to this directory.
 */
static int open_locked(struct fsdp_io *io, const char *path, int operation)
{
    int fd, result, error;

    fd = io_open(io, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
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

    *fd = -1;
    OK_OR_RETURN(io_join(path, directory, temporary, err));
    do {
        OK_OR_RETURN(commit_begin(io, directory, temporary, err));
        *fd = open_locked(io, path, LOCK_SH);
    } while (*fd < 0 && (errno == ENOENT || errno == ESTALE)); /* another process was removing it */
    return *fd >= 0 || io_has_no_locks(errno) ? FSDP_OK : file_fail(err, "lock", path);
}

enum fsdp_status temporary_claim(struct fsdp_io *io, const char *path, int *fd, struct fsdp_err *err)
{
    *fd = open_locked(io, path, LOCK_EX | LOCK_NB);
    /* ELOOP: a link has one of our names. The caller removes the link itself, which needs no lock. */
    if (*fd >= 0 || io_has_no_locks(errno) || errno == ENOENT || errno == ENOTDIR || errno == ELOOP)
        return FSDP_OK;
    if (errno == EWOULDBLOCK || errno == ESTALE)
        return fsdp_fail(err, FSDP_ERR_BUSY, "another process uses it");
    return file_fail(err, "lock", path);
}
