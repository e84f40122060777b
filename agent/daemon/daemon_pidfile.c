#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/daemon/daemon_impl.h"
#include "shard_runtime/core/files.h"

/*
 * Is `fd` still the file at `path`? Its last holder may have removed it between our open and our lock. Then
 * we have locked a file without a name, which keeps no other process out.
 */
bool daemon_is_at(int fd, const char *path)
{
    struct stat held, there;

    return fstat(fd, &held) == 0 && stat(path, &there) == 0 && held.st_dev == there.st_dev &&
           held.st_ino == there.st_ino;
}

/* Open and lock the file. If another daemon has locked it, the error names the process id in the file. */
static enum fsdp_status lock(const char *path, int *fd, struct fsdp_err *err)
{
    char holder[32] = "";
    ssize_t n;

    for (;;) {
        *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
        if (*fd < 0)
            return file_fail(err, "open", path);
        if (flock(*fd, LOCK_EX | LOCK_NB) < 0)
            break;
        if (daemon_is_at(*fd, path))
            return FSDP_OK;
        close(*fd);
    }
    if (errno != EWOULDBLOCK)
        return file_fail(err, "lock", path);
    n = read(*fd, holder, sizeof holder - 1);
    holder[n < 0 ? 0 : n] = '\0';
    holder[strcspn(holder, "\n")] = '\0';
    return fsdp_fail(err, FSDP_ERR_BUSY, "%s is another agent's (pid %s)", path, holder);
}

enum fsdp_status daemon_pidfile_take(const char *path, int *fd, struct fsdp_err *err)
{
    char text[32];
    const int n = snprintf(text, sizeof text, "%d\n", (int)getpid());
    enum fsdp_status status = lock(path, fd, err);

    if (status == FSDP_OK && (ftruncate(*fd, 0) < 0 || write(*fd, text, (size_t)n) != n))
        status = file_fail(err, "write", path);
    if (status != FSDP_OK && *fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    return status;
}

void daemon_pidfile_drop(const char *path, int fd)
{
    if (fd < 0)
        return;
    unlink(path); /* while we hold the lock, the file is ours */
    close(fd);
}
