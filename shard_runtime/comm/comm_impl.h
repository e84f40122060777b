/*
 * What comm.c and its back ends share: the communicator itself, the list of back ends, and the descriptor of a
 * collective by which ranks find out that they do not do the same.
 */
#ifndef COMM_COMM_IMPL_H
#define COMM_COMM_IMPL_H

#include <pthread.h>

#include "shard_runtime/comm/comm.h"
#include "shard_runtime/comm/link_client.h"

enum { COMM_NAME_BYTES = 48 };

struct fsdp_comm {
    const struct comm_ops *ops;
    struct link *link; /* borrowed */
    int rank, size;
    char name[COMM_NAME_BYTES];
    uint64_t sequence; /* collectives begun so far, the running one included */
    /* Of the running call: what it is ordered with (NULL: the device's default), and its entry of the flight recorder. A back
     * end that returns before the call is done takes the entry, leaves NULL, and ends it then. */
    struct device_stream *stream;
    struct fsdp_flight_entry *entry;
    struct fsdp_err broken; /* status other than FSDP_OK: the first failure, sticky */
    bool owned;             /* by `thread`: no other may call, but one of comm_second_thread() */
    pthread_t thread;
    bool
        lent; /* to such a thread: `thread` itself may not call meanwhile. Written and read by `thread` alone */
    void *state;            /* the back end's own */
};

/* An operation beside those of fsdp_reduce_op: comm_reduce_scatter_scaled(). */
enum { COMM_SCALED_SUM = FSDP_MAX + 1 };

enum comm_kind { COMM_BARRIER = 1, COMM_ALL_GATHER, COMM_REDUCE_SCATTER, COMM_ALL_REDUCE, COMM_BROADCAST,
                 COMM_GONE /* no collective: the sender comes to none any more */ };

/* One collective as a rank sees it. Equal on all ranks, or nothing moves. Travels as it is between hosts of one build. */
struct comm_call {
    uint64_t sequence;
    uint64_t size_bytes; /* per rank for the first two, of the buffer for the others */
    uint32_t kind;
    uint32_t dtype;
    uint32_t op;
    uint32_t root;
};

struct comm_call comm_call_of(const struct fsdp_comm *comm, enum comm_kind kind, size_t size_bytes,
                              enum fsdp_dtype dtype, enum fsdp_reduce_op op, int root);

/** FSDP_OK if both do the same; else FSDP_ERR_MISMATCH, naming both ranks and what each of them does. */
enum fsdp_status comm_call_compare(const struct comm_call *mine, int rank, const struct comm_call *theirs,
                                   int their_rank, struct fsdp_err *err);

/* A placement of the members on nodes that the back ends can work with. */
struct comm_places {
    int n_nodes;  /* on which members are */
    int per_node; /* members on each of them */
};

/** Which node each member is on: ranks come node by node, equally many on each (FSDP_ERR_UNSUPPORTED otherwise). */
enum fsdp_status comm_place(struct comm_places *places, const struct comm_config *config,
                            struct fsdp_err *err);

/* Of the joined back end: partial sums of one piece for all nodes together. */
enum { JOINED_PARTIAL_BYTES = 1 << 20 };

extern const struct comm_ops comm_self_ops;
extern const struct comm_ops comm_shm_ops;
extern const struct comm_ops comm_tcp_ops;
extern const struct comm_ops comm_joined_ops;

#endif
