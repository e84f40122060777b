/*
 * Copies of snapshots in the memory of another node (checkpoint.replicas), the loop's side. The nodes of a
 * generation form a ring by their seats: each holds copies for the node before it. A process does the work
 * (copies_process.h), from the start of a generation until its workers are gone.
 *
 *   1. The process of each node listens. Its agent puts the address under a key of the generation.
 *   2. A node that lacks the step from which the ranks go on fetches it from the node that has it.
 *   3. Then the workers of this node get their segments.
 *   4. What they fill is copied to the next node of the ring.
 * If anything fails, the ranks go on without copies, and the run says so.
 *
 * Thread: the loop's.
 */
#ifndef AGENT_COPIES_H
#define AGENT_COPIES_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "agent/snapshot/copies_process.h"
#include "agent/snapshot/segments.h"

struct copies;

struct copies_handlers {
    void *arg; /* passed to all of these */
    /*
     * Puts a value for other nodes. `get` asks for a value of another node; copies_take() then receives it.
     */
    void (*put)(void *arg, const char *key, const void *value, size_t size_bytes);
    void (*want)(void *arg, const char *key);
    /*
     * Called once, perhaps from within copies_begin(): the segments now hold what the workers will resume
     * from.
     */
    void (*ready)(void *arg);
    /* A line for people. */
    void (*line)(void *arg, const char *words);
};

/* This node in its generation. */
struct copies_seat {
    int node_rank, n_nodes;
    const char *address; /* at which other nodes reach this one; borrowed for the call */
    /* the node from which this one fetches the step that it lacks; -1: it lacks nothing */
    int fetch_from;
    struct copies_begin begin;
};

/** The node that holds the copies of `node_rank`, among n_nodes of at least 2. */
int copies_holder(int node_rank, int n_nodes);

/**
 * Begin. `own` are the segments of this node's workers. `held` has as many segments, for copies of another
 * node's workers.
 *   FSDP_ERR_IO, FSDP_ERR_NOMEM  *out is NULL, and `ready` was not called
 */
enum fsdp_status copies_begin(struct copies **out, uv_loop_t *loop, const struct copies_seat *seat,
                              const struct segments *own, const struct segments *held,
                              const struct copies_handlers *handlers, struct fsdp_err *err);

/**
 * Takes a value that another node has put. Returns false if its key has nothing to do with copies. `copies`
 * NULL: the value is dropped.
 */
bool copies_take(struct copies *copies, const char *key, const void *value, size_t size_bytes);

/** Kill the process, and free everything in a close callback of the loop. NULL is a no-op. */
void copies_stop(struct copies *copies);

#endif
