/*
 * How a checkpoint appears, and how it goes. The ranks write into a directory whose name no reader takes
 * (".step-00000050.g2.1a2b3c4d"); one process, the publisher, checks that all parts are there, writes the
 * manifest, syncs, and renames it to "step-00000050". Only that rename makes a checkpoint; before it the
 * older ones are untouched, after it and the sync of the parent the new one is durable.
 *
 * Fencing: step and generation are part of the temporary name and of the manifest's head, and both are
 * checked against what the publisher says is current, so that a writer from before a restart cannot publish.
 *
 * `directory` is RUN/checkpoints, or another that a program chose. One publisher at a time: the holder of the
 * directory's lock (directory_lock.h).
 * Calls block on the disk; any thread, one call at a time for a directory.
 */
#ifndef SHARDFILE_COMMIT_H
#define SHARDFILE_COMMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "shard_runtime/shardfile/io.h"
#include "shard_runtime/shardfile/manifest.h"
#include "shard_runtime/shardfile/verify.h"

enum { COMMIT_NAME_BYTES = 64 };

/** "step-00000050" */
void commit_step_name(int64_t step, char out[COMMIT_NAME_BYTES]);
/** The step of such a name, or -1 for any other name. */
int64_t commit_parse_step(const char *name);

/**
 * The temporary name of a save: the same on every rank that gives the same step, generation and `secret`
 * (the hello's token: only a hash of it is seen), and on no other save.
 */
void commit_temporary_name(int64_t step, uint32_t generation, const void *secret, size_t secret_bytes,
                           char out[COMMIT_NAME_BYTES]);
/** True, with what it says, for a temporary name. */
bool commit_parse_temporary(const char *name, int64_t *step, uint32_t *generation);

/** Create directory/temporary (and `directory`); every rank may do so, one that exists is fine. */
enum fsdp_status commit_begin(struct fsdp_io *io, const char *directory, const char *temporary,
                              struct fsdp_err *err);

struct commit_fence {
    int64_t step;
    uint32_t generation;
    uint32_t world_size;
};

/**
 * Make directory/temporary the checkpoint of fence->step. `files` are the parts that were reported, in rising
 * order of rank, `head` rank 0's head. An older checkpoint of that very step is replaced at once, without a
 * moment in which neither is there (where the file system cannot swap names: with one, and only when the
 * older one does not verify; else FSDP_ERR_BUSY).
 *   FSDP_ERR_MISMATCH   head or temporary name belong to another step, generation or world; nothing was
 *                       published
 *   FSDP_ERR_FORMAT     a part is missing, of another size, or does not hold what the head says
 *   FSDP_ERR_IO         the system refused; what was published before stands
 * A failure before the step has its name removes directory/temporary. If only the sync of `directory` failed after that,
 * the new step stays under its name, what it replaced stays under `temporary`, and the message says so. The caller
 * removes nothing in either case: commit_abort() is for a save that never came to this call.
 */
enum fsdp_status commit_publish(struct fsdp_io *io, const char *directory, const char *temporary,
                                const struct commit_fence *fence, const char *head, size_t head_length,
                                const struct manifest_file *files, size_t n_files, struct fsdp_err *err);

/** Remove directory/temporary with what is in it; one that is not there is fine. */
enum fsdp_status commit_abort(struct fsdp_io *io, const char *directory, const char *temporary,
                              struct fsdp_err *err);

/**
 * Remove what earlier saves and deletions left behind: temporary and trash names. What a process still holds
 * (temporary_lock.h), or what could not be removed, is logged and left. A missing `directory` is fine.
 * The caller holds the directory's lock or shares it (directory_lock.h). Only for the agent in its run's directory, between
 * generations, a file system without locks makes no difference.
 */
enum fsdp_status commit_clean(struct fsdp_io *io, const char *directory, const struct verify_log *log,
                              struct fsdp_err *err);

/**
 * Keep the `keep` newest checkpoints whose structure verifies (0: all) and delete the valid and broken ones
 * that are older than all of those. `published_step` is the newest that counts: what is newer did not verify
 * when this run began, or is of another run, and must not push out what was just saved. Never deleted:
 * `loaded_step` (-1: none), what the run started from. Broken ones that are newer than the oldest kept one,
 * and all that are newer than published_step, are left for a person to look at. Deleting is a rename to a
 * trash name, a sync of the parent, then the unlinks, so that a half-deleted one is never taken for a
 * checkpoint.
 */
enum fsdp_status commit_retain(struct fsdp_io *io, const char *directory, uint32_t keep,
                               int64_t published_step, int64_t loaded_step, const struct verify_log *log,
                               struct fsdp_err *err);

#endif
