/*
 * Reads or writes the bytes of one file in pieces of 1 MiB, by several threads. A thread takes the next piece
 * and does it, with a buffer of its own. What needs the pieces in order, such as the checksum of the file,
 * waits for its turn.
 *
 * How many threads: the file begins with as many as its user says. While each further one makes the work a
 * tenth faster, there is one more, as long as a CPU is free for it (core/free_cpus.h). A piece that waits for
 * a disk may ask for more. There are never more than PIECE_THREADS. A file of a few pieces is done by the
 * caller alone. So are files of an `io` that takes one thread only, and those in an object store.
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
    size_t buffer_bytes; /* of each thread; rounded up to whole blocks, and on a block */
    bool one_thread;     /* what the pieces need is not for several threads */
    int threads_first;   /* that it begins with */
    int threads_most;    /* 0: as said above; a test wants its own number */
    /* Does one piece. A failure ends the work of all threads. */
    enum fsdp_status (*piece)(void *user, struct piece_crew *crew, uint64_t number, unsigned char *buffer,
                              struct fsdp_err *err);
    void *user;
};

/**
 * Waits until all pieces before `number` had their turn. The one with the lowest number never waits, so there
 * is always a thread that goes on. Returns false if another thread has failed: then this piece ends without
 * one. Else piece_crew_end_turn() follows.
 */
bool piece_crew_await_turn(struct piece_crew *crew, uint64_t number);
void piece_crew_end_turn(struct piece_crew *crew);

/** Starts threads until there are `n`, if the work may have several. For pieces that wait for a disk. */
void piece_crew_reach(struct piece_crew *crew, int n);

/**
 * Does all pieces. The first failure ends it, and *err is that one. *n_threads receives how many threads
 * there were, the caller included; NULL: unwanted.
 */
enum fsdp_status piece_crew_run(const struct piece_work *work, int *n_threads, struct fsdp_err *err);

#endif
