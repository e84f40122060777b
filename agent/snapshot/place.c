#include "agent/snapshot/place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent/snapshot/entry_files.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/require.h"

static const char lock_suffix[] = ".lock";

static enum fsdp_status open_folder(int *fd, const char *path, struct fsdp_err *err)
{
    struct stat at;

    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return file_fail(err, "create", path);
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*fd < 0)
        return file_fail(err, "open", path);
    if (fstat(*fd, &at) == 0 && at.st_uid == geteuid() && (at.st_mode & 077) == 0)
        return FSDP_OK;
    close(*fd);
    return fsdp_fail(err, FSDP_ERR_IO, "%s is refused: it must be this user's own, with mode 0700", path);
}

/* Removes `name` with all that is in it, after unmounting what is mounted there. */
static void remove_all(int folder_fd, const char *folder, const char *name)
{
    char path[PLACE_PATH_BYTES + NAME_MAX];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    /* fails if nothing is mounted there, which does not matter */
    (void)umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
    entry_remove(folder_fd, name);
}

/* Is the open file still the one with that name? Another run may have removed it as a leftover. */
static bool is_linked(int folder_fd, const char *name, int fd)
{
    struct stat held, there;

    return fstat(fd, &held) == 0 && fstatat(folder_fd, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           held.st_ino == there.st_ino && held.st_dev == there.st_dev;
}

/* Removes the place of a run if no process holds its lock. */
static void sweep_one(int folder_fd, const char *folder, const char *lock)
{
    char name[NAME_MAX + 1];
    const int fd = openat(folder_fd, lock, O_RDWR | O_NOFOLLOW | O_CLOEXEC);

    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && is_linked(folder_fd, lock, fd)) {
        snprintf(name, sizeof name, "%.*s", (int)(strlen(lock) - strlen(lock_suffix)), lock);
        remove_all(folder_fd, folder, name);
        (void)unlinkat(folder_fd, lock, 0);
    }
    if (fd >= 0)
        close(fd);
}

static void sweep(int folder_fd, const char *folder)
{
    const int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (fd >= 0 && listing == NULL)
        close(fd);
    while (listing != NULL && (entry = readdir(listing)) != NULL) {
        const size_t length = strlen(entry->d_name), suffix = strlen(lock_suffix);

        if (length > suffix && strcmp(entry->d_name + length - suffix, lock_suffix) == 0)
            sweep_one(folder_fd, folder, entry->d_name);
    }
    if (listing != NULL)
        closedir(listing);
}

/*
 * Makes the lock, and then the directory: a sweep of another run finds either nothing or a lock that is held.
 */
static enum fsdp_status claim(struct place *place, int folder_fd, const char *name, struct fsdp_err *err)
{
    char lock[PLACE_PATH_BYTES];

    snprintf(lock, sizeof lock, "%s%s", name, lock_suffix);
    for (int i = 0; i < 100; i++) {
        place->lock_fd = openat(folder_fd, lock, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (place->lock_fd < 0)
            return file_fail(err, "create", lock);
        if (flock(place->lock_fd, LOCK_EX | LOCK_NB) == 0 && is_linked(folder_fd, lock, place->lock_fd))
            break;
        close(place->lock_fd); /* a sweep has it for a moment */
        place->lock_fd = -1;
    }
    if (place->lock_fd < 0 || (mkdirat(folder_fd, name, 0700) < 0 && errno != EEXIST))
        return file_fail(err, "create", place->path);
    return FSDP_OK;
}

/*
 * Does /dev/shm have that much free memory? Without a file system of its own, the place shares it with other
 * programs.
 */
static enum fsdp_status check_shared(const char *shm, uint64_t limit_bytes, struct fsdp_err *err)
{
    struct statvfs at;
    uint64_t size;

    if (statvfs(shm, &at) < 0)
        return file_fail(err, "look at", shm);
    size = (uint64_t)at.f_blocks * at.f_frsize;
    if (size >= limit_bytes)
        return FSDP_OK;
    return fsdp_fail(
        err, FSDP_ERR_CONFIG,
        "--snapshot-memory: %s holds %llu MiB at most, and %llu MiB are asked for (in a container it "
        "is made larger by --shm-size)",
        shm, (unsigned long long)(size >> 20), (unsigned long long)(limit_bytes >> 20));
}

static enum fsdp_status default_limit(const char *shm, int64_t *limit_bytes)
{
    struct statvfs at;

    if (statvfs(shm, &at) < 0 || access(shm, W_OK | X_OK) < 0)
        return FSDP_ERR_IO;
    *limit_bytes = (int64_t)((uint64_t)at.f_blocks * at.f_frsize / 2);
    return *limit_bytes > 0 ? FSDP_OK : FSDP_ERR_IO;
}

static bool is_removed(int folder_fd)
{
    struct stat at;

    return fstat(folder_fd, &at) == 0 && at.st_nlink == 0;
}

static enum fsdp_status make(struct place *place, const char *shm, bool mounts, struct fsdp_err *err)
{
    char folder[PLACE_PATH_BYTES / 2], name[32], options[64];
    enum fsdp_status status = FSDP_OK;
    bool is_gone = true;
    unsigned mark = 0;

    /* the process id alone is not unique: runs of several pid namespaces may share /dev/shm */
    (void)getrandom(&mark, sizeof mark, 0);
    snprintf(folder, sizeof folder, "%s/fsdprun-%u", shm, geteuid());
    snprintf(name, sizeof name, "run-%d-%08x", (int)getpid(), mark);
    snprintf(place->path, sizeof place->path, "%s/%s", folder, name);
    /* tries again: another run that ends may remove the folder meanwhile */
    for (int i = 0; i < 100 && is_gone; i++) {
        int folder_fd = -1;

        OK_OR_RETURN(open_folder(&folder_fd, folder, err));
        sweep(folder_fd, folder);
        status = claim(place, folder_fd, name, err);
        is_gone = status != FSDP_OK && is_removed(folder_fd);
        close(folder_fd);
    }
    snprintf(options, sizeof options, "mode=0700,size=%llu", (unsigned long long)place->limit_bytes);
    if (status == FSDP_OK && mounts)
        place->is_mounted = mount("fsdprun", place->path, "tmpfs", MS_NOSUID | MS_NODEV, options) == 0;
    if (status == FSDP_OK && !place->is_mounted)
        status = check_shared(shm, place->limit_bytes, err);
    return status;
}

enum fsdp_status place_make_in(struct place *place, const char *shm, int64_t limit_bytes, bool mounts,
                               struct fsdp_err *err)
{
    const bool asked = limit_bytes > 0;
    enum fsdp_status status;

    *place = (struct place){ .lock_fd = -1 };
    if (limit_bytes == 0 || (limit_bytes < 0 && default_limit(shm, &limit_bytes) != FSDP_OK))
        return FSDP_OK;
    place->limit_bytes = (uint64_t)limit_bytes;
    status = make(place, shm, mounts && asked, err);
    if (status != FSDP_OK) {
        place_remove(place);
        *place = (struct place){ .lock_fd = -1 };
    }
    return asked ? status : FSDP_OK;
}

enum fsdp_status place_make(struct place *place, int64_t limit_bytes, struct fsdp_err *err)
{
    return place_make_in(place, "/dev/shm", limit_bytes, true, err);
}

void place_remove(struct place *place)
{
    char folder[PLACE_PATH_BYTES], lock[PLACE_PATH_BYTES];
    const char *name = strrchr(place->path, '/');
    int folder_fd;

    if (place->path[0] == '\0' || place->lock_fd < 0)
        return;
    snprintf(folder, sizeof folder, "%.*s", (int)(name - place->path), place->path);
    snprintf(lock, sizeof lock, "%s%s", ++name, lock_suffix);
    folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder_fd >= 0) {
        remove_all(folder_fd, folder, name);
        (void)unlinkat(folder_fd, lock, 0);
        close(folder_fd);
        (void)rmdir(folder); /* succeeds for the last run */
    }
    close(place->lock_fd);
    place->path[0] = '\0';
    place->lock_fd = -1;
}
