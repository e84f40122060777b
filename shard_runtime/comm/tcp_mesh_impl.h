/*
 * The mesh itself, for tcp_mesh.c and tcp_steps.c alone. tcp_mesh.c owns all of it, but for `sources`, which
 * is scratch of tcp_steps.c.
 */
#ifndef COMM_TCP_MESH_IMPL_H
#define COMM_TCP_MESH_IMPL_H

#include "shard_runtime/comm/tcp_mesh.h"

/* Bytes of a chunk that is summed at a time. */
enum { TCP_CHUNK_BYTES = 256 << 10 };

/*
 * A connection, what it has still to send and what it still awaits. The calls go before the data, both ways.
 */
struct conn {
    int fd; /* -1: this node itself */
    struct comm_call call_out, call_in;
    size_t call_out_at,
        call_in_at; /* bytes of the two calls that were sent and received; equal to their size: complete */
    const char *out;
    size_t out_left;
    char *in;
    size_t in_left;
};

struct tcp_mesh {
    struct watch *watch;
    struct fsdp_progress *page; /* where it shows what it waits for */
    int64_t patience_ms;        /* tcp_patience_ms() */
    int n, self, rail, rails;
    struct comm_call call; /* this rank's running one */
    struct conn *conns;    /* (n) */
    struct pollfd *polls;  /* (n) */
    const void **sources;  /* (n) */
    char *staging;         /* (n, TCP_CHUNK_BYTES): a chunk of each node, while it is summed */
};

/**
 * Moves data until all that is awaited has come and, if `flush`, all has gone. Without `flush`, the rest is
 * sent in the next exchange, while this rank sums what it has. After a failure the connections are broken.
 */
enum fsdp_status tcp_exchange(struct tcp_mesh *mesh, bool flush, struct fsdp_err *err);

#endif
