/*
 * The coordinator's part of a checkpoint. It collects what each rank reports to have written, publishes the
 * whole, and deletes old checkpoints (retention). Before a generation begins, it finds the step to resume
 * from. The slow work runs on libuv's threads, one piece at a time. Everything else runs on the loop's
 * thread.
 *
 * A program may save to a directory of its own choice, which the reports name. Such a save is published like
 * one in the run's directory. The step to resume from is only ever found in the run's own directory.
 *
 * What a generation left unfinished is removed before the next one begins. A process that could not
 * be killed (UNKILLED) may still create files after that, so each later save and the end of the run look
 * again.
 *
 * Fencing: a report counts only for the generation that runs. When the generation ends, what was collected is
 * forgotten. A publication that is under way is finished first, and save_prepare() waits for it.
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
    void *arg; /* passed to all of these */
    /*
     * The verdict on a step, for every rank. `directory` is the program's own, or "" for the run's. After a
     * success `size_bytes` is the size of all files. `seconds` is the time from when rank 0 began to save
     * until the checkpoint had its final name. `blocked_s` is how much of that time rank 0 did not train; 0:
     * unknown. Older checkpoints are removed after the verdict: no rank waits for that.
     */
    void (*published)(void *arg, const struct fsdp_link_published *published, const char *directory,
                      uint64_t size_bytes, double seconds, double blocked_s);
    /* A line for people: a checkpoint was passed over, or something unfinished was removed. */
    void (*line)(void *arg, const char *words);
    /*
     * Called on another thread with the step that save_prepare() found in `directory`. If it fails,
     * save_prepare() fails with that error, and no older step is tried. Whatever it reads through `io` counts
     * as a sign of life of the disk. NULL: every step is accepted.
     */
    enum fsdp_status (*weigh)(void *arg, struct fsdp_io *io, const char *directory, int64_t step,
                              struct fsdp_err *err);
    /*
     * For steps from this one on, save_prepare() verifies checksums too. After such a step nothing is
     * trained, so perhaps no rank will load (and thereby verify) it.
     */
    int64_t last_step;
    uint64_t term;         /* the coordinator's term; 0: there is no arbiter */
    bool replaces;         /* the coordinator took over from another one, which may still hold the locks */
    const char *directory; /* absolute path of the run's checkpoints; NULL: RUN/checkpoints. Borrowed */
    /* save_prepare() fails if its disk has not answered for so long; 0: it waits without limit */
    int64_t patience_ms;
};

/**
 * Create in *out. `run_dir` is the run directory; its checkpoints are in RUN/checkpoints. NULL: the run has
 * none; then every save that names no directory is refused, and save_prepare() finds nothing.
 *   FSDP_ERR_NOMEM, FSDP_ERR_ARG (the path is too long)  *out is NULL
 */
enum fsdp_status save_create(struct save **out, uv_loop_t *loop, struct fsdp_io *io, const char *run_dir,
                             const struct save_handlers *handlers, struct fsdp_err *err);

/** Free it and its locks. Requires that save_idle() returns true. NULL is a no-op. */
void save_destroy(struct save *save);

/** A generation of `world_size` ranks begins. It resumed from `loaded_step` (-1: from none). */
void save_begin(struct save *save, uint32_t generation, int world_size, int64_t loaded_step);

/**
 * The generation is over and no rank writes any more: forget all reports. The files of a save that was
 * refused are removed on a thread, which may still run when this returns.
 */
void save_abandon(struct save *save);

/**
 * Takes a rank's report about its part of a save. `manifest_fd` (-1: none) is the head of the manifest, which
 * only rank 0 sends; this function closes it or keeps it. A save that can no longer succeed is refused at
 * once; its files are removed after the last rank has reported, or by save_abandon().
 */
void save_take(struct save *save, uint32_t generation, int rank, const struct fsdp_link_saved *saved,
               int manifest_fd);

/**
 * Receives the result of save_prepare(). `step` is -1 if there is no checkpoint, or if err->status says what
 * failed.
 */
typedef void save_prepared(void *arg, int64_t step, const struct fsdp_err *err);

/**
 * Remove what earlier saves left unfinished, and find the newest checkpoint whose manifest verifies and whose
 * files have the sizes that it lists. No other file is opened, except for last_step. Then call `done` from
 * the loop. Only one may be under way. If there is nothing to look at, `done` is called before this function
 * returns.
 *
 * If no open, read or removal ends for patience_ms, `done` gets FSDP_ERR_IO. The thread may then still be
 * under way, perhaps for ever.
 */
void save_prepare(struct save *save, save_prepared *done, void *arg);

/**
 * Like save_prepare(), if the ranks have a newer step in memory. `done` gets the step of save_known_step(),
 * as soon as no publication is under way. No file is looked at. What was left unfinished is removed while the
 * next generation runs. Returns false, and does nothing, if directories of the program's own must be looked
 * at.
 */
bool save_settle(struct save *save, save_prepared *done, void *arg);

/**
 * The run is over, after save_abandon(): no rank will save any more. What is still unfinished is removed on a
 * thread, which may still run when this returns.
 */
void save_end(struct save *save);

/** Returns the newest checkpoint in the run's directory that was found or published; -1: none was. */
int64_t save_known_step(const struct save *save);

/** Returns whether no work is under way on another thread. */
bool save_idle(const struct save *save);

/**
 * Call `idle` once, from the loop, when the work under way has ended. It may destroy `save`. Requires such
 * work.
 */
void save_when_idle(struct save *save, void (*idle)(void *arg), void *arg);

#endif
