/*
 * The real file operations. Each slot is one system call, so a trace of a save shows the same calls as the
 * source.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shard_runtime/shardfile/io_system.h"

enum { LOOK_PAGES = 256 };

static int posix_open(struct fsdp_io *io, const char *path, int flags, mode_t mode)
{
    (void)io;
    return open(path, flags | O_CLOEXEC, mode);
}

static int posix_close(struct fsdp_io *io, int fd)
{
    (void)io;
    /* On Linux close() releases the descriptor even if it fails with EINTR. The data was synced earlier. */
    return close(fd) < 0 && errno != EINTR ? -1 : 0;
}

static ssize_t posix_pwrite(struct fsdp_io *io, int fd, const void *bytes, size_t size_bytes, uint64_t offset)
{
    (void)io;
    return pwrite(fd, bytes, size_bytes, (off_t)offset);
}

static ssize_t posix_pread(struct fsdp_io *io, int fd, void *bytes, size_t size_bytes, uint64_t offset)
{
    (void)io;
    return pread(fd, bytes, size_bytes, (off_t)offset);
}

/*
 * Looks at the pages of a mapping that is never touched. preadv2() with RWF_NOWAIT would be no way to look:
 * it starts to read pages that are not in the cache.
 */
static bool posix_is_cached(struct fsdp_io *io, int fd, size_t size_bytes, uint64_t offset)
{
    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *mapped = mmap(NULL, size_bytes, PROT_READ, MAP_SHARED, fd, (off_t)offset);
    bool cached = true;

    (void)io;
    if (mapped == MAP_FAILED)
        return true;
    for (size_t at = 0; at < size_bytes && cached; at += LOOK_PAGES * page_bytes) {
        const size_t n =
            size_bytes - at < LOOK_PAGES * page_bytes ? size_bytes - at : LOOK_PAGES * page_bytes;
        unsigned char pages[LOOK_PAGES];

        if (mincore((char *)mapped + at, n, pages) == 0)
            for (size_t i = 0; i < (n + page_bytes - 1) / page_bytes; i++)
                cached = cached && (pages[i] & 1) != 0;
    }
    (void)munmap(mapped, size_bytes);
    return cached;
}

static int posix_allocate(struct fsdp_io *io, int fd, uint64_t size_bytes)
{
    (void)io;
    return fallocate(fd, 0, 0, (off_t)size_bytes);
}

static int posix_ftruncate(struct fsdp_io *io, int fd, uint64_t size_bytes)
{
    (void)io;
    return ftruncate(fd, (off_t)size_bytes);
}

static int posix_fsync(struct fsdp_io *io, int fd)
{
    (void)io;
    return fsync(fd);
}

void io_stat_of(const struct stat *stat, struct io_stat *out)
{
    out->kind = S_ISREG(stat->st_mode) ? IO_FILE : S_ISDIR(stat->st_mode) ? IO_DIRECTORY : IO_OTHER;
    out->size_bytes = (uint64_t)stat->st_size;
    out->device = stat->st_dev;
    out->inode = stat->st_ino;
    out->n_links = stat->st_nlink;
}

static int posix_fstat(struct fsdp_io *io, int fd, struct io_stat *out)
{
    struct stat stat;

    (void)io;
    if (fstat(fd, &stat) < 0)
        return -1;
    io_stat_of(&stat, out);
    return 0;
}

static int posix_lock(struct fsdp_io *io, int fd, int operation)
{
    (void)io;
    return flock(fd, operation);
}

static int posix_stat(struct fsdp_io *io, const char *path, struct io_stat *out)
{
    struct stat stat;

    (void)io;
    if (lstat(path, &stat) < 0)
        return -1;
    io_stat_of(&stat, out);
    return 0;
}

static int posix_mkdir(struct fsdp_io *io, const char *path, mode_t mode)
{
    (void)io;
    return mkdir(path, mode);
}

static int posix_rmdir(struct fsdp_io *io, const char *path)
{
    (void)io;
    return rmdir(path);
}

int io_rename_result(int result)
{
    if (result < 0 && errno == ENOTEMPTY)
        errno = EEXIST; /* some file systems report ENOTEMPTY instead */
    return result;
}

static int posix_rename(struct fsdp_io *io, const char *from, const char *to)
{
    (void)io;
    return io_rename_result(rename(from, to));
}

int io_exchange_result(int result)
{
    if (result < 0 && (errno == ENOSYS || errno == EOPNOTSUPP))
        errno = EINVAL;
    return result;
}

static int posix_exchange(struct fsdp_io *io, const char *one, const char *two)
{
    (void)io;
    return io_exchange_result(renameat2(AT_FDCWD, one, AT_FDCWD, two, RENAME_EXCHANGE));
}

static int posix_link(struct fsdp_io *io, const char *from, const char *to)
{
    (void)io;
    return link(from, to);
}

static int posix_unlink(struct fsdp_io *io, const char *path)
{
    (void)io;
    return unlink(path);
}

/* Appends one name. Returns false, with errno set, if there is no memory. */
static bool add_name(struct io_names *out, size_t *capacity, const char *name)
{
    if (out->n == *capacity) {
        const size_t more = *capacity == 0 ? 16 : *capacity * 2;
        char **names = reallocarray(out->names, more, sizeof *names);

        if (names == NULL)
            return false;
        out->names = names;
        *capacity = more;
    }
    out->names[out->n] = strdup(name);
    if (out->names[out->n] == NULL)
        return false;
    out->n++;
    return true;
}

int io_list_open(int fd, struct io_names *out)
{
    const struct dirent *entry;
    size_t capacity = 0;
    DIR *directory = fdopendir(fd);
    int error = errno;

    *out = (struct io_names){ 0 };
    if (directory == NULL) {
        close(fd);
        errno = error;
        return -1;
    }
    while (errno = 0, (entry = readdir(directory)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            !add_name(out, &capacity, entry->d_name))
            break;
    error = errno;
    closedir(directory);
    if (error != 0) {
        io_names_free(out);
        errno = error;
        return -1;
    }
    if (out->n > 1)
        qsort(out->names, out->n, sizeof *out->names, io_compare_names);
    return 0;
}

static int posix_list(struct fsdp_io *io, const char *path, struct io_names *out)
{
    const int fd = posix_open(io, path, O_RDONLY | O_DIRECTORY, 0);

    *out = (struct io_names){ 0 };
    return fd < 0 ? -1 : io_list_open(fd, out);
}

struct fsdp_io io_posix = {
    .open = posix_open,
    .close = posix_close,
    .pwrite = posix_pwrite,
    .pread = posix_pread,
    .is_cached = posix_is_cached,
    .allocate = posix_allocate,
    .ftruncate = posix_ftruncate,
    .fsync = posix_fsync,
    .fstat = posix_fstat,
    .lock = posix_lock,
    .stat = posix_stat,
    .mkdir = posix_mkdir,
    .rmdir = posix_rmdir,
    .rename = posix_rename,
    .exchange = posix_exchange,
    .link = posix_link,
    .unlink = posix_unlink,
    .list = posix_list,
    .any_thread = true,
};
