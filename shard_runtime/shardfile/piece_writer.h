/*
 * Writes a file's bytes in pieces of 1 MiB, by several threads (piece_crew.h). A thread takes the next piece,
 * reads its bytes into a buffer of its own, computes the sums of its chunks, and writes it. The checksum of
 * the whole file needs all bytes in order: so each thread waits until the pieces before its own are in it.
 *
 * Memory: 1 MiB and a chunk for each thread. The file does not depend on the number of threads.
 */
#ifndef SHARDFILE_PIECE_WRITER_H
#define SHARDFILE_PIECE_WRITER_H

#include <stdbool.h>
#include <stdint.h>
#include <xxhash.h>

#include <fsdp/status.h>

#include "shard_runtime/shardfile/chunk_sums.h"
#include "shard_runtime/shardfile/piece_crew.h"

/* The bytes [begin, end) of an open file, and where they come from. */
struct piece_writer {
    struct fsdp_io *io;
    const char *path;
    int fd;
    /*
     * The same file, opened with O_DIRECT; -1: not used. `begin` is then a whole number of blocks, and zeros
     * may be written beyond `end`, up to a whole block. After EINVAL or a short write, `fd` is used.
     */
    int direct_fd;
    uint64_t begin, end;
    /* Reads the file's bytes at `offset`. */
    enum fsdp_status (*read)(void *user, uint64_t offset, void *bytes, size_t size_bytes,
                             struct fsdp_err *err);
    void *user;
    bool any_thread;             /* read() may be called by several threads at the same time */
    int threads_most;            /* 0: as piece_crew.h says; a test wants its own number */
    XXH3_state_t *hash;          /* of the file up to `begin`; then up to `end` */
    struct chunk_sums *sums;     /* has all chunks of the file; NULL: no sums are wanted */
    _Atomic uint64_t *n_written; /* grows by the bytes of each piece that is written; NULL: unwanted */
};

/**
 * Reads, sums and writes all of it. The first failure ends it: *err is that one, and what was written is of
 * no use. *n_threads receives how many threads there were, the caller included; NULL: unwanted.
 */
enum fsdp_status piece_writer_run(const struct piece_writer *writer, int *n_threads, struct fsdp_err *err);

#endif
