/*
 * Does the planned reads of one file, in pieces of 1 MiB by several threads (shardfile/piece_crew.h). If the
 * rank verifies the file, every byte of it is read, once, and put into its checksum.
 *
 * A piece comes from the page cache if it is there. Else a file that the rank verifies is read around the
 * page cache: no other rank is likely to want it. Other files are read through the page cache.
 */
#ifndef CHECKPOINT_FILE_READER_H
#define CHECKPOINT_FILE_READER_H

#include <stddef.h>

#include <fsdp/status.h>

#include "shard_runtime/checkpoint/reshard.h"
#include "shard_runtime/shardfile/file_sum.h"
#include "shard_runtime/shardfile/io.h"

struct file_reader {
    struct fsdp_io *io;
    const char *path;
    const struct reshard_read *reads; /* (n_reads) sorted by offset */
    size_t n_reads;
    /* the checksum to which all bytes of the file are added; NULL: another rank verifies the file */
    struct file_sum *sum;
    /*
     * the most threads that read the file; 0: the number that piece_crew.h chooses. Only tests set another.
     */
    int threads_most;
};

/** Does all reads. Compares no checksum: that is file_sum_check(). The first failure ends it. */
enum fsdp_status file_reader_run(const struct file_reader *reader, struct fsdp_err *err);

#endif
