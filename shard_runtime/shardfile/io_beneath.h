/*
 * The file operations of io.h, for paths below a run directory: those are walked from the directory's descriptor by the
 * rule of core/beneath.h. Paths that lead elsewhere, and open files, are treated as io_posix does.
 *
 * Thread: any number of threads may use it between io_beneath_create() and io_beneath_destroy().
 */
#ifndef SHARDFILE_IO_BENEATH_H
#define SHARDFILE_IO_BENEATH_H

#include <fsdp/status.h>

#include "shard_runtime/shardfile/io.h"

/** `root`: the directory's path, copied; `root_fd`: it, open, duplicated. NULL when memory or descriptors ran out. */
struct fsdp_io *io_beneath_create(const char *root, int root_fd);

/** The same, of a directory that this opens (core/beneath.h): fails as beneath_open_root() does, or with FSDP_ERR_NOMEM. */
enum fsdp_status io_beneath_open(struct fsdp_io **out, const char *root, struct fsdp_err *err);

/** Have the path operations of `io` be those of `from`, another table of this module or io_posix, which it then needs. */
void io_beneath_use(struct fsdp_io *io, const struct fsdp_io *from);

void io_beneath_destroy(struct fsdp_io *io); /* one of io_beneath_create(), or NULL, which is a no-op */

#endif
