/*
 * The table of file operations (io.h) for any place that a user may name: io_s3 for "s3://bucket/key" and its
 * descriptors, and io_posix for everything else. Thread safety: as both.
 */
#ifndef SHARDFILE_IO_ANYWHERE_H
#define SHARDFILE_IO_ANYWHERE_H

#include "shard_runtime/shardfile/io.h"

extern struct fsdp_io io_anywhere; /* has no state, so all users may share it */

#endif
