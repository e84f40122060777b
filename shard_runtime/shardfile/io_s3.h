/*
 * A table of file operations (io.h) for paths "s3://bucket/key" in an object store. Other paths are refused.
 * io_anywhere.h chooses between this table and io_posix.
 *
 * An object store has no directories, no rename and no locks. What a checkpoint needs of them is made so:
 *   1. Ranks write their files as objects DIR/<temporary>/<file>. An object appears when it is synced or
 *      closed.
 *   2. Renaming DIR/<temporary> to DIR/step-N is a conditional write of one small object, DIR/step-N. It
 *      holds the name <temporary>. It succeeds only if there is no such object, so one publisher wins.
 *   3. A path DIR/step-N/<file> means the object DIR/<name in DIR/step-N>/<file>. Listing DIR leaves out the
 *      temporary names that a step has: they are published.
 *   4. Renaming DIR/step-N to a trash name deletes the object DIR/step-N. This process still knows what it
 *      named, until it has removed the trash. If it dies before, the temporary name is seen again, and
 *      cleaned as one.
 *   5. Renaming DIR/<temporary> to a trash name deletes its manifest, so no publisher reads it back any more.
 *
 * Listing DIR also shows temporary names that only have uploads under way, and removing a directory ends
 * them. Two names cannot be swapped (EINVAL), and a lock fails as on a file system without locks: nothing
 * keeps two runs from sharing a DIR.
 *
 * A descriptor of this table is one of the process's own, so that no other file has its number. The store,
 * its credentials and libcurl are looked for when the first path is used. From then on the process leaves no
 * core dump (core/hide_memory.h). Errors of the store are EREMOTEIO, with the words of file_error_words().
 *
 * Thread safety: any number of threads, also on one descriptor.
 */
#ifndef SHARDFILE_IO_S3_H
#define SHARDFILE_IO_S3_H

#include "shard_runtime/shardfile/io.h"

extern struct fsdp_io io_s3;

/** Returns whether `fd` is a descriptor of this table. Costs nothing while there is none. */
bool io_s3_owns(int fd);

/**
 * Checks that `path` is a place for checkpoints, and that the environment and libcurl serve to reach it.
 * Sends nothing. FSDP_ERR_CONFIG, FSDP_ERR_UNSUPPORTED
 */
enum fsdp_status io_s3_check(const char *path, struct fsdp_err *err);

struct s3_client;

/**
 * For tests: the client to use from now on, and the size of parts (0: as s3_plan.h says). NULL: the usual
 * one.
 */
void io_s3_use(struct s3_client *client, size_t part_bytes);

#endif
