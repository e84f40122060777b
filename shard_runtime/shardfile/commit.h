/*
 * How a checkpoint is published and how it is removed:
 *   1. All ranks write into one temporary directory (".step-00000050.g2.1a2b3c4d"). Readers ignore such
 *      names.
 *   2. One process, the publisher, checks that all files are there, writes the manifest and syncs the
 *      directory.
 *   3. The publisher renames the directory to "step-00000050", then syncs the parent directory.
 *
 * Only the rename makes a checkpoint. Before it, older checkpoints are untouched. After the sync of the
 * parent, the new checkpoint survives a power failure.
 *
 * Fencing: the step and the generation are part of the temporary name and of the manifest's head. The
 * publisher compares both with the current step and generation. So a writer that started before a restart
 * cannot publish. If the publisher leads a run by an arbiter, its term is part of the name too
 * (".step-00000050.t3.g2.1a2b3c4d"). commit_take_over() takes away what leaders of earlier terms had.
 *
 * `directory` is RUN/checkpoints, or another directory that a program chose. The publisher holds the
 * directory's lock (directory_lock.h), so there is one publisher at a time. All calls block on the disk. Any
 * thread may call them, but one call at a time for each directory.
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

enum { COMMIT_NAME_BYTES = 80 };

/* The beginning of the name of a directory that is being deleted. */
#define COMMIT_TRASH_PREFIX ".trash-"

/** Writes the final name of a checkpoint, such as "step-00000050", into `out`. */
void commit_step_name(int64_t step, char out[COMMIT_NAME_BYTES]);
/** Writes "<directory>/step-00000050" to `out`. Returns FSDP_ERR_ARG if the path is too long. */
enum fsdp_status commit_step_path(const char *directory, int64_t step, char out[IO_PATH_BYTES],
                                  struct fsdp_err *err);
/** Returns the step of a final name, or -1 if `name` is not exactly such a name. */
int64_t commit_parse_step(const char *name);

/*
 * Which save it is. The publisher compares these values with those in a temporary name and in a manifest's
 * head, and refuses a save with other values.
 */
struct commit_fence {
    int64_t step;
    uint32_t generation;
    uint32_t world_size; /* not in the temporary name */
    uint64_t term;       /* term of the leader; 0: no arbiter decides who leads. Not in the manifest's head */
};

/**
 * Writes the temporary name of a save into `out`. Ranks that pass the same `save` and `secret` get the same
 * name. Any other save gets another name. `secret` is the token of the agent's hello message; only a 32-bit
 * hash of it becomes visible.
 */
void commit_temporary_name(const struct commit_fence *save, const void *secret, size_t secret_bytes,
                           char out[COMMIT_NAME_BYTES]);
/**
 * Returns true and fills in *save if `name` is a temporary name. Otherwise returns false and stores nothing.
 */
bool commit_parse_temporary(const char *name, struct commit_fence *save);

/**
 * Creates `directory` and directory/temporary, unless they exist. Every rank of a save may call this
 * function.
 */
enum fsdp_status commit_begin(struct fsdp_io *io, const char *directory, const char *temporary,
                              struct fsdp_err *err);

/**
 * Publishes directory/temporary as the checkpoint of fence->step.
 *
 * `files` are the files that the ranks reported, in ascending order of rank. `head` is the manifest's head,
 * which rank 0 wrote. If the step already has a checkpoint, the new one replaces it by an atomic swap of the
 * two names. Some file systems cannot swap names. Then the older one is replaced only if its checksums do not
 * verify, and for a moment neither is in place. An older one that verifies makes the call fail with
 * FSDP_ERR_BUSY.
 *   FSDP_ERR_MISMATCH   head or temporary name belong to another step, generation, world or term; nothing
 *                       was published
 *   FSDP_ERR_FORMAT     a file is missing, has another size, or its contents contradict the head
 *   FSDP_ERR_IO         the system refused an operation; earlier checkpoints are unchanged
 *   FSDP_ERR_BUSY       as above
 *
 * A failure before the rename removes directory/temporary. If only the sync of `directory` after the rename
 * failed, the new step keeps its final name. The checkpoint that it replaced stays under the name
 * `temporary`, and the message reports that. In both cases the caller must not remove anything.
 * commit_abort() is only for a save that never called commit_publish().
 */
enum fsdp_status commit_publish(struct fsdp_io *io, const char *directory, const char *temporary,
                                const struct commit_fence *fence, const char *head, size_t head_length,
                                const struct manifest_file *files, size_t n_files, struct fsdp_err *err);

/** Removes directory/temporary and the files in it. Succeeds if the directory does not exist. */
enum fsdp_status commit_abort(struct fsdp_io *io, const char *directory, const char *temporary,
                              struct fsdp_err *err);

/**
 * Renames each temporary directory of a term before `term` to a trash name, even if a process holds it. A
 * leader of such a term may be stopped, with its ranks: when they continue, they can write and publish
 * nothing there. Needs no lock. If `term` is 0, or `directory` does not exist, it does nothing. A directory
 * that cannot be renamed is logged and left: it must stop neither the run nor the save that is to be
 * published.
 */
enum fsdp_status commit_take_over(struct fsdp_io *io, const char *directory, uint64_t term,
                                  const struct verify_log *log, struct fsdp_err *err);

/**
 * Removes leftovers of earlier saves and deletions: directories with temporary or trash names. A directory
 * that a process still holds (temporary_lock.h), or that cannot be removed, is logged and kept. A missing
 * `directory` is no error. The caller holds the directory's lock exclusively or shares it (directory_lock.h).
 *
 * `term` is the term of the caller's leader; 0: no arbiter says who leads. A temporary directory of a later
 * term is logged and kept: the caller's leader was stopped, another one leads, and its ranks save there. On a
 * file system without locks nothing else would show that.
 *
 * On a file system without locks, a running save is not protected. Only the agent's call is safe there: it
 * cleans its run's directory between generations, when no rank saves.
 */
enum fsdp_status commit_clean(struct fsdp_io *io, const char *directory, uint64_t term,
                              const struct verify_log *log, struct fsdp_err *err);

/**
 * Removes leftovers as commit_clean() does, while a generation saves: temporary directories of `generation`
 * and later ones are kept. What a process still holds is kept without a line, because the next save asks
 * again. Only the leader of the run calls it, so no other process cleans the directory.
 */
enum fsdp_status commit_clean_before(struct fsdp_io *io, const char *directory, uint64_t term,
                                     uint32_t generation, const struct verify_log *log, struct fsdp_err *err);

/**
 * Deletes checkpoints that are too old to keep. `keep` is the number to keep; 0 keeps all of them. The
 * function keeps the `keep` newest checkpoints that still have their manifest and their files' sizes, and
 * deletes every older one, valid or broken. It opens no file but manifests: what has a final name was
 * verified when it was written. The newest checkpoint of all, published_step, was written just now, so it is
 * sound.
 *
 * `published_step` is the newest step that counts. A newer step did not verify when this run began, or
 * belongs to another run. It must not displace the checkpoint that was just saved. Three kinds are never
 * deleted:
 *   - `loaded_step`, from which the run started (-1: none)
 *   - broken checkpoints that are newer than the oldest kept one, so that a person can examine them
 *   - checkpoints newer than published_step, for the same reason
 *
 * Deleting takes three steps: a rename to a trash name, a sync of the parent, then the unlinks. So no reader
 * takes a half-deleted directory for a checkpoint.
 */
enum fsdp_status commit_retain(struct fsdp_io *io, const char *directory, uint32_t keep,
                               int64_t published_step, int64_t loaded_step, const struct verify_log *log,
                               struct fsdp_err *err);

#endif
