/*
 * The descriptor of one collective. Ranks exchange it before they move data, so that ranks that call
 * different collectives find out. The flight recorder and the messages take their words from it too.
 */
#ifndef COMM_CALL_H
#define COMM_CALL_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/comm.h>

#include "shard_runtime/comm/flight.h"

/* A reduction in addition to those of enum fsdp_reduce_op, for comm_reduce_scatter_scaled(). */
enum { COMM_SCALED_SUM = FSDP_MAX + 1 };

enum comm_kind {
    COMM_BARRIER = 1,
    COMM_ALL_GATHER,
    COMM_REDUCE_SCATTER,
    COMM_ALL_REDUCE,
    COMM_BROADCAST,
    COMM_GONE /* not a collective: the sender has left the group and calls no other */
};

/*
 * One collective as one rank sees it. It must be equal on all ranks, byte for byte, before any data moves.
 * It travels between hosts as it is in memory: all ranks run the same build.
 */
struct comm_call {
    uint64_t sequence;   /* number of the call in its group, from 1 */
    uint64_t size_bytes; /* bytes per rank for the first two kinds; bytes of the buffer for the others */
    uint32_t kind;       /* enum comm_kind */
    uint32_t dtype;      /* enum fsdp_dtype */
    uint32_t op;         /* enum fsdp_reduce_op or COMM_SCALED_SUM; 0 where nothing is reduced */
    uint32_t root;       /* of a broadcast; 0 otherwise */
};

/* One collective with its buffers, as the group's public call hands it to a back end. */
struct comm_work {
    struct comm_call call;
    /*
     * As in <fsdp/comm.h>. For a call on one buffer (all-reduce, broadcast) both pointers are that buffer;
     * for a barrier both are NULL.
     */
    const void *send;
    void *recv;
    float factor; /* of COMM_SCALED_SUM */
};

/** Returns the number of elements that `call` is about: per rank, or of the buffer, as for size_bytes. */
size_t comm_call_elems(const struct comm_call *call);

/** Returns what the flight recorder notes about `call`; the caller fills in the group and the place. */
struct flight_note comm_call_note(const struct comm_call *call);

/**
 * Compares the calls of two ranks.
 *
 *   mine, rank          this rank's call and its number in the group
 *   theirs, their_rank  the same of the other rank
 *
 * Returns FSDP_OK if both are equal. Otherwise returns FSDP_ERR_MISMATCH, and `err` names both ranks and
 * calls.
 */
enum fsdp_status comm_call_compare(const struct comm_call *mine, int rank, const struct comm_call *theirs,
                                   int their_rank, struct fsdp_err *err);

#endif
