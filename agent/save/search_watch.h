/*
 * A search for a checkpoint may be slow, or its disk may not answer: this module tells which. The search runs
 * on another thread, which cannot be stopped while it waits for a disk. So the search counts its file
 * operations, and a timer of the loop looks at the count.
 */
#ifndef AGENT_SEARCH_WATCH_H
#define AGENT_SEARCH_WATCH_H

#include <stdatomic.h>
#include <stdint.h>
#include <uv.h>

#include "shard_runtime/shardfile/io.h"

/**
 * File operations that pass each call on to another table, and count each open, read and removal when it has
 * ended.
 */
struct counting_io {
    struct fsdp_io base;   /* first: what the search uses */
    struct fsdp_io *files; /* borrowed */
    _Atomic uint64_t *n_done;
};

/** Count the operations of `files` in *n_done. Both are borrowed; several tables may share one count. */
void counting_io_init(struct counting_io *io, struct fsdp_io *files, _Atomic uint64_t *n_done);

struct search_watch;

/**
 * Begin to watch *n_done. If it has not changed for `limit_ms`, `silent` is called once, from the loop. Time
 * in which this process was stopped (Ctrl-Z) does not count.
 *   n_done  must stay valid until search_watch_stop()
 * Returns NULL if there is no memory; then nothing is watched.
 */
struct search_watch *search_watch_start(uv_loop_t *loop, const _Atomic uint64_t *n_done, int64_t limit_ms,
                                        void (*silent)(void *arg), void *arg);

/** Stop watching: `silent` is not called any more. A close callback frees the memory. NULL is a no-op. */
void search_watch_stop(struct search_watch *watch);

#endif
