#include "shard_runtime/engine/context.h"

static ssize_t live_pread(struct fsdp_io *io, int fd, void *bytes, size_t size_bytes, uint64_t offset)
{
    const ssize_t n = io_posix.pread(&io_posix, fd, bytes, size_bytes, offset);

    link_alive(((struct context_io *)io)->link);
    return n;
}

static ssize_t live_pwrite(struct fsdp_io *io, int fd, const void *bytes, size_t size_bytes, uint64_t offset)
{
    const ssize_t n = io_posix.pwrite(&io_posix, fd, bytes, size_bytes, offset);

    link_alive(((struct context_io *)io)->link);
    return n;
}

static int live_fsync(struct fsdp_io *io, int fd)
{
    const int result = io_posix.fsync(&io_posix, fd);

    link_alive(((struct context_io *)io)->link);
    return result;
}

void context_io_init(struct context_io *io, const struct link *link)
{
    *io = (struct context_io){ .base = io_posix, .link = link };
    io->base.pread = live_pread;
    io->base.pwrite = live_pwrite;
    io->base.fsync = live_fsync;
}

struct fsdp_io *context_files(struct fsdp_context *context)
{
    return &context->io.base;
}
