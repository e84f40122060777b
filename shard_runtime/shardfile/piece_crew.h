/*
 * Reads or writes one file in pieces of 1 MiB, by several threads. Each thread takes the next piece, and does
 * it with a buffer of its own. A computation that needs the pieces in order, such as the checksum of the
 * file, waits for the turn of its piece.
 *
 * The number of threads: the work begins with as many as its caller says. Then threads are added one by one.
 * That ends when one does not make the work a tenth faster, or when no CPU is free (core/free_cpus.h). A
 * piece that waits for a disk may ask for more threads. There are never more than PIECE_THREADS. The caller
 * alone does a file of few pieces, and a file in an object store. So it does if `io` allows only one thread.
 */
#ifndef SHARDFILE_PIECE_CREW_H
#define SHARDFILE_PIECE_CREW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "shard_runtime/shardfile/io.h"

enum {
    PIECE_BYTES = 1 << 20,
    PIECE_BLOCK_BYTES = 4096, /* unit of O_DIRECT for memory, offset and length */
    PIECE_THREADS = 8,
};

struct piece_crew;

struct piece_work {
    struct fsdp_io *io;
    const char *path;
    uint64_t n_pieces;
    size_t buffer_bytes; /* size of each thread's buffer; rounded up to whole blocks and aligned to a block */
    bool one_thread;     /* true: only one thread at a time may use what the pieces need */
    int threads_first;   /* number of threads at the beginning */
    int threads_most;    /* the most threads, for tests; 0: as described above */
    /* Does one piece. If it fails, all threads stop after their current piece. */
    enum fsdp_status (*piece)(void *user, struct piece_crew *crew, uint64_t number, unsigned char *buffer,
                              struct fsdp_err *err);
    void *user;
};

/**
 * Waits until all pieces before `number` have had their turn. The piece with the lowest number never waits,
 * so one thread can always go on. Returns true when it is this piece's turn; the caller ends it by
 * piece_crew_end_turn(). Returns false if another thread has failed; then this piece gets no turn.
 */
bool piece_crew_await_turn(struct piece_crew *crew, uint64_t number);
void piece_crew_end_turn(struct piece_crew *crew);

/** Starts threads until there are `n`, if the work allows several. For pieces that wait for a disk. */
void piece_crew_reach(struct piece_crew *crew, int n);

/**
 * Does all pieces. The first failure ends the work, and is the one in *err. *n_threads receives the number of
 * threads, with the caller; NULL: the caller does not want it.
 */
enum fsdp_status piece_crew_run(const struct piece_work *work, int *n_threads, struct fsdp_err *err);

#endif
