#include "shard_runtime/shardfile/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/files.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/objectstore/s3_location.h"

void io_names_free(struct io_names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->names[i]);
    free(names->names);
    *names = (struct io_names){ 0 };
}

int io_compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

bool io_has_no_locks(int error)
{
    return error == ENOSYS || error == EOPNOTSUPP || error == ENOLCK || error == EBADF;
}

bool io_is_remote(const char *path)
{
    return s3_is_location(path);
}

bool io_name_is_plain(const char *name)
{
    const size_t length = strnlen(name, 256);

    if (length == 0 || length > 255 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return false;
    for (size_t i = 0; i < length; i++)
        if (name[i] == '/' || (unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return false;
    return true;
}

enum fsdp_status io_join(char out[IO_PATH_BYTES], const char *directory, const char *name,
                         struct fsdp_err *err)
{
    if (!io_name_is_plain(name))
        return fsdp_fail(err, FSDP_ERR_ARG, "\"%s\" is no plain file name", name);
    if (snprintf(out, IO_PATH_BYTES, "%s/%s", directory, name) >= IO_PATH_BYTES)
        return fsdp_fail(err, FSDP_ERR_ARG, "the path of %s in %.64s... is too long", name, directory);
    return FSDP_OK;
}

int io_open(struct fsdp_io *io, const char *path, int flags, mode_t mode)
{
    int fd;

    do
        fd = io->open(io, path, flags, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

enum fsdp_status io_write_all(struct fsdp_io *io, int fd, const void *bytes, size_t size_bytes,
                              uint64_t offset, const char *path, struct fsdp_err *err)
{
    const unsigned char *at = bytes;

    while (size_bytes > 0) {
        const ssize_t n = io->pwrite(io, fd, at, size_bytes, offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return fsdp_fail(err, FSDP_ERR_IO, "write %s: %s", path,
                             n < 0 ? file_error_words(errno) : "nothing was taken");
        at += n;
        offset += (uint64_t)n;
        size_bytes -= (size_t)n;
    }
    return FSDP_OK;
}

enum fsdp_status io_read_all(struct fsdp_io *io, int fd, void *bytes, size_t size_bytes, uint64_t offset,
                             const char *path, struct fsdp_err *err)
{
    unsigned char *at = bytes;

    while (size_bytes > 0) {
        const ssize_t n = io->pread(io, fd, at, size_bytes, offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return file_fail(err, "read", path);
        if (n == 0)
            return fsdp_fail(err, FSDP_ERR_FORMAT, "%s ends at byte %llu, %zu bytes early", path,
                             (unsigned long long)offset, size_bytes);
        at += n;
        offset += (uint64_t)n;
        size_bytes -= (size_t)n;
    }
    return FSDP_OK;
}

/* Opens an existing regular file for reading; with `directories`, also a directory. */
static enum fsdp_status open_read(struct fsdp_io *io, const char *path, int flags, bool directories, int *fd,
                                  struct io_stat *stat, struct fsdp_err *err)
{
    /* O_NONBLOCK: opening must not block if the name is a fifo. */
    const int opened = io_open(io, path, O_RDONLY | O_NONBLOCK | flags, 0);

    *fd = -1;
    if (opened < 0 && errno == ELOOP && (flags & O_NOFOLLOW) != 0)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%s is a symbolic link", path);
    if (opened < 0)
        return fsdp_fail(err, errno == ENOENT || errno == ENOTDIR ? FSDP_ERR_NOT_FOUND : FSDP_ERR_IO,
                         "open %s: %s", path, file_error_words(errno));
    if (io->fstat(io, opened, stat) < 0) {
        file_fail(err, "stat", path);
        io->close(io, opened);
        return FSDP_ERR_IO;
    }
    if (stat->kind != IO_FILE && !(directories && stat->kind == IO_DIRECTORY)) {
        io->close(io, opened);
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%s is not a regular file", path);
    }
    *fd = opened;
    return FSDP_OK;
}

enum fsdp_status io_open_read(struct fsdp_io *io, const char *path, int *fd, uint64_t *size_bytes,
                              struct fsdp_err *err)
{
    struct io_stat stat = { 0 };

    OK_OR_RETURN(open_read(io, path, O_NOFOLLOW, false, fd, &stat, err));
    *size_bytes = stat.size_bytes;
    return FSDP_OK;
}

enum fsdp_status io_open_named(struct fsdp_io *io, const char *path, int *fd, struct io_stat *stat,
                               struct fsdp_err *err)
{
    return open_read(io, path, 0, true, fd, stat, err);
}

enum fsdp_status io_sync_directory(struct fsdp_io *io, const char *path, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;
    const int fd = io_open(io, path, O_RDONLY | O_DIRECTORY, 0);

    if (fd < 0)
        return file_fail(err, "open directory", path);
    if (io->fsync(io, fd) < 0)
        status = file_fail(err, "sync directory", path);
    io->close(io, fd);
    return status;
}

/* Creates one directory in an existing parent, and syncs the parent. */
static enum fsdp_status make_directory(struct fsdp_io *io, const char *path, struct fsdp_err *err)
{
    char parent[IO_PATH_BYTES];
    const char *slash = strrchr(path, '/');
    struct io_stat stat;

    if (io->mkdir(io, path, 0777) < 0) {
        const int error = errno;

        if (error == EEXIST && io->stat(io, path, &stat) == 0 && stat.kind != IO_FILE)
            return FSDP_OK;
        return fsdp_fail(err, FSDP_ERR_IO, "create directory %s: %s", path, file_error_words(error));
    }
    if (slash == NULL)
        return io_sync_directory(io, ".", err);
    if (slash == path)
        return io_sync_directory(io, "/", err);
    memcpy(parent, path, (size_t)(slash - path));
    parent[slash - path] = '\0';
    return io_sync_directory(io, parent, err);
}

enum fsdp_status io_make_directories(struct fsdp_io *io, const char *path, struct fsdp_err *err)
{
    char part[IO_PATH_BYTES];
    const size_t length = strlen(path);
    struct io_stat stat;

    if (length == 0 || length >= sizeof part)
        return fsdp_fail(err, FSDP_ERR_ARG, "a directory's path has %zu bytes", length);
    if (io_is_remote(path))
        return FSDP_OK; /* an object store has no directories */
    if (io->stat(io, path, &stat) == 0 && stat.kind == IO_DIRECTORY)
        return FSDP_OK;
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (i < length && io->stat(io, part, &stat) == 0 && stat.kind != IO_FILE)
            continue; /* a link to a directory is allowed above the checkpoints */
        OK_OR_RETURN(make_directory(io, part, err));
    }
    return FSDP_OK;
}

/* Reads the whole file that is open as `fd`, and closes `fd` in every case. */
static enum fsdp_status read_whole(struct fsdp_io *io, int fd, uint64_t size, const char *path,
                                   size_t limit_bytes, char **bytes, size_t *size_bytes, struct fsdp_err *err)
{
    enum fsdp_status status;
    char *text = NULL;

    if (size > limit_bytes) {
        status = fsdp_fail(err, FSDP_ERR_FORMAT, "%s has %llu bytes, more than %zu", path,
                           (unsigned long long)size, limit_bytes);
        goto done;
    }
    text = malloc((size_t)size + 1);
    if (text == NULL) {
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "%llu bytes for %s", (unsigned long long)size, path);
        goto done;
    }
    status = io_read_all(io, fd, text, (size_t)size, 0, path, err);
    if (status != FSDP_OK)
        goto done;
    text[size] = '\0';
    *bytes = text;
    *size_bytes = (size_t)size;
    text = NULL;
done:
    free(text);
    io->close(io, fd);
    return status;
}

enum fsdp_status io_read_file(struct fsdp_io *io, const char *path, size_t limit_bytes, char **bytes,
                              size_t *size_bytes, struct fsdp_err *err)
{
    uint64_t size = 0;
    int fd;

    *bytes = NULL;
    OK_OR_RETURN(io_open_read(io, path, &fd, &size, err));
    return read_whole(io, fd, size, path, limit_bytes, bytes, size_bytes, err);
}

enum fsdp_status io_read_named(struct fsdp_io *io, const char *path, size_t limit_bytes, char **bytes,
                               size_t *size_bytes, struct fsdp_err *err)
{
    struct io_stat stat = { 0 };
    int fd;

    *bytes = NULL;
    OK_OR_RETURN(open_read(io, path, 0, false, &fd, &stat, err));
    return read_whole(io, fd, stat.size_bytes, path, limit_bytes, bytes, size_bytes, err);
}

enum fsdp_status io_write_file(struct fsdp_io *io, const char *path, const void *bytes, size_t size_bytes,
                               struct fsdp_err *err)
{
    enum fsdp_status status;
    const int fd = io_open(io, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);

    if (fd < 0)
        return file_fail(err, "create", path);
    status = io_write_all(io, fd, bytes, size_bytes, 0, path, err);
    if (status == FSDP_OK && io->fsync(io, fd) < 0)
        status = file_fail(err, "sync", path);
    if (io->close(io, fd) < 0 && status == FSDP_OK)
        status = file_fail(err, "close", path);
    if (status != FSDP_OK)
        io->unlink(io, path);
    return status;
}
