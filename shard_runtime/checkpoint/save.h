/*
 * Save a sharded state: every rank writes the rows it owns into one file, the coordinator makes a checkpoint
 * of the files (shardfile/commit.h). Collective over the world: every rank calls with the same state and the
 * same tensors in the same order; only `rows` differ.
 *
 * Nothing is copied but through one buffer of 4 MiB. Tensors may change again as soon as the call returns.
 */
#ifndef CHECKPOINT_SAVE_H
#define CHECKPOINT_SAVE_H

#include <stdint.h>

#include <fsdp/status.h>

#include "shard_runtime/checkpoint/tensors.h"
#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/io.h"

struct directory_lock;
struct link;

/** What goes into the manifest: everything that must survive beside the tensors. */
struct checkpoint_state {
    int64_t step;            /* optimizer updates done */
    uint64_t optimizer_step; /* updates the optimizer counts */
    uint64_t cursor;         /* samples consumed so far */
    uint64_t seed;           /* random numbers are counters under it: there is no other state of theirs */
    const char *numerics;    /* JSON object: what the bits depend on; NULL: left out */
    const char *job;         /* JSON object: the resolved job; NULL: left out */
    const char *extra;       /* JSON object: the caller's own; NULL: left out */
};

struct checkpoint_save_options {
    struct fsdp_io *io;           /* NULL: io_posix */
    struct link *link;            /* tells rank, world and generation; the agent behind it publishes */
    const char *directory;        /* with an agent absolute; NULL: "checkpoints" in the link's run directory */
    uint32_t keep;                /* complete checkpoints to keep, 0 for all */
    int64_t loaded_step;          /* of `directory`: never deleted; -1 for none */
    const struct verify_log *log; /* alone: what was cleaned and deleted; NULL drops it */
    /* Alone: where the lock of `directory` goes, which the caller then owns; NULL: it is held for this save only. */
    struct directory_lock **locks;
};

struct checkpoint_saved {
    uint64_t size_bytes; /* of this rank's file; 0 when it owns no rows */
    double seconds;      /* from the call to the verdict */
};

/**
 * Save and wait until the checkpoint is durable under its final name, or is known not to be.
 *   FSDP_OK        it is, on every rank
 *   FSDP_ERR_PEER  a rank or the agent is gone: the world is broken
 *   FSDP_ERR_BUSY  another process saves to the directory; nothing was published
 *   any other      this save failed, on every rank, with the first rank's words: its parts are removed, older
 *                  checkpoints stand, training may go on and the next save may work. If the words say that the
 *                  step is complete and in place, only the sync of its name failed: it stays (commit_publish())
 * `tensors` NULL: this rank had no memory to list them; the save fails everywhere, as the others wait for its
 * word. Thread: the one that owns the link.
 */
enum fsdp_status checkpoint_save(const struct checkpoint_save_options *options,
                                 const struct checkpoint_state *state,
                                 const struct checkpoint_tensor *tensors, size_t n_tensors,
                                 struct checkpoint_saved *saved, struct fsdp_err *err);

/* --- its two halves, for a publisher other than the link's --- */

struct checkpoint_part {
    char file[MANIFEST_SHARD_NAME_BYTES];
    uint64_t size_bytes; /* 0: this rank owns no rows and wrote nothing */
    uint64_t checksum[2];
};

/** Write and sync rank's file in directory/temporary, which is created. On failure the file is not there. */
enum fsdp_status checkpoint_write_part(struct fsdp_io *io, const char *directory, const char *temporary,
                                       const struct checkpoint_state *state, uint32_t generation, int W,
                                       int rank, const struct checkpoint_tensor *tensors, size_t n_tensors,
                                       struct checkpoint_part *part, struct fsdp_err *err);

/** The manifest's head, to be freed. */
enum fsdp_status checkpoint_head(const struct checkpoint_state *state, uint32_t generation, int W,
                                 const struct checkpoint_tensor *tensors, size_t n_tensors, char **text,
                                 size_t *length, struct fsdp_err *err);

#endif
