/*
 * The segment's layout and one rank's view of it. Inside the shared memory's files only.
 *
 *   head      struct shm_head                       4096 bytes
 *   marks     struct shm_mark, one for each rank    rounded up to 4096
 *   slots     rank 0's two, rank 1's two, ...       chunk_bytes each
 *
 *   shm_segment.c  makes and maps the segment; owns all fields that do not change later
 *   shm_meet.c     meetings and failures; owns `meeting`, `n_calls`, `call`, `call_pending`, and the head's
 *                  counters
 *   shm_steps.c    the data; owns the slots, `n_chunks` and `sources`
 */
#ifndef COMM_SHM_SEGMENT_H
#define COMM_SHM_SEGMENT_H

#include <stdalign.h>
#include <stdatomic.h>

#include "shard_runtime/comm/shm.h"

enum { SHM_MAGIC = 0x48534653 /* "SFSH" */, SHM_WORDS_BYTES = 384, SHM_HEAD_BYTES = 4096, SHM_CPUS = 1024 };

enum shm_failed { SHM_WHOLE = 0, SHM_FAILING = 1, SHM_FAILED = 2 };

struct shm_head {
    uint32_t magic;
    uint32_t n;
    uint64_t chunk_bytes;
    /* A bit for each CPU that some rank may use. Complete once the first meeting is over. */
    _Atomic uint64_t cpus[SHM_CPUS / 64];

    /* Ranks that have come to a meeting, counted over all meetings; wraps around. */
    alignas(64) _Atomic uint32_t arrived;
    /* Meetings that are over; wraps around. Waiting ranks sleep on this word (futex). */
    alignas(64) _Atomic uint32_t released;
    /* how many ranks may be asleep on `released`; too high a number does no harm */
    _Atomic uint32_t sleepers;

    /* enum shm_failed. The status and words after it are valid once it is SHM_FAILED. */
    alignas(64) _Atomic uint32_t failed;
    uint32_t failed_status;
    char failed_words[SHM_WORDS_BYTES];
};
_Static_assert(sizeof(struct shm_head) <= SHM_HEAD_BYTES, "the head fits its page");

/*
 * The calls of one rank; call number i is at place i % 2. Two places suffice: while another rank still
 * compares one call, this rank may begin the next call, but not the one after that.
 */
struct shm_mark {
    alignas(64) struct comm_call calls[2];
};

struct shm {
    struct shm_head *head;
    struct shm_mark *marks;
    char *slots;
    size_t mapped_bytes, chunk_bytes;
    struct watch *watch;
    int first, n, self;
    int n_spins, n_yields; /* checks of the counter before a wait sleeps; one of them is 0 */
    uint32_t meeting;      /* meetings this rank has come to */
    uint32_t n_chunks;     /* chunks staged so far: the parity picks the slot */
    uint32_t n_calls;      /* collectives entered: the parity picks the mark */
    struct comm_call call;
    bool call_pending;    /* not compared yet */
    const void **sources; /* (n) scratch of the reductions */
};

/** Returns the slot of `rank` for the current chunk. */
static inline char *shm_slot(const struct shm *shm, int rank)
{
    return shm->slots + ((size_t)rank * 2 + (shm->n_chunks & 1)) * shm->chunk_bytes;
}

/**
 * Announces that this rank has come to the next meeting. What it stored before is seen by every rank that
 * passes.
 */
void shm_arrive(struct shm *shm);
/**
 * Waits until all have come to it. In the first meeting of a collective, also compares the calls. After an
 * error this rank has told the others (shm_fail()).
 */
enum fsdp_status shm_await(struct shm *shm, struct fsdp_err *err);

#endif
