/*
 * Complete entries (agent/snapshot/entries.h) on their way to a disk, which all nodes share or not:
 * --snapshot-persist DIR. One entry after another, on a thread of libuv's.
 *
 *   1. The entry is linked under a name that the program does not know, so that it may be removed.
 *   2. Each node copies its files to DIR/.fsdprun-part-TOKEN-NAME, and syncs them. Several nodes may have the
 *      same file. It must then be the same to the byte.
 *   3. Each node leaves a mark there. The node that finds the marks of all nodes removes them, and renames
 *      the directory to DIR/NAME. If that exists, it must be the same, too.
 *
 * What a killed run left unfinished is removed by the next one.
 */
#ifndef AGENT_PERSIST_H
#define AGENT_PERSIST_H

#include <stdbool.h>
#include <uv.h>

#include <fsdp/status.h>

struct persist;

struct persist_handlers {
    void *arg;
    /* The node's part of the entry is on the disk. */
    void (*synced)(void *arg, const char *name);
    void (*line)(void *arg, const char *name, const char *words); /* for people */
};

/* The node's place in the generation that saves. */
struct persist_seat {
    unsigned char token[8]; /* of the generation */
    int node_rank, n_nodes;
    bool is_first; /* this is the run's first generation here, so nothing unfinished in DIR is its own */
};

/**
 * Entries of `folder_fd`, which stays the caller's, are written to the directory `to`. NULL: out of memory.
 */
struct persist *persist_create(uv_loop_t *loop, int folder_fd, const char *to,
                               const struct persist_handlers *handlers);

/** A generation begins. */
void persist_begin(struct persist *persist, const struct persist_seat *seat);

/** Have an entry written. A failure is said by `line`; then `synced` is not called for it. */
void persist_add(struct persist *persist, const char *name);

/** Call no handler any more, and free it as soon as everything is written. NULL is a no-op. */
void persist_close(struct persist *persist);

/** Is this one of the names under which persist_add() links an entry? */
bool persist_is_link(const char *name);

#endif
