#include "shard_runtime/optim/state_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "shard_runtime/core/files.h"
#include "shard_runtime/optim/state_window.h"

/*
 * Refuses a directory in memory. If the directory does not exist or cannot be examined, a later call reports
 * that.
 */
static enum fsdp_status check_directory(const char *directory, struct fsdp_err *err)
{
    struct statfs fs;

    if (statfs(directory, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC))
        return fsdp_fail(err, FSDP_ERR_CONFIG,
                         "parallel.offload_dir: %s is in memory (tmpfs): name a directory on a disk",
                         directory);
    return FSDP_OK;
}

/*
 * Creates a new file at `path`. If a file has that name already, the name is removed and the call is
 * repeated. It is left by a process that died just after its start; or it belongs to a process on another
 * host with the same directory, which is about to remove the name itself.
 */
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

/*
 * Returns whether the file takes whole blocks without the page cache. Some file systems open a file with
 * O_DIRECT and then fail with EINVAL.
 */
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
    /* the space is then not reserved, so a full disk shows only when a block is written */
    if (done < 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
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
        return file_fail(err, "create", path);
    if (io->unlink(io, path) < 0 && errno != ENOENT)
        status = file_fail(err, "remove the name of", path);
    if (status == FSDP_OK)
        status = reserve(file, size_bytes, err);
    if (status != FSDP_OK)
        state_file_close(file);
    return status;
}

void state_file_close(struct state_file *file)
{
    if (file->fd >= 0 && file->io != NULL)
        /* the content is not needed any more, so errors do not matter */
        (void)file->io->close(file->io, file->fd);
    file->fd = -1;
}

enum fsdp_status state_file_read(struct state_file *file, void *bytes, size_t size_bytes, uint64_t offset,
                                 struct fsdp_err *err)
{
    const enum fsdp_status status =
        io_read_all(file->io, file->fd, bytes, size_bytes, offset, file->words, err);

    /*
     * The file is not an input of the user but our own, so an early end is an I/O error: something cut it
     * short.
     */
    return status == FSDP_ERR_FORMAT ? fsdp_fail(err, FSDP_ERR_IO, "read %s: it ends early", file->words)
                                     : status;
}

enum fsdp_status state_file_write(struct state_file *file, const void *bytes, size_t size_bytes,
                                  uint64_t offset, struct fsdp_err *err)
{
    return io_write_all(file->io, file->fd, bytes, size_bytes, offset, file->words, err);
}
