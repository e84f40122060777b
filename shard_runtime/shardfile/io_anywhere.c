#include "shard_runtime/shardfile/io_anywhere.h"

#include "shard_runtime/objectstore/s3_location.h"
#include "shard_runtime/shardfile/io_s3.h"

static struct fsdp_io *at(const char *path)
{
    return s3_is_location(path) ? &io_s3 : &io_posix;
}

static struct fsdp_io *of(int fd)
{
    return io_s3_owns(fd) ? &io_s3 : &io_posix;
}

static int any_open(struct fsdp_io *io, const char *path, int flags, mode_t mode)
{
    (void)io;
    return at(path)->open(at(path), path, flags, mode);
}

static int any_stat(struct fsdp_io *io, const char *path, struct io_stat *out)
{
    (void)io;
    return at(path)->stat(at(path), path, out);
}

static int any_mkdir(struct fsdp_io *io, const char *path, mode_t mode)
{
    (void)io;
    return at(path)->mkdir(at(path), path, mode);
}

static int any_rmdir(struct fsdp_io *io, const char *path)
{
    (void)io;
    return at(path)->rmdir(at(path), path);
}

static int any_rename(struct fsdp_io *io, const char *from, const char *to)
{
    (void)io;
    return at(from)->rename(at(from), from, to);
}

static int any_exchange(struct fsdp_io *io, const char *one, const char *two)
{
    (void)io;
    return at(one)->exchange(at(one), one, two);
}

static int any_link(struct fsdp_io *io, const char *from, const char *to)
{
    (void)io;
    return at(from)->link(at(from), from, to);
}

static int any_unlink(struct fsdp_io *io, const char *path)
{
    (void)io;
    return at(path)->unlink(at(path), path);
}

static int any_list(struct fsdp_io *io, const char *path, struct io_names *out)
{
    (void)io;
    return at(path)->list(at(path), path, out);
}

static int any_close(struct fsdp_io *io, int fd)
{
    (void)io;
    return of(fd)->close(of(fd), fd);
}

static ssize_t any_pwrite(struct fsdp_io *io, int fd, const void *bytes, size_t size_bytes, uint64_t offset)
{
    (void)io;
    return of(fd)->pwrite(of(fd), fd, bytes, size_bytes, offset);
}

static ssize_t any_pread(struct fsdp_io *io, int fd, void *bytes, size_t size_bytes, uint64_t offset)
{
    (void)io;
    return of(fd)->pread(of(fd), fd, bytes, size_bytes, offset);
}

static bool any_is_cached(struct fsdp_io *io, int fd, size_t size_bytes, uint64_t offset)
{
    (void)io;
    /* is_cached() is never called for a remote file */
    return io_posix.is_cached(&io_posix, fd, size_bytes, offset);
}

static int any_allocate(struct fsdp_io *io, int fd, uint64_t size_bytes)
{
    (void)io;
    return of(fd)->allocate(of(fd), fd, size_bytes);
}

static int any_ftruncate(struct fsdp_io *io, int fd, uint64_t size_bytes)
{
    (void)io;
    return of(fd)->ftruncate(of(fd), fd, size_bytes);
}

static int any_fsync(struct fsdp_io *io, int fd)
{
    (void)io;
    return of(fd)->fsync(of(fd), fd);
}

static int any_fstat(struct fsdp_io *io, int fd, struct io_stat *out)
{
    (void)io;
    return of(fd)->fstat(of(fd), fd, out);
}

static int any_lock(struct fsdp_io *io, int fd, int operation)
{
    (void)io;
    return of(fd)->lock(of(fd), fd, operation);
}

struct fsdp_io io_anywhere = {
    .open = any_open,
    .stat = any_stat,
    .mkdir = any_mkdir,
    .rmdir = any_rmdir,
    .rename = any_rename,
    .exchange = any_exchange,
    .link = any_link,
    .unlink = any_unlink,
    .list = any_list,
    .close = any_close,
    .pwrite = any_pwrite,
    .pread = any_pread,
    .is_cached = any_is_cached,
    .allocate = any_allocate,
    .ftruncate = any_ftruncate,
    .fsync = any_fsync,
    .fstat = any_fstat,
    .lock = any_lock,
    .any_thread = true,
};
