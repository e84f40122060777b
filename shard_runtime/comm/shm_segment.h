/*
 * The layout of the segment, and the meeting of its ranks. Inside the shm back end only.
 *
 *   head      struct shm_head                       4096 bytes
 *   marks     struct shm_mark, one a rank           rounded up to 4096
 *   slots     rank 0's two, rank 1's two, ...       chunk_bytes each
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
    _Atomic uint64_t
        cpus[SHM_CPUS / 64]; /* a bit for each that some rank may use; whole after the first meeting */

    alignas(
        64) _Atomic uint32_t arrived; /* ranks that have come to a meeting, all meetings together; wraps */
    alignas(64) _Atomic uint32_t released; /* meetings that are over; wraps; the futex word */
    _Atomic uint32_t sleepers;             /* ranks that may be asleep on it; too high does no harm */

    alignas(64) _Atomic uint32_t failed; /* enum shm_failed; what follows is set once it is SHM_FAILED */
    uint32_t failed_status;
    char failed_words[SHM_WORDS_BYTES];
};
_Static_assert(sizeof(struct shm_head) <= SHM_HEAD_BYTES, "the head fits its page");

/*
 * What a rank calls, by parity of its count of calls: a rank may begin the next one while another still compares this
 * one, but not the one after.
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
    int n_spins, n_yields; /* looks at the counter before a wait sleeps; one of them is 0 */
    uint32_t meeting;      /* meetings this rank has come to */
    uint32_t n_chunks;     /* chunks staged so far: the parity picks the slot */
    uint32_t n_calls;      /* collectives entered: the parity picks the mark */
    struct comm_call call;
    bool call_pending;    /* not compared yet */
    const void **sources; /* (n) scratch of the reductions */
};

static inline char *shm_slot(const struct shm *shm, int rank)
{
    return shm->slots + ((size_t)rank * 2 + (shm->n_chunks & 1)) * shm->chunk_bytes;
}

/** Say that this rank has come; its stores are seen by whoever passes the meeting. */
void shm_arrive(struct shm *shm);
/** Wait until all have come; compare calls if this is a collective's first meeting. */
enum fsdp_status shm_await(struct shm *shm, struct fsdp_err *err);

#endif
