/*
 * Saves a sharded state. Every rank writes the rows that it owns into one file. Then the coordinator
 * publishes the files as a checkpoint (shardfile/commit.h). The call is collective over the world: every rank
 * passes the same state and the same tensors in the same order. Only the `rows` of the tensors differ.
 *
 * Data is copied only through the buffers of shardfile/piece_writer.h. The caller may change the tensors as
 * soon as the call returns.
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

/** The contents of the manifest: everything that must be saved in addition to the tensors. */
struct checkpoint_state {
    int64_t step;            /* number of optimizer updates done */
    uint64_t optimizer_step; /* number of updates that the optimizer counts */
    uint64_t cursor;         /* samples consumed so far */
    /* All random numbers follow from the seed and from counters: there is no other random state. */
    uint64_t seed;
    const char *numerics; /* JSON object: what bitwise results depend on; NULL: left out */
    const char *job;      /* JSON object: the resolved job; NULL: left out */
    const char *extra;    /* JSON object of the caller's own; NULL: left out */
};

/* "Alone" means: the process runs without an agent (link_alone()). */
struct checkpoint_save_options {
    struct fsdp_io *io; /* NULL: io_anywhere */
    /*
     * the link that gives rank, world and generation. With an agent at its other end, that agent's
     * coordinator publishes the checkpoint.
     */
    struct link *link;
    /*
     * Must be absolute if there is an agent. NULL: the checkpoint directory of the run, which the link names.
     */
    const char *directory;
    uint32_t keep;       /* complete checkpoints to keep, 0 for all */
    int64_t loaded_step; /* step in `directory` that is never deleted; -1 for none */
    /* if alone: receives what was cleaned and deleted; NULL: that is not recorded */
    const struct verify_log *log;
    /*
     * If alone: receives the lock of `directory`, which the caller then owns. NULL: the lock lasts for this
     * save only.
     */
    struct directory_lock **locks;
};

struct checkpoint_saved {
    uint64_t size_bytes; /* size of this rank's file; 0 if it owns no rows */
    double seconds;      /* from the call to the coordinator's answer */
};

/**
 * Saves. Returns when the checkpoint is durable under its final name, or is known not to be.
 *
 *   tensors  (n_tensors); NULL: this rank had no memory to list them. The save then fails on every rank,
 *            because the other ranks wait for this rank's report
 *   saved    NULL, or receives what was saved, after FSDP_OK
 *
 *   FSDP_OK        the checkpoint is durable; every rank gets this status
 *   FSDP_ERR_PEER  a rank or the agent has ended, or another rank's GPU failed: the world cannot continue
 *   FSDP_ERR_BUSY  another process saves to the directory, or still cleans it after a long wait; nothing was
 *                  published
 *   any other      this save failed on every rank, with the message of the first rank that failed. Its files
 *                  are removed and older checkpoints stay. Training may continue, and the next save may
 *                  succeed. Exception: the message says that the step is complete and in place. Then only the
 *                  sync of its name failed, and the step stays (commit_publish())
 *
 * Only the thread that owns the link may call it.
 */
enum fsdp_status checkpoint_save(const struct checkpoint_save_options *options,
                                 const struct checkpoint_state *state,
                                 const struct checkpoint_tensor *tensors, size_t n_tensors,
                                 struct checkpoint_saved *saved, struct fsdp_err *err);

/* The two halves of a save, for code that publishes without the link. The first half: what one rank wrote. */
struct checkpoint_part {
    char file[MANIFEST_SHARD_NAME_BYTES];
    uint64_t size_bytes; /* 0: this rank owns no rows and wrote nothing */
    uint64_t checksum[2];
};

/**
 * Writes and syncs the file of `rank` in directory/temporary, which it creates if needed. *part receives what
 * was written. After an error the file does not exist.
 */
enum fsdp_status checkpoint_write_part(struct fsdp_io *io, const char *directory, const char *temporary,
                                       const struct checkpoint_state *state, uint32_t generation, int W,
                                       int rank, const struct checkpoint_tensor *tensors, size_t n_tensors,
                                       struct checkpoint_part *part, struct fsdp_err *err);

/**
 * Makes the manifest's head. *text receives *length bytes, which the caller frees. After an error *text is
 * NULL.
 */
enum fsdp_status checkpoint_head(const struct checkpoint_state *state, uint32_t generation, int W,
                                 const struct checkpoint_tensor *tensors, size_t n_tensors, char **text,
                                 size_t *length, struct fsdp_err *err);

#endif
