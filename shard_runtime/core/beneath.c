#include "shard_runtime/core/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shard_runtime/core/files.h"

enum {
    LINKS_MOST = 40, /* the kernel's own limit, path_resolution(7) */
    STEP = O_PATH | O_DIRECTORY,
};

const char *beneath_words(int error)
{
    return error == ELOOP ? "a symbolic link of another user, or a loop of links, is not followed"
                          : strerror(error);
}

static void close_keeping_errno(int fd)
{
    const int error = errno;

    (void)close(fd);
    errno = error;
}

/* Ownership of files and links */

/*
 * Finds out which user this file system assigns to our files: creates a file, reads its owner and removes the
 * file.
 */
static bool find_own_user(int folder_fd, uid_t *user)
{
    char name[64];
    uint64_t random;
    struct stat info;
    bool found;
    int fd;

    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return false;
    snprintf(name, sizeof name, ".fsdprun-who-%016" PRIx64, random);
    fd = openat(folder_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    found = fstat(fd, &info) == 0;
    (void)unlinkat(folder_fd, name, 0);
    (void)close(fd);
    if (found)
        *user = info.st_uid;
    return found;
}

static bool is_trusted(uid_t owner, int folder_fd)
{
    uid_t own;

    return owner == geteuid() || owner == 0 || (find_own_user(folder_fd, &own) && own == owner);
}

enum fsdp_status beneath_open_root(int *fd, const char *path, struct fsdp_err *err)
{
    struct stat info;

    *fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0)
        return file_fail(err, "open", path);
    if (fstat(*fd, &info) == 0 && ((info.st_mode & S_IWOTH) == 0 || is_trusted(info.st_uid, *fd)))
        return FSDP_OK;
    (void)close(*fd);
    *fd = -1;
    return fsdp_fail(
        err, FSDP_ERR_CONFIG,
        "the directory %s belongs to user %lu, and everyone may write to it: use another one, or have "
        "its owner run chmod o-w on it",
        path, (unsigned long)info.st_uid);
}

/* Walking a path from the root */

static int walk(int root_fd, const char *path, int flags, mode_t mode, int *n_links);

/*
 * Opens `name`, which could not be opened without following links. Follows it if it is a link that may be
 * followed.
 */
static int follow(int folder_fd, const char *name, int flags, mode_t mode, int *n_links)
{
    char target[PATH_MAX];
    struct stat info;
    ssize_t length;
    int fd = openat(folder_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return -1;
    if (fstat(fd, &info) < 0 || !S_ISLNK(info.st_mode)) {
        (void)close(fd);
        errno = ENOTDIR;
        return -1;
    }
    length = readlinkat(fd, "", target, sizeof target - 1);
    (void)close(fd);
    if (length < 0 || ++*n_links > LINKS_MOST || !is_trusted(info.st_uid, folder_fd)) {
        errno = ELOOP;
        return -1;
    }
    target[length] = '\0';
    return target[0] == '/' ? open(target, flags | O_CLOEXEC, mode)
                            : walk(folder_fd, target, flags, mode, n_links);
}

/*
 * Opens one name of a path. O_PATH alone would open the link itself; with O_DIRECTORY the kernel reports
 * ENOTDIR instead.
 */
static int step(int folder_fd, const char *name, int flags, mode_t mode, int *n_links)
{
    const int fd = openat(folder_fd, name, flags | O_NOFOLLOW | O_CLOEXEC, mode);

    if (fd >= 0 || (errno != ELOOP && errno != ENOTDIR) || (flags & O_NOFOLLOW) != 0)
        return fd;
    return follow(folder_fd, name, flags, mode, n_links);
}

/*
 * Copies the next name of *path and moves *path past it. Returns false if there is none, or if it is too
 * long.
 */
static bool next_name(const char **path, char name[NAME_MAX + 1])
{
    size_t length;

    *path += strspn(*path, "/");
    length = strcspn(*path, "/");
    if (length == 0 || length > NAME_MAX)
        return false;
    memcpy(name, *path, length);
    name[length] = '\0';
    *path += length;
    *path += strspn(*path, "/");
    return true;
}

static int walk(int root_fd, const char *path, int flags, mode_t mode, int *n_links)
{
    char name[NAME_MAX + 1];
    int at = root_fd, next;

    while (next_name(&path, name)) {
        const bool last = *path == '\0';

        next = step(at, name, last ? flags : STEP, last ? mode : 0, n_links);
        if (at != root_fd)
            close_keeping_errno(at);
        if (last || next < 0)
            return next;
        at = next;
    }
    if (at != root_fd)
        (void)close(at);
    errno = ENAMETOOLONG;
    return -1;
}

int beneath_open(int root_fd, const char *path, int flags, mode_t mode)
{
    int n_links = 0;

    return walk(root_fd, path[0] == '\0' ? "." : path, flags, mode, &n_links);
}

int beneath_make_folders(int root_fd, const char *path)
{
    char name[NAME_MAX + 1];
    int n_links = 0, at = openat(root_fd, ".", STEP | O_CLOEXEC), next;

    while (at >= 0 && *path != '\0') {
        int error;

        if (!next_name(&path, name)) {
            (void)close(at);
            errno = ENAMETOOLONG;
            return -1;
        }
        /*
         * Some systems report EROFS or EACCES for a directory that exists. So the test is whether it can be
         * opened.
         */
        error = mkdirat(at, name, 0777) < 0 ? errno : 0;
        next = step(at, name, STEP, 0, &n_links);
        if (next < 0 && errno == ENOENT && error != EEXIST)
            errno = error;
        close_keeping_errno(at);
        at = next;
    }
    return at;
}

int beneath_open_folder(int root_fd, const char *path, const char **name)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];

    *name = slash == NULL ? path : slash + 1;
    if (slash == NULL || slash == path)
        return beneath_open(root_fd, ".", STEP, 0);
    if ((size_t)(slash - path) >= sizeof folder) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(folder, path, (size_t)(slash - path));
    folder[slash - path] = '\0';
    return beneath_open(root_fd, folder, STEP, 0);
}

/* Files of a run directory */

enum fsdp_status beneath_open_record(int *fd, int root_fd, const char *path, struct fsdp_err *err)
{
    struct stat info;

    /* O_NONBLOCK: opening must not block if the name is a FIFO; its type is checked below. */
    *fd = beneath_open(root_fd, path, O_RDWR | O_APPEND | O_CREAT | O_NONBLOCK | O_NOCTTY, 0666);
    if (*fd < 0)
        return fsdp_fail(err,
                         errno == ELOOP || errno == EISDIR || errno == ENXIO ? FSDP_ERR_CONFIG : FSDP_ERR_IO,
                         "open %s: %s", path, beneath_words(errno));
    if (fstat(*fd, &info) == 0 && (S_ISREG(info.st_mode) || S_ISCHR(info.st_mode)))
        return FSDP_OK;
    (void)close(*fd);
    *fd = -1;
    errno = EINVAL;
    return fsdp_fail(err, FSDP_ERR_CONFIG, "%s is no regular file", path);
}

enum fsdp_status beneath_check_link(int root_fd, const char *name, struct fsdp_err *err)
{
    struct stat info;
    char first;

    /* If another file system is mounted at this name, readlink() does not contact it, but stat() would. */
    if (readlinkat(root_fd, name, &first, sizeof first) < 0 ||
        fstatat(root_fd, name, &info, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISLNK(info.st_mode) ||
        is_trusted(info.st_uid, root_fd))
        return FSDP_OK;
    return fsdp_fail(err, FSDP_ERR_CONFIG, "%s is a symbolic link of user %lu, which is not followed", name,
                     (unsigned long)info.st_uid);
}
