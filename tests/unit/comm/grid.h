/*
 * A world of threads over the cpu back end's real transports. Each rank is a thread with a link of its own to
 * an agent that the test plays (mini_agent.h), on any number of pretended nodes. What needs a process to die,
 * to stop or to lose its network is in tests/system/test_comm.sh.
 */
#ifndef TEST_COMM_GRID_H
#define TEST_COMM_GRID_H

#include <pthread.h>

#include "shard_runtime/comm/comm.h"
#include "shard_runtime/comm/link_client.h"
#include "tests/support/fakes/mini_agent.h"

enum { GRID_RANKS = 8 };

/* W ranks on n_nodes nodes. One rank: no side; one node: shared memory; W nodes: TCP; otherwise both. */
struct shape {
    int W, n_nodes;
};

struct rank {
    int r;
    struct link *link;
    struct fsdp_comm *comm; /* NULL until join() */
    struct fsdp_err err;
    pthread_t thread;
    int status; /* what the body returned */
};

/* The one world of a test's process. The test may set hooks of `agent` before grid_run(). */
struct grid {
    struct shape shape;
    size_t chunk;
    bool joins; /* each rank opens the group, and waits for all others, before its body */
    int (*body)(struct rank *rank);
    struct mini_agent agent;
    struct rank ranks[GRID_RANKS];
};
extern struct grid grid;

/**
 * Runs `body` on every rank; what it leaves open is closed. Returns the ranks whose body did not return 0.
 */
int grid_run(struct shape shape, size_t chunk_bytes, int (*body)(struct rank *rank));

/** The same, after every rank has opened the group. */
int grid_run_joined(struct shape shape, size_t chunk_bytes, int (*body)(struct rank *rank));

/** Opens the group "world" on this rank. */
enum fsdp_status grid_join(struct rank *rank);

/** Returns 1, for a body to return, after one line with `what` and rank->err on stderr. */
int grid_bad(const struct rank *rank, const char *what);

#endif
