/*
 * Writes the bytes of a file in pieces of 1 MiB, by several threads (piece_crew.h). A thread takes the next
 * piece, reads its bytes into a buffer of its own, computes the sums of its chunks, and writes it. The
 * checksum of the whole file needs all bytes in order. So each thread waits until the earlier pieces are in
 * that checksum.
 *
 * Each thread needs memory for 1 MiB and a chunk. The result does not depend on the number of threads.
 */
#ifndef SHARDFILE_PIECE_WRITER_H
#define SHARDFILE_PIECE_WRITER_H

#include <stdbool.h>
#include <stdint.h>
#include <xxhash.h>

#include <fsdp/status.h>

#include "shard_runtime/shardfile/chunk_sums.h"
#include "shard_runtime/shardfile/piece_crew.h"

/* The bytes [begin, end) of an open file, and the function that provides them. */
struct piece_writer {
    struct fsdp_io *io;
    const char *path;
    int fd;
    /*
     * The file of `fd`, opened with O_DIRECT; -1: not used. `begin` must then be a multiple of the block
     * size, and zeros may be written after `end`, up to the end of the block. After EINVAL or a short write,
     * `fd` is used instead.
     */
    int direct_fd;
    uint64_t begin, end;
    /* Provides the bytes that the file has at `offset`. */
    enum fsdp_status (*read)(void *user, uint64_t offset, void *bytes, size_t size_bytes,
                             struct fsdp_err *err);
    void *user;
    bool any_thread;    /* several threads may call read() at the same time */
    int threads_most;   /* the most threads, for tests; 0: as in piece_crew.h */
    XXH3_state_t *hash; /* has hashed the file up to `begin`, and afterwards up to `end` */
    /* knows all chunks of the file; receives their sums; NULL: no sums are computed */
    struct chunk_sums *sums;
    /* incremented by the bytes of each piece that was written; NULL: not wanted */
    _Atomic uint64_t *n_written;
};

/**
 * Reads, hashes and writes all bytes. The first failure ends the work, and is the one in *err; the file is
 * then useless. *n_threads receives the number of threads, with the caller; NULL: the caller does not want
 * it.
 */
enum fsdp_status piece_writer_run(const struct piece_writer *writer, int *n_threads, struct fsdp_err *err);

#endif
