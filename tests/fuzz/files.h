/* A directory "d" of a few files in memory, for fuzz targets of what lists and reads files. */
#ifndef TESTS_FUZZ_FILES_H
#define TESTS_FUZZ_FILES_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/shardfile/io.h"

enum { FILES_MOST = 3, FILES_DIRECTORY = FILES_MOST };

struct files {
    struct fsdp_io io; /* first */
    const char *names[FILES_MOST];
    const uint8_t *bytes[FILES_MOST]; /* NULL: there is no such file */
    size_t sizes[FILES_MOST];
};

/* Returns the index of a file, FILES_DIRECTORY for "d", or -1. It is also the descriptor. */
static inline int files_find(struct fsdp_io *io, const char *path)
{
    const struct files *files = (struct files *)io;

    for (int i = 0; i < FILES_MOST; i++)
        if (files->bytes[i] != NULL && strncmp(path, "d/", 2) == 0 && strcmp(path + 2, files->names[i]) == 0)
            return i;
    errno = ENOENT;
    return strcmp(path, "d") == 0 ? FILES_DIRECTORY : -1;
}

static inline int files_open(struct fsdp_io *io, const char *path, int flags, mode_t mode)
{
    (void)flags;
    (void)mode;
    return files_find(io, path);
}

static inline int files_close(struct fsdp_io *io, int fd)
{
    (void)io;
    (void)fd;
    return 0;
}

static inline int files_fstat(struct fsdp_io *io, int fd, struct io_stat *out)
{
    *out = fd == FILES_DIRECTORY
               ? (struct io_stat){ .kind = IO_DIRECTORY }
               : (struct io_stat){ .kind = IO_FILE, .size_bytes = ((struct files *)io)->sizes[fd] };
    return 0;
}

static inline int files_stat(struct fsdp_io *io, const char *path, struct io_stat *out)
{
    const int fd = files_find(io, path);

    return fd < 0 ? -1 : files_fstat(io, fd, out);
}

static inline ssize_t files_pread(struct fsdp_io *io, int fd, void *bytes, size_t size_bytes, uint64_t offset)
{
    const struct files *files = (struct files *)io;
    size_t n = size_bytes;

    if (offset >= files->sizes[fd])
        return 0;
    if (n > files->sizes[fd] - offset)
        n = files->sizes[fd] - (size_t)offset;
    memcpy(bytes, files->bytes[fd] + offset, n);
    return (ssize_t)n;
}

static inline int files_list(struct fsdp_io *io, const char *path, struct io_names *out)
{
    const struct files *files = (struct files *)io;

    (void)path;
    *out = (struct io_names){ .names = calloc(FILES_MOST, sizeof *out->names) };
    for (int i = 0; i < FILES_MOST; i++)
        if (files->bytes[i] != NULL)
            out->names[out->n++] = strdup(files->names[i]);
    return 0;
}

static const struct fsdp_io files_io = {
    .open = files_open,
    .close = files_close,
    .pread = files_pread,
    .fstat = files_fstat,
    .stat = files_stat,
    .list = files_list,
};

#endif
