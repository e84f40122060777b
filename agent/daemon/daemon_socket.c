#include "agent/daemon/daemon_impl.h"
#include "shard_runtime/core/files.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/*
 * Check that no other user but root could replace the socket. The folder must belong to this user or root,
 * and no other user may write to it, unless it is sticky as /tmp is.
 */
static enum fsdp_status check_folder(const char *path, struct fsdp_err *err)
{
    char copy[sizeof((struct sockaddr_un *)0)->sun_path];
    const char *folder;
    struct stat stat;

    snprintf(copy, sizeof copy, "%s", path);
    folder = dirname(copy);
    if (mkdir(folder, 0700) < 0 && errno != EEXIST)
        return file_fail(err, "create", folder);
    if (lstat(folder, &stat) < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "%s: %s", folder, strerror(errno));
    if (!S_ISDIR(stat.st_mode))
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%s is no directory", folder);
    if ((stat.st_uid != geteuid() && stat.st_uid != 0) ||
        ((stat.st_mode & 022) != 0 && (stat.st_mode & S_ISVTX) == 0))
        return fsdp_fail(err, FSDP_ERR_CONFIG,
                         "others may write %s: an agent's socket needs a folder of its user's own", folder);
    return FSDP_OK;
}

static enum fsdp_status take_lock(const char *path, int *lock_fd, struct fsdp_err *err)
{
    char name[sizeof((struct sockaddr_un *)0)->sun_path + 8];
    enum fsdp_status status;

    snprintf(name, sizeof name, "%s.lock", path);
    for (;;) {
        *lock_fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        if (*lock_fd < 0)
            return file_fail(err, "open", name);
        if (flock(*lock_fd, LOCK_EX | LOCK_NB) < 0)
            break;
        if (daemon_is_at(*lock_fd, name))
            return FSDP_OK;
        close(*lock_fd); /* its last holder removed it */
    }
    status = errno == EWOULDBLOCK ? fsdp_fail(err, FSDP_ERR_BUSY, "another agent serves %s", path)
                                  : file_fail(err, "lock", name);
    close(*lock_fd); /* not ours */
    *lock_fd = -1;
    return status;
}

/* Remove a socket that is left over. We hold the lock, so no daemon serves it. Another file is refused. */
static enum fsdp_status remove_stale(const char *path, struct fsdp_err *err)
{
    struct stat stat;

    if (lstat(path, &stat) < 0)
        return errno == ENOENT ? FSDP_OK : fsdp_fail(err, FSDP_ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISSOCK(stat.st_mode) || stat.st_uid != geteuid())
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%s is there and is no socket of ours", path);
    if (unlink(path) < 0)
        return file_fail(err, "remove", path);
    return FSDP_OK;
}

static enum fsdp_status bind_socket(const char *path, int *listen_fd, struct fsdp_err *err)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    mode_t before;
    int bound;

    memcpy(address.sun_path, path, strlen(path) + 1);
    *listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*listen_fd < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "socket: %s", strerror(errno));
    before = umask(0177); /* mode 0600 from the beginning: a chmod would come too late */
    bound = bind(*listen_fd, (struct sockaddr *)&address, sizeof address);
    umask(before);
    if (bound < 0 || listen(*listen_fd, 64) < 0)
        return file_fail(err, "listen on", path);
    return FSDP_OK;
}

enum fsdp_status daemon_listen(const char *path, int *listen_fd, int *lock_fd, struct fsdp_err *err)
{
    enum fsdp_status status;

    *listen_fd = *lock_fd = -1;
    if (path[0] == '\0' || strlen(path) >= sizeof((struct sockaddr_un *)0)->sun_path)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "a socket's path has 1 to %zu bytes: %s",
                         sizeof((struct sockaddr_un *)0)->sun_path - 1, path);
    status = check_folder(path, err);
    if (status == FSDP_OK)
        status = take_lock(path, lock_fd, err);
    if (status == FSDP_OK)
        status = remove_stale(path, err);
    if (status == FSDP_OK)
        status = bind_socket(path, listen_fd, err);
    if (status != FSDP_OK) {
        if (*listen_fd >= 0)
            close(*listen_fd);
        if (*lock_fd >= 0)
            daemon_unlock(path, *lock_fd);
        *listen_fd = *lock_fd = -1;
    }
    return status;
}

void daemon_unlock(const char *path, int lock_fd)
{
    char name[sizeof((struct sockaddr_un *)0)->sun_path + 8];

    snprintf(name, sizeof name, "%s.lock", path);
    unlink(name); /* while we hold the lock, the file is ours */
    close(lock_fd);
}

enum fsdp_status daemon_adopt(const char *path, int *lock_fd, struct fsdp_err *err)
{
    enum fsdp_status status = check_folder(path, err);

    *lock_fd = -1;
    if (status == FSDP_OK)
        status = take_lock(path, lock_fd, err);
    if (status != FSDP_OK && *lock_fd >= 0) {
        close(*lock_fd);
        *lock_fd = -1;
    }
    return status;
}
