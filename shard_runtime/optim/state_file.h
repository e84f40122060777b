/*
 * A file that extends memory while a process lives. Its space is reserved at once, it has no name, and it
 * disappears with the process however that ends. Its content is not used afterwards: a run resumes from its
 * checkpoint.
 *
 * The file bypasses the page cache if the file system supports O_DIRECT, so that offloaded data does not fill
 * memory again as cache. Therefore it is read and written in whole blocks only.
 *
 * Thread: one at a time.
 */
#ifndef OPTIM_STATE_FILE_H
#define OPTIM_STATE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "shard_runtime/shardfile/io.h"

struct state_file {
    struct fsdp_io *io;
    int fd;                    /* -1: not open */
    bool direct;               /* around the page cache */
    char words[IO_PATH_BYTES]; /* for messages */
};

/**
 * Reserve `size_bytes` of zeros in `directory`, which is created. `rank` keeps the ranks of a job apart while
 * the file has its name, for a moment.
 *   FSDP_ERR_CONFIG  the directory is in memory (tmpfs), so the file would save no memory
 *   FSDP_ERR_IO      it cannot be made, or the disk is full
 */
enum fsdp_status state_file_open(struct state_file *file, struct fsdp_io *io, const char *directory, int rank,
                                 uint64_t size_bytes, struct fsdp_err *err);
/** One that is not open is fine. */
void state_file_close(struct state_file *file);

/**
 * Memory, size and offset are whole blocks (STATE_BLOCK_BYTES). FSDP_ERR_IO names the directory and the
 * reason.
 */
enum fsdp_status state_file_read(struct state_file *file, void *bytes, size_t size_bytes, uint64_t offset,
                                 struct fsdp_err *err);
enum fsdp_status state_file_write(struct state_file *file, const void *bytes, size_t size_bytes,
                                  uint64_t offset, struct fsdp_err *err);

#endif
