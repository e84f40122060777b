/*
 * The coordinator's part of a checkpoint: it collects what every rank says it has written, publishes the whole,
 * deletes what retention lets go, and before a generation finds the step to resume from. The slow work is done on
 * libuv's threads, one piece at a time; everything else on the loop's.
 *
 * A program may save to a directory of its own choice, which the reports name. It is published as in the run's own, and
 * what a generation left in it unfinished is removed before the next one. Steps to resume from are the run's own alone.
 *
 * Fencing: a report counts only for the generation that runs. When the generation is over, what was collected
 * is forgotten; a publication that is under way is finished first, and save_prepare() waits for it.
 */
#ifndef AGENT_SAVE_H
#define AGENT_SAVE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include <fsdp/link.h>
#include <fsdp/status.h>

#include "shard_runtime/shardfile/io.h"

struct save;

struct save_handlers {
    void *arg;
    /* The verdict on a step, for every rank. `directory` is the program's own, or "" for the run's. On success the sizes
     * and the time since the first rank began. */
    void (*published)(void *arg, const struct fsdp_link_published *published, const char *directory,
                      uint64_t size_bytes, double seconds);
    void (*line)(void *arg,
                 const char *words); /* for a person: a checkpoint passed over, a leftover removed */
    /* Called on another thread with the step that prepare found in `directory`; a failure refuses that step. What it reads
     * through `io` are signs of life. NULL: no step is refused. */
    enum fsdp_status (*weigh)(void *arg, struct fsdp_io *io, const char *directory, int64_t step,
                              struct fsdp_err *err);
    int64_t patience_ms; /* prepare fails when its disk has not answered for so long; 0: never */
};

/** `run_dir` NULL: the run has no directory, every save that names none is refused, every prepare finds nothing. */
enum fsdp_status save_create(struct save **out, uv_loop_t *loop, struct fsdp_io *io, const char *run_dir,
                             const struct save_handlers *handlers, struct fsdp_err *err);
/** Nothing may be under way (save_idle()). NULL is a no-op. */
void save_destroy(struct save *save);

/** A generation of `world_size` ranks begins, resumed from `loaded_step` (-1: none). */
void save_begin(struct save *save, uint32_t generation, int world_size, int64_t loaded_step);
/** It is over: forget what was collected. */
void save_abandon(struct save *save);

/** A rank's report; `manifest_fd` becomes the callee's. */
void save_take(struct save *save, uint32_t generation, int rank, const struct fsdp_link_saved *saved,
               int manifest_fd);

/**
 * Clean up, and find the newest checkpoint that verifies with every checksum; then call `done` from the loop with
 * its step (-1: there is none) or why not (status, words). One at a time. Where there is nothing to look at `done` is
 * called before this returns. If no open, read or removal comes to its end for patience_ms, `done` gets FSDP_ERR_IO; then
 * the thread is still under way, perhaps for ever.
 */
typedef void save_prepared(void *arg, int64_t step, const struct fsdp_err *err);
void save_prepare(struct save *save, save_prepared *done, void *arg);

/** Is nothing under way on another thread? */
bool save_idle(const struct save *save);
/** `idle` is called once, from the loop, when what is under way has ended; it may destroy. Not where nothing is. */
void save_when_idle(struct save *save, void (*idle)(void *arg), void *arg);

#endif
