/*
 * Locks that keep a temporary directory from being removed while a save still needs it. They also work
 * against a process that knows nothing of that save:
 *   1. Each process of a save takes a shared flock(2) on the temporary directory before its first write. It
 *      keeps the lock until it knows whether the save was published.
 *   2. A process that cleans must claim a directory before it removes it. It tries to take an exclusive lock
 *      without waiting. If that fails, it leaves the directory alone.
 *   3. If a save wants to lock a directory that is just being removed, it waits for the removal. Then it
 *      creates the directory again.
 *
 * On a file system without locks, temporary_hold() protects nothing and temporary_claim() always succeeds. On
 * NFS, locks on directories are visible only on the host that took them.
 */
#ifndef SHARDFILE_TEMPORARY_LOCK_H
#define SHARDFILE_TEMPORARY_LOCK_H

#include <fsdp/status.h>

#include "shard_runtime/shardfile/io.h"

/**
 * Creates directory/temporary, as commit_begin() does, and holds a shared lock on it until *fd is closed.
 *   fd  receives the descriptor, which the caller closes; -1 after an error, and on a file system without
 *       locks
 */
enum fsdp_status temporary_hold(struct fsdp_io *io, const char *directory, const char *temporary, int *fd,
                                struct fsdp_err *err);

/**
 * Claims the directory `path` for removal: holds an exclusive lock on it until *fd is closed.
 *   fd  receives the descriptor, which the caller closes; -1 after an error, or if there is nothing to lock:
 *       `path` is not a directory, does not exist, or is on a file system without locks
 *   FSDP_ERR_BUSY  another process holds the directory, or has just removed or replaced it
 *   FSDP_ERR_IO
 */
enum fsdp_status temporary_claim(struct fsdp_io *io, const char *path, int *fd, struct fsdp_err *err);

#endif
