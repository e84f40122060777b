#include "shard_runtime/engine/context.h"
#include "shard_runtime/shardfile/io_anywhere.h"

static ssize_t live_pread(struct fsdp_io *io, int fd, void *bytes, size_t size_bytes, uint64_t offset)
{
    const ssize_t n = io_anywhere.pread(&io_anywhere, fd, bytes, size_bytes, offset);

    link_alive(((struct context_io *)io)->link);
    return n;
}

static ssize_t live_pwrite(struct fsdp_io *io, int fd, const void *bytes, size_t size_bytes, uint64_t offset)
{
    const ssize_t n = io_anywhere.pwrite(&io_anywhere, fd, bytes, size_bytes, offset);

    link_alive(((struct context_io *)io)->link);
    return n;
}

static int live_fsync(struct fsdp_io *io, int fd)
{
    const int result = io_anywhere.fsync(&io_anywhere, fd);

    link_alive(((struct context_io *)io)->link);
    return result;
}

void context_io_init(struct context_io *io, const struct link *link)
{
    *io = (struct context_io){ .base = io_anywhere, .link = link };
    io->base.pread = live_pread;
    io->base.pwrite = live_pwrite;
    io->base.fsync = live_fsync;
}

struct fsdp_io *context_files(struct fsdp_context *context)
{
    return &context->io.base;
}
