/* Shared by net.c (what happens between the kernels of two hosts) and peer.c (what a process sees of it). */
#ifndef SIM_NET_IMPL_H
#define SIM_NET_IMPL_H

#include "agent/wire/peer.h"
#include "tests/sim/sim.h"

enum {
    WINDOW_BYTES = 262144, /* bytes that may be under way before the queue of the process grows */
    CONTROL_BYTES = 64     /* of a segment that is no frame */
};

enum kind { SYN, ACCEPTED, HELLO_1, HELLO_2, HELLO_3, FRAME, FIN, RESET };

struct segment {
    struct segment *next;
    enum kind kind;
    int64_t at, sent_at; /* when it arrives; when it was first sent */
    size_t bytes;
    struct frame frame;
    unsigned char payload[];
};

struct way {
    struct segment *first, *last;
    int64_t last_at;
    int n_tries;
    size_t unacknowledged;
};

struct connection {
    struct host *host[2]; /* 0 dialled */
    struct peer *end[2];  /* NULL: its socket is closed */
    struct way way[2];    /* way[s] begins at end s */
    bool over;            /* no end is left, or both are reset */
    int port;
    struct connection *next;
};

struct peer {
    struct peer *next, *next_ready;
    struct process *process;
    struct connection *connection;
    int side;
    struct peer_config config;
    struct segment *inbox, **inbox_end;
    const char *broken; /* the kernel has given it up */
    bool is_ready, is_new, connected, opened, admitted, ended, left, closing, drained;
    uint64_t n_received;
    struct fsdp_err why;
    void *data;
    uv_timer_t timer;
    char name[64];
};

struct peer_listener {
    struct peer_listener *next;
    struct process *process;
    struct peer_config config;
    int family, port;
    bool closed;
};

extern struct connection *sim_connections; /* all that ever were */

/** Send a segment from that end. `frame`: of a FRAME, else NULL. */
void net_enqueue(struct connection *connection, int side, enum kind kind, const struct frame *frame);
/** Send a reset from that end, which is closed by it. What waits there is thrown away. */
void net_reset_from(struct connection *connection, int side);
/** The process of that end has something to read. */
void net_make_ready(struct peer *peer);
/** Make that end of a connection for a process. */
struct peer *net_create_peer(struct process *process, struct connection *connection, int side,
                             const struct peer_config *config);
/** Returns NULL if no live process listens there. */
struct peer_listener *net_find_listener(const struct host *host, int port);

#endif
