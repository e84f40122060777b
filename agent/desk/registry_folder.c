#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/desk/registry_impl.h"
#include "agent/record/rundir.h"
#include "shard_runtime/core/files.h"

/*
 * A directory of another user is no runtime directory of ours. sudo may keep the variable, and its user could
 * not use a folder that root made there.
 */
static bool is_directory_of(uid_t owner, const char *path)
{
    struct stat at;

    return path != NULL && path[0] == '/' && stat(path, &at) == 0 && S_ISDIR(at.st_mode) &&
           at.st_uid == owner;
}

static bool path_at(int i, uid_t owner, const char *runtime, const char *temporary, char *path)
{
    int n;

    if (i == 0 && !is_directory_of(owner, runtime))
        return false;
    n = i == 0 ? snprintf(path, REGISTRY_PATH_BYTES, "%s/fsdprun", runtime)
               : snprintf(path, REGISTRY_PATH_BYTES, "%s/fsdprun-%u", temporary, owner);
    return n > 0 && n < REGISTRY_PATH_BYTES;
}

bool registry_folder_path(int i, char *path)
{
    return path_at(i, geteuid(), getenv("XDG_RUNTIME_DIR"), rundir_temporary(), path);
}

bool registry_folder_of(uid_t owner, const char *runtime_dir, const char *temporary, char *path)
{
    return path_at(0, owner, runtime_dir, NULL, path) ||
           path_at(1, owner, NULL, rundir_temporary_of(temporary), path);
}

enum fsdp_status registry_folder_open(const char *path, bool create, uid_t owner, int *fd,
                                      struct fsdp_err *err)
{
    struct stat at;

    *fd = -1;
    if (create && mkdir(path, 0700) < 0 && errno != EEXIST)
        return file_fail(err, "create", path);
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*fd < 0 && errno == ENOENT)
        return create ? file_fail(err, "open", path) : FSDP_OK;
    if (*fd < 0 && (errno == ELOOP || errno == ENOTDIR))
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%s is refused: it is a symbolic link, or no directory", path);
    if (*fd < 0 && errno != EACCES)
        return file_fail(err, "open", path);
    if (*fd >= 0 && fstat(*fd, &at) == 0 && at.st_uid == owner && (at.st_mode & 077) == 0)
        return FSDP_OK;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    if (owner == geteuid())
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%s is refused: it must be this user's own, with mode 0700",
                         path);
    return fsdp_fail(err, FSDP_ERR_CONFIG, "%s is refused: it must be of user %u, with mode 0700", path,
                     owner);
}

enum fsdp_status registry_folder(char *path, struct fsdp_err *err)
{
    enum fsdp_status status;
    int fd;

    if (!registry_folder_path(0, path) && !registry_folder_path(1, path))
        return fsdp_fail(err, FSDP_ERR_IO, "the path of the registry is too long");
    status = registry_folder_open(path, true, geteuid(), &fd, err);
    if (fd >= 0)
        close(fd);
    return status;
}

bool registry_is_held(int fd)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

    return fcntl(fd, F_GETLK, &lock) < 0 || lock.l_type != F_UNLCK;
}

bool registry_address(struct sockaddr_un *address, int fd, const char *name)
{
    *address = (struct sockaddr_un){ .sun_family = AF_UNIX };
    return snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d/%s", fd, name) <
           (int)sizeof address->sun_path;
}
