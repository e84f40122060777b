#include "shard_runtime/engine/state_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "shard_runtime/optim/state_window.h"

/* A directory that cannot be asked, or is not there yet, will say so itself. */
static enum fsdp_status check_directory(const char *directory, struct fsdp_err *err)
{
    struct statfs fs;

    if (statfs(directory, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC))
        return fsdp_fail(err, FSDP_ERR_CONFIG,
                         "parallel.offload_dir: %s is in memory (tmpfs): name a directory on a disk",
                         directory);
    return FSDP_OK;
}

/* A new file under `path`. What is there is of a process that died within a moment of its start, or of one elsewhere
 * that shares the directory and is about to drop the name itself: either way the name is free to go. */
static int create(struct fsdp_io *io, const char *path, int flags)
{
    for (int tries = 0; tries < 100; tries++) {
        const int fd = io->open(io, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | flags, 0600);

        if (fd >= 0 || (errno != EEXIST && errno != EINTR))
            return fd;
        if (errno == EEXIST)
            (void)io->unlink(io, path);
    }
    return -1;
}

/* Does it take whole blocks around the page cache? Some file systems open with O_DIRECT and then say EINVAL. */
static bool takes_direct(struct fsdp_io *io, int fd)
{
    void *block = aligned_alloc(STATE_BLOCK_BYTES, STATE_BLOCK_BYTES);
    bool takes;

    if (block == NULL)
        return false;
    memset(block, 0, STATE_BLOCK_BYTES);
    takes = io->pwrite(io, fd, block, STATE_BLOCK_BYTES, 0) == STATE_BLOCK_BYTES &&
            io->pread(io, fd, block, STATE_BLOCK_BYTES, 0) == STATE_BLOCK_BYTES;
    free(block);
    return takes;
}

static enum fsdp_status reserve(struct state_file *file, uint64_t size_bytes, struct fsdp_err *err)
{
    int done;

    do
        done = file->io->allocate(file->io, file->fd, size_bytes);
    while (done < 0 && errno == EINTR);
    if (done < 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) /* then a full disk is found out later */
        done = file->io->ftruncate(file->io, file->fd, size_bytes);
    return done == 0 ? FSDP_OK
                     : fsdp_fail(err, FSDP_ERR_IO, "reserve %llu bytes in %s: %s",
                                 (unsigned long long)size_bytes, file->words, strerror(errno));
}

enum fsdp_status state_file_open(struct state_file *file, struct fsdp_io *io, const char *directory, int rank,
                                 uint64_t size_bytes, struct fsdp_err *err)
{
    char name[64], path[IO_PATH_BYTES];
    enum fsdp_status status;

    *file = (struct state_file){ .io = io, .fd = -1 };
    snprintf(file->words, sizeof file->words, "%s (optimizer state)", directory);
    snprintf(name, sizeof name, "rank-%d.%ld", rank, (long)getpid());
    status = io_make_directories(io, directory, err);
    if (status != FSDP_OK)
        fsdp_wrap(err, "%s", file->words);
    if (status == FSDP_OK)
        status = check_directory(directory, err);
    if (status == FSDP_OK)
        status = io_join(path, directory, name, err);
    if (status != FSDP_OK)
        return status;
    file->fd = create(io, path, O_DIRECT);
    file->direct = file->fd >= 0 && takes_direct(io, file->fd);
    if (!file->direct) {
        state_file_close(file);
        file->fd = create(io, path, 0);
    }
    if (file->fd < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "create %s: %s", path, strerror(errno));
    if (io->unlink(io, path) < 0 && errno != ENOENT)
        status = fsdp_fail(err, FSDP_ERR_IO, "remove the name of %s: %s", path, strerror(errno));
    if (status == FSDP_OK)
        status = reserve(file, size_bytes, err);
    if (status != FSDP_OK)
        state_file_close(file);
    return status;
}

void state_file_close(struct state_file *file)
{
    if (file->fd >= 0 && file->io != NULL)
        (void)file->io->close(file->io, file->fd); /* nothing in it is wanted any more */
    file->fd = -1;
}

enum fsdp_status state_file_read(struct state_file *file, void *bytes, size_t size_bytes, uint64_t offset,
                                 struct fsdp_err *err)
{
    const enum fsdp_status status =
        io_read_all(file->io, file->fd, bytes, size_bytes, offset, file->words, err);

    /* No input file of the user's is damaged: this one is ours, and something cut it short. */
    return status == FSDP_ERR_FORMAT ? fsdp_fail(err, FSDP_ERR_IO, "read %s: it ends early", file->words)
                                     : status;
}

enum fsdp_status state_file_write(struct state_file *file, const void *bytes, size_t size_bytes,
                                  uint64_t offset, struct fsdp_err *err)
{
    return io_write_all(file->io, file->fd, bytes, size_bytes, offset, file->words, err);
}
