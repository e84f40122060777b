/*
 * A table of file operations (io.h) that resolves paths below a run directory from the directory's
 * descriptor. core/beneath.h states the rule by which such a path is resolved. Other paths, and operations on
 * open files, work as in io_anywhere. If the run directory is in an object store, the table is the same as
 * io_anywhere.
 *
 * Thread safety: any number of threads may use the table between io_beneath_create() and
 * io_beneath_destroy().
 */
#ifndef SHARDFILE_IO_BENEATH_H
#define SHARDFILE_IO_BENEATH_H

#include <fsdp/status.h>

#include "shard_runtime/shardfile/io.h"

/**
 * Creates the table. `root` is the run directory's path, which is copied. `root_fd` is its open descriptor,
 * which is duplicated. Returns NULL if memory or descriptors ran out, or if the path is too long.
 */
struct fsdp_io *io_beneath_create(const char *root, int root_fd);

/**
 * Creates the same table for a directory that this function opens. Errors are those of beneath_open_root()
 * (core/beneath.h), and FSDP_ERR_NOMEM if the table cannot be created.
 */
enum fsdp_status io_beneath_open(struct fsdp_io **out, const char *root, struct fsdp_err *err);

/**
 * Returns whether `io` resolves `path` from a directory's descriptor. That is so if `io` is a table of this
 * module, or uses one, and `path` is below its root.
 */
bool io_beneath_covers(const struct fsdp_io *io, const char *path);

/**
 * Replaces the path operations of `io` by those of `from`. `from` is another table of this module, which must
 * then outlive `io`, or io_anywhere.
 */
void io_beneath_use(struct fsdp_io *io, const struct fsdp_io *from);

/* Releases a table that io_beneath_create() or io_beneath_open() made. NULL is a no-op. */
void io_beneath_destroy(struct fsdp_io *io);

#endif
