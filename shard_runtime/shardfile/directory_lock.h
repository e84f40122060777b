/*
 * One process at a time saves to a directory of checkpoints: two would replace and delete each other's steps.
 *
 * The lock is an flock(2) on the file ".lock" in that directory. It is held from the first save until the holder
 * releases it or ends, so that a second run is refused even if the two never save at the same moment. The file itself stays: a
 * process that removed it could remove the one that another process has just locked. The holder's words stand in it, unless
 * it belongs to another user and cannot be written: then it is locked all the same, where the file system allows that.
 */
#ifndef SHARDFILE_DIRECTORY_LOCK_H
#define SHARDFILE_DIRECTORY_LOCK_H

#include <stdbool.h>

#include <fsdp/status.h>

#include "shard_runtime/shardfile/io.h"

/** The locks that one owner holds: a list, NULL when empty. */
struct directory_lock;

/**
 * Hold `directory`, which exists, and add it to `*locks` unless it is there already (under whatever name).
 *   held  false: this file system has no locks. Then nothing is known about other processes.
 *   FSDP_ERR_BUSY    another process, or another owner in this one, holds it; the message says who
 *   FSDP_ERR_FORMAT  ".lock" is no regular file
 *   FSDP_ERR_IO
 */
enum fsdp_status directory_lock_take(struct directory_lock **locks, struct fsdp_io *io, const char *directory,
                                     bool *held, struct fsdp_err *err);

/**
 * Share `directory` with others that share it, to clean it; as directory_lock_take(), which waits until no process shares it.
 * So a process that cleans keeps none from saving.
 */
enum fsdp_status directory_lock_share(struct directory_lock **locks, struct fsdp_io *io, const char *directory,
                                      bool *held, struct fsdp_err *err);

/** Let go of all of them. `io` as it was given when they were taken. */
void directory_lock_release(struct directory_lock **locks, struct fsdp_io *io);

#endif
