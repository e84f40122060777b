#include "agent/snapshot/entry_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shard_runtime/core/beneath.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/require.h"

enum { DEPTH_MAX = 32, FOLDER_FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };

static const char unfinished[] = ".fsdprun-part";

/*
 * Walks everything below a name: first the contents of a directory, then the directory. If `visit` returns
 * false, the walk ends and returns false.
 */
typedef bool visitor(void *arg, int folder_fd, const char *name, const char *path, const struct stat *at);

struct walk {
    visitor *visit;
    void *arg;
    char path[PATH_MAX]; /* below the directory in which the walk began */
};

static bool walk_from(struct walk *walk, int folder_fd, const char *name, size_t length, int depth)
{
    const size_t end = length + strlen(name);
    struct dirent *entry;
    bool goes_on = true;
    struct stat at;
    DIR *folder;
    int fd;

    if (end + 1 >= sizeof walk->path || fstatat(folder_fd, name, &at, AT_SYMLINK_NOFOLLOW) < 0)
        return true;
    strcpy(walk->path + length, name);
    fd = S_ISDIR(at.st_mode) && depth < DEPTH_MAX ? openat(folder_fd, name, FOLDER_FLAGS) : -1;
    folder = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && folder == NULL)
        close(fd);
    walk->path[end] = '/';
    while (folder != NULL && goes_on && (entry = readdir(folder)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            goes_on = walk_from(walk, dirfd(folder), entry->d_name, end + 1, depth + 1);
    walk->path[end] = '\0';
    if (folder != NULL)
        closedir(folder);
    return goes_on && walk->visit(walk->arg, folder_fd, name, walk->path, &at);
}

static bool walk_entry(int folder_fd, const char *name, visitor *visit, void *arg)
{
    struct walk walk = { .visit = visit, .arg = arg };

    return walk_from(&walk, folder_fd, name, 0, 0);
}

static bool add_size(void *arg, int folder_fd, const char *name, const char *path, const struct stat *at)
{
    uint64_t *total = arg;

    (void)folder_fd, (void)name, (void)path;
    *total += (uint64_t)at->st_blocks * 512 / (S_ISDIR(at->st_mode) ? 1 : at->st_nlink);
    return true;
}

uint64_t entry_size(int folder_fd, const char *name)
{
    uint64_t total = 0;

    (void)walk_entry(folder_fd, name, add_size, &total);
    return total;
}

static bool remove_one(void *arg, int folder_fd, const char *name, const char *path, const struct stat *at)
{
    (void)arg, (void)path;
    (void)unlinkat(folder_fd, name, S_ISDIR(at->st_mode) ? AT_REMOVEDIR : 0);
    return true;
}

void entry_remove(int folder_fd, const char *name)
{
    (void)walk_entry(folder_fd, name, remove_one, NULL);
}

struct pack {
    void (*take)(void *arg, const char *files, size_t files_bytes, bool more);
    void *arg;
    char *bytes; /* (ENTRY_PACKED_BYTES) */
    size_t used, total;
    int n_files;
    struct fsdp_err *err;
    enum fsdp_status status;
};

static enum fsdp_status add_file(struct pack *pack, int fd, const char *path)
{
    char *text, *at, head[PATH_MAX + 32];
    size_t length, head_bytes;

    if (file_read(fd, ENTRY_SMALL_BYTES, &text, &length) != FSDP_OK)
        return file_fail(pack->err, "read", path);
    head_bytes = (size_t)snprintf(head, sizeof head, "%s%c%zu", path, '\0', length) + 1;
    pack->total += length;
    if (++pack->n_files > ENTRY_SMALL_FILES || pack->total > ENTRY_SMALL_TOTAL) {
        free(text);
        return fsdp_fail(pack->err, FSDP_ERR_CONFIG,
                         "it has more than %d files, or %d MiB, of less than 1 MiB each", ENTRY_SMALL_FILES,
                         ENTRY_SMALL_TOTAL >> 20);
    }
    if (pack->used + head_bytes + length > ENTRY_PACKED_BYTES) {
        pack->take(pack->arg, pack->bytes, pack->used, true);
        pack->used = 0;
    }
    at = pack->bytes + pack->used;
    memcpy(at, head, head_bytes);
    memcpy(at + head_bytes, text, length);
    pack->used += head_bytes + length;
    free(text);
    return FSDP_OK;
}

static bool pack_one(void *arg, int folder_fd, const char *name, const char *path, const struct stat *at)
{
    struct pack *pack = arg;
    int fd;

    if (!S_ISREG(at->st_mode) || at->st_size >= ENTRY_SMALL_BYTES)
        return true;
    fd = openat(folder_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return true; /* the program removes it */
    pack->status = add_file(pack, fd, path);
    close(fd);
    return pack->status == FSDP_OK;
}

enum fsdp_status entry_pack(int folder_fd, const char *name,
                            void (*take)(void *arg, const char *files, size_t files_bytes, bool more),
                            void *arg, struct fsdp_err *err)
{
    struct pack pack = { .take = take, .arg = arg, .bytes = malloc(ENTRY_PACKED_BYTES), .err = err };

    if (pack.bytes == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    (void)walk_entry(folder_fd, name, pack_one, &pack);
    if (pack.status == FSDP_OK)
        take(arg, pack.bytes, pack.used, false);
    free(pack.bytes);
    return pack.status;
}

/* Is `path` the entry itself, or below it, without "." and ".." on the way? */
static bool is_below(const char *path, const char *name)
{
    const size_t length = strlen(name);

    if (strncmp(path, name, length) != 0 || (path[length] != '/' && path[length] != '\0'))
        return false;
    for (const char *at = path + length; *at == '/'; at += 1 + strcspn(at + 1, "/")) {
        const size_t n = strcspn(at + 1, "/");

        if (n == 0 || n > NAME_MAX || (n <= 2 && strncmp(at + 1, "..", n) == 0))
            return false;
    }
    return true;
}

/* Makes a file under another name first and renames it, so that a reader finds it complete or not at all. */
static enum fsdp_status make_file(int folder_fd, const char *path, const char *bytes, size_t size,
                                  struct fsdp_err *err)
{
    const char *slash = strrchr(path, '/'), *last = slash == NULL ? path : slash + 1;
    char folder[PATH_MAX];
    int in, fd;
    bool made;

    snprintf(folder, sizeof folder, "%.*s", (int)(last - path), path);
    in = beneath_make_folders(folder_fd, folder);
    if (in < 0)
        return file_fail(err, "create", folder);
    (void)unlinkat(in, unfinished, 0);
    fd = openat(in, unfinished, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    made = fd >= 0 && file_write(fd, bytes, size) &&
           (linkat(in, unfinished, in, last, 0) == 0 || errno == EEXIST);
    if (!made)
        file_fail(err, "write", path);
    (void)unlinkat(in, unfinished, 0);
    if (fd >= 0)
        close(fd);
    close(in);
    return made ? FSDP_OK : FSDP_ERR_IO;
}

enum fsdp_status entry_unpack(int folder_fd, const char *name, const char *files, size_t files_bytes,
                              struct fsdp_err *err)
{
    const char *at = files, *end = files + files_bytes;

    while (at < end) {
        const char *path = at, *number = memchr(at, '\0', (size_t)(end - at));
        const char *bytes = number == NULL ? NULL : memchr(number + 1, '\0', (size_t)(end - number - 1));
        size_t size;

        if (bytes == NULL || bytes - number > 12 || bytes == number + 1 ||
            number + 1 + strspn(number + 1, "0123456789") != bytes || number - path >= PATH_MAX ||
            !is_below(path, name))
            return fsdp_fail(err, FSDP_ERR_FORMAT, "a file that is none of %s", name);
        size = strtoull(number + 1, NULL, 10);
        if (size > (size_t)(end - ++bytes))
            return fsdp_fail(err, FSDP_ERR_FORMAT, "a file of %s that is cut off", name);
        OK_OR_RETURN(make_file(folder_fd, path, bytes, size, err));
        at = bytes + size;
    }
    return FSDP_OK;
}
