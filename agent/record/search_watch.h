/*
 * Does a search for a checkpoint go on, or does its disk not answer? The search runs on another thread, which cannot be
 * stopped while it waits for a disk; so it counts what it has done, and a timer of the loop looks at the count.
 */
#ifndef AGENT_SEARCH_WATCH_H
#define AGENT_SEARCH_WATCH_H

#include <stdatomic.h>
#include <stdint.h>
#include <uv.h>

#include "shard_runtime/shardfile/io.h"

/* Files as those of another table have them. Every open, read and removal that has come to its end is counted. */
struct counting_io {
    struct fsdp_io base;   /* first: what the search is given */
    struct fsdp_io *files; /* borrowed */
    _Atomic uint64_t *n_done;
};

/** `n_done` is borrowed; several tables may count into it. */
void counting_io_init(struct counting_io *io, struct fsdp_io *files, _Atomic uint64_t *n_done);

struct search_watch;

/**
 * Call `silent` once, from the loop, when *n_done has not changed for limit_ms. A time in which this process was stopped does
 * not count. `n_done` must stay until search_watch_stop(). NULL: no memory, and nothing is watched.
 */
struct search_watch *search_watch_start(uv_loop_t *loop, const _Atomic uint64_t *n_done, int64_t limit_ms,
                                        void (*silent)(void *arg), void *arg);
/** End it; `silent` is not called any more. NULL is a no-op. */
void search_watch_stop(struct search_watch *watch);

#endif
