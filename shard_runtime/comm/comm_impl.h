/*
 * The communicator, as comm.c and its back ends share it. Included inside comm/ only, and by tests that put a
 * back end of their own in place.
 *
 *   open.c         checks a group's members, makes communicators, splits them
 *   comm.c         the calls: arguments, threads, the progress page; owns `sequence`, `stream`, `entry`,
 *                  `phase`, `broken` and the thread's fields
 *   cpu.c          back end for host memory; owns `state`
 *   device_comm.c  back end for device memory, around one for host memory; owns `state`
 */
#ifndef COMM_COMM_IMPL_H
#define COMM_COMM_IMPL_H

#include <pthread.h>

#include "shard_runtime/comm/call.h"
#include "shard_runtime/comm/comm.h"
#include "shard_runtime/comm/link_client.h"

enum { COMM_NAME_BYTES = 48 };

struct fsdp_comm {
    const struct comm_ops *ops;
    struct link *link; /* borrowed */
    int rank, size;
    char name[COMM_NAME_BYTES];
    uint64_t sequence; /* collectives begun so far, the running one included */

    /* The running call. */
    /* the stream with which the call is ordered; NULL: the device's default stream */
    struct device_stream *stream;
    /*
     * The call's entry of the flight recorder. A back end that returns before the call is done takes the
     * entry, leaves NULL here, and ends the entry itself.
     */
    struct fsdp_flight_entry *entry;
    uint32_t phase; /* what the progress page said before the call */

    uint32_t number; /* the group's number on the progress page */

    struct fsdp_err broken; /* the first failure, sticky; FSDP_OK while the group is sound */
    bool owned;             /* only `thread`, and threads of comm_second_thread(), may call */
    bool lent;              /* `thread` itself may not call for now; only `thread` reads and writes this */
    pthread_t thread;
    void *state; /* the back end's own */
};

/* Where the members of a group are. They come node by node, the same number on each. */
struct comm_places {
    int n_nodes;  /* nodes with members */
    int per_node; /* members on each of them */
};

/** Returns the calling thread's part of the progress page. */
struct fsdp_progress_thread *comm_thread(struct fsdp_progress *page);

/**
 * Opens the back end for host memory, collectively over the members: sets comm->ops and comm->state.
 * `config` and `places` are only read during the call. After an error nothing is left open.
 */
enum fsdp_status comm_cpu_open(struct fsdp_comm *comm, const struct comm_config *config,
                               const struct comm_places *places, struct fsdp_err *err);

#endif
