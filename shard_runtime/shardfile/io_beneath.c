#include "shard_runtime/shardfile/io_beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/core/beneath.h"
#include "shard_runtime/shardfile/io_anywhere.h"
#include "shard_runtime/shardfile/io_system.h"

struct io_root {
    int fd;
    size_t length;
    char path[IO_PATH_BYTES];
};

struct io_beneath {
    struct fsdp_io io; /* first member: the caller has a pointer to it */
    struct io_root root;
};

/*
 * Returns the part of `path` below the root directory. Returns NULL for the root itself and for paths
 * elsewhere.
 */
static const char *below(const struct fsdp_io *io, const char *path)
{
    const struct io_root *root = io->root;

    return strncmp(path, root->path, root->length) == 0 && path[root->length] == '/' ? path + root->length + 1
                                                                                     : NULL;
}

bool io_beneath_covers(const struct fsdp_io *io, const char *path)
{
    return io->root != NULL && below(io, path) != NULL;
}

/*
 * Opens the directory that contains the last name of `path`, and sets *name to that name. The caller closes
 * the descriptor. Returns -1 with errno on failure.
 */
static int folder_of(struct fsdp_io *io, const char *path, const char **name)
{
    return beneath_open_folder(io->root->fd, path, name);
}

/* Closes `fd` and returns `result`, with the errno that `result` came with. */
static int close_after(int result, int fd)
{
    const int error = errno;

    (void)close(fd);
    errno = error;
    return result;
}

static int beneath_slot_open(struct fsdp_io *io, const char *path, int flags, mode_t mode)
{
    const char *rest = below(io, path);

    return rest == NULL ? io_anywhere.open(&io_anywhere, path, flags, mode)
                        : beneath_open(io->root->fd, rest, flags, mode);
}

static int beneath_slot_stat(struct fsdp_io *io, const char *path, struct io_stat *out)
{
    const char *rest = below(io, path), *name;
    struct stat stat;
    int folder;

    if (rest == NULL)
        return io_anywhere.stat(&io_anywhere, path, out);
    folder = folder_of(io, rest, &name);
    if (folder < 0 || close_after(fstatat(folder, name, &stat, AT_SYMLINK_NOFOLLOW), folder) < 0)
        return -1;
    io_stat_of(&stat, out);
    return 0;
}

static int beneath_slot_mkdir(struct fsdp_io *io, const char *path, mode_t mode)
{
    const char *rest = below(io, path), *name;
    int folder;

    if (rest == NULL)
        return io_anywhere.mkdir(&io_anywhere, path, mode);
    folder = folder_of(io, rest, &name);
    return folder < 0 ? -1 : close_after(mkdirat(folder, name, mode), folder);
}

static int remove_name(struct fsdp_io *io, const char *rest, int flags)
{
    const char *name;
    const int folder = folder_of(io, rest, &name);

    return folder < 0 ? -1 : close_after(unlinkat(folder, name, flags), folder);
}

static int beneath_slot_rmdir(struct fsdp_io *io, const char *path)
{
    const char *rest = below(io, path);

    return rest == NULL ? io_anywhere.rmdir(&io_anywhere, path) : remove_name(io, rest, AT_REMOVEDIR);
}

static int beneath_slot_unlink(struct fsdp_io *io, const char *path)
{
    const char *rest = below(io, path);

    return rest == NULL ? io_anywhere.unlink(&io_anywhere, path) : remove_name(io, rest, 0);
}

/* Type of the system calls that rename, exchange or link two names. */
typedef int two_names(int from_folder, const char *from, int to_folder, const char *to);

static int rename_at(int from_folder, const char *from, int to_folder, const char *to)
{
    return renameat(from_folder, from, to_folder, to);
}

static int exchange_at(int from_folder, const char *from, int to_folder, const char *to)
{
    return renameat2(from_folder, from, to_folder, to, RENAME_EXCHANGE);
}

static int link_at(int from_folder, const char *from, int to_folder, const char *to)
{
    return linkat(from_folder, from, to_folder, to, 0);
}

static int with_names(struct fsdp_io *io, const char *from, const char *to, two_names *call)
{
    const char *from_name, *to_name;
    int result = -1, to_folder, from_folder = folder_of(io, from, &from_name);

    if (from_folder < 0)
        return -1;
    to_folder = folder_of(io, to, &to_name);
    if (to_folder >= 0) {
        result = call(from_folder, from_name, to_folder, to_name);
        (void)close_after(0, to_folder);
    }
    return close_after(result, from_folder);
}

static int beneath_slot_rename(struct fsdp_io *io, const char *from, const char *to)
{
    const char *rest = below(io, from), *to_rest = below(io, to);

    if (rest == NULL || to_rest == NULL)
        return io_anywhere.rename(&io_anywhere, from, to);
    return io_rename_result(with_names(io, rest, to_rest, rename_at));
}

static int beneath_slot_exchange(struct fsdp_io *io, const char *one, const char *two)
{
    const char *rest = below(io, one), *other = below(io, two);

    if (rest == NULL || other == NULL)
        return io_anywhere.exchange(&io_anywhere, one, two);
    return io_exchange_result(with_names(io, rest, other, exchange_at));
}

static int beneath_slot_link(struct fsdp_io *io, const char *from, const char *to)
{
    const char *rest = below(io, from), *to_rest = below(io, to);

    return rest == NULL || to_rest == NULL ? io_anywhere.link(&io_anywhere, from, to)
                                           : with_names(io, rest, to_rest, link_at);
}

static int beneath_slot_list(struct fsdp_io *io, const char *path, struct io_names *out)
{
    const char *rest = below(io, path);
    int fd;

    *out = (struct io_names){ 0 };
    if (rest == NULL)
        return io_anywhere.list(&io_anywhere, path, out);
    fd = beneath_open(io->root->fd, rest, O_RDONLY | O_DIRECTORY, 0);
    return fd < 0 ? -1 : io_list_open(fd, out);
}

void io_beneath_use(struct fsdp_io *io, const struct fsdp_io *from)
{
    io->open = from->open;
    io->stat = from->stat;
    io->mkdir = from->mkdir;
    io->rmdir = from->rmdir;
    io->rename = from->rename;
    io->exchange = from->exchange;
    io->link = from->link;
    io->unlink = from->unlink;
    io->list = from->list;
    io->root = from->root;
}

struct fsdp_io *io_beneath_create(const char *root, int root_fd)
{
    static const struct fsdp_io slots = {
        .open = beneath_slot_open,
        .stat = beneath_slot_stat,
        .mkdir = beneath_slot_mkdir,
        .rmdir = beneath_slot_rmdir,
        .rename = beneath_slot_rename,
        .exchange = beneath_slot_exchange,
        .link = beneath_slot_link,
        .unlink = beneath_slot_unlink,
        .list = beneath_slot_list,
    };
    struct io_beneath *beneath = malloc(sizeof *beneath);

    if (beneath == NULL)
        return NULL;
    beneath->io = io_anywhere; /* its operations on open files are used as they are */
    if (io_is_remote(root)) {
        beneath->root.fd = -1;
        return &beneath->io;
    }
    io_beneath_use(&beneath->io, &slots);
    beneath->io.root = &beneath->root;
    beneath->root.length = (size_t)snprintf(beneath->root.path, sizeof beneath->root.path, "%s", root);
    beneath->root.fd = fcntl(root_fd, F_DUPFD_CLOEXEC, 0);
    if (beneath->root.fd < 0 || beneath->root.length >= sizeof beneath->root.path) {
        io_beneath_destroy(&beneath->io);
        return NULL;
    }
    return &beneath->io;
}

enum fsdp_status io_beneath_open(struct fsdp_io **out, const char *root, struct fsdp_err *err)
{
    int fd = -1;
    enum fsdp_status status;

    *out = NULL;
    if (io_is_remote(root)) {
        *out = io_beneath_create(root, -1);
        return *out != NULL ? FSDP_OK : fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for %s", root);
    }
    status = beneath_open_root(&fd, root, err);
    if (status != FSDP_OK)
        return status;
    *out = io_beneath_create(root, fd);
    (void)close(fd);
    return *out != NULL ? FSDP_OK : fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for %s", root);
}

void io_beneath_destroy(struct fsdp_io *io)
{
    struct io_beneath *beneath = (struct io_beneath *)io;

    if (beneath == NULL)
        return;
    if (beneath->root.fd >= 0)
        (void)close(beneath->root.fd);
    free(beneath);
}
