/*
 * Allows one process at a time to save to a directory of checkpoints. Two would replace and delete each
 * other's steps.
 *
 * The lock is an flock(2) on the file ".lock" in that directory. The holder keeps it from its first save
 * until it releases the lock or ends. So a second run is refused even if the two never save at the same
 * moment. The file itself is never removed: a process that removed it could remove one that another process
 * has just locked.
 *
 * The holder writes into the file who it is. It skips this if the file belongs to another user and is
 * read-only. Such a file is locked all the same, if the file system allows that.
 */
#ifndef SHARDFILE_DIRECTORY_LOCK_H
#define SHARDFILE_DIRECTORY_LOCK_H

#include <stdbool.h>

#include <fsdp/status.h>

#include "shard_runtime/shardfile/io.h"

/** The locks that one owner holds: a list, NULL when empty. */
struct directory_lock;

/*
 * How long directory_lock_take() waits for processes that only clean the directory. Removing leftovers takes
 * less time than this.
 */
enum { DIRECTORY_LOCK_WAIT_MS = 30000 };

/**
 * Takes the exclusive lock of `directory`, which must exist, and adds it to *locks. If *locks already has
 * this directory's lock, even by another path, the call succeeds at once. While other processes share the
 * directory to clean it, the call waits up to DIRECTORY_LOCK_WAIT_MS.
 *
 *   locks  the caller's list; released by directory_lock_release()
 *   held   receives false if this file system has no locks: then other processes cannot be detected
 *
 * An error leaves *locks unchanged.
 *   FSDP_ERR_BUSY    another process, or another owner in this process, holds the directory; the message
 *                    names the holder. Or another process is still cleaning after the wait
 *   FSDP_ERR_FORMAT  ".lock" is not a regular file
 *   FSDP_ERR_IO, FSDP_ERR_NOMEM
 */
enum fsdp_status directory_lock_take(struct directory_lock **locks, struct fsdp_io *io, const char *directory,
                                     bool *held, struct fsdp_err *err);
/** Does the same as directory_lock_take(), but waits for at most `wait_ms` milliseconds. */
enum fsdp_status directory_lock_take_within(struct directory_lock **locks, struct fsdp_io *io,
                                            const char *directory, int wait_ms, bool *held,
                                            struct fsdp_err *err);

/**
 * Takes a shared lock of `directory`, to clean it. Several processes may share it at the same time. Never
 * waits. Arguments and errors are those of directory_lock_take(). Returns FSDP_ERR_BUSY if a process holds
 * the exclusive lock.
 */
enum fsdp_status directory_lock_share(struct directory_lock **locks, struct fsdp_io *io,
                                      const char *directory, bool *held, struct fsdp_err *err);

/** Releases all locks in the list, which is then empty. `io` must be the table with which they were taken. */
void directory_lock_release(struct directory_lock **locks, struct fsdp_io *io);

#endif
