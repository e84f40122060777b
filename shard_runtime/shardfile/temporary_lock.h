/*
 * No process removes a temporary directory that a save still needs, even of a run that it knows nothing about:
 *   1. Each process of a save holds the lock of the temporary directory (flock(2), shared) from before its first write
 *      until it knows whether the save was published.
 *   2. A process that cleans claims a directory before it removes it: it locks it exclusively, without waiting, and
 *      leaves it where that fails.
 *   3. A process that wants to hold a directory while another removes it waits for that. Then it makes the directory again.
 *
 * On a file system without locks a directory is neither held nor kept from being claimed. On NFS the locks of directories
 * are known on their own host only.
 */
#ifndef SHARDFILE_TEMPORARY_LOCK_H
#define SHARDFILE_TEMPORARY_LOCK_H

#include <fsdp/status.h>

#include "shard_runtime/shardfile/io.h"

/**
 * Make directory/temporary as commit_begin() does, and hold it until *fd is closed.
 *   fd  the caller's; -1 after an error, and on a file system without locks
 */
enum fsdp_status temporary_hold(struct fsdp_io *io, const char *directory, const char *temporary, int *fd,
                                struct fsdp_err *err);

/**
 * Claim the directory `path` for its removal, until *fd is closed.
 *   fd  the caller's; -1 after an error, for what is no directory or not there, and on a file system without locks
 *   FSDP_ERR_BUSY  a process holds it
 *   FSDP_ERR_IO
 */
enum fsdp_status temporary_claim(struct fsdp_io *io, const char *path, int *fd, struct fsdp_err *err);

#endif
