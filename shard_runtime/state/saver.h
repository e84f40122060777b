/*
 * Saves a model with its optimizer without waiting for a disk. A save copies this rank's shards into its
 * snapshot segment (checkpoint/snapshot.h), and the agent writes them to the disk while training goes on. At
 * most one save is on its way to the disk. A snapshot that goes to no disk is one to resume from after a
 * rank's death.
 *
 * Every call is collective over the world, unless it says otherwise.
 */
#ifndef STATE_SAVER_H
#define STATE_SAVER_H

#include <fsdp/checkpoint.h>

struct saver;

/**
 * Prepares saving through memory. *out is NULL if that is not possible: there is no agent that keeps
 * segments, or the memory of a node does not suffice. Then *lacks is the number of bytes that are missing on
 * some node; 0 if it is not for memory. Every rank gets the same answer.
 *
 *   job_json  as in fsdp_checkpoint_save(); borrowed until saver_close()
 */
enum fsdp_status saver_open(struct saver **out, struct fsdp_model *model, struct fsdp_optimizer *optimizer,
                            const char *job_json, uint64_t *lacks, struct fsdp_err *err);
void saver_close(struct saver *saver); /* not collective; NULL is a no-op */

/**
 * Loads the step that the agent says every rank has in memory. Afterwards no other snapshot counts.
 *   FSDP_ERR_NOT_FOUND  the agent names none, or a rank does not have it; nothing was changed
 *   FSDP_ERR_FORMAT     it is damaged. The rows of model and optimizer are undefined
 */
enum fsdp_status saver_load(struct saver *saver, struct fsdp_checkpoint_state *state, struct fsdp_err *err);

/** The ranks went on from elsewhere: no snapshot counts any more. Not collective. */
void saver_forget(struct saver *saver);

/**
 * Are snapshots copied to another node, and is one not there yet? The next one must wait for that, as
 * saver_save() does. First waits until the copy that saver_save() began has ended. Not collective: ranks
 * learn it at different moments, and agree on it.
 */
bool saver_is_copying(struct saver *saver);

/**
 * Begins to copy the state into memory, on a thread of its own: the next forward and backward run meanwhile.
 * Before the optimizer changes a shard, it waits for the copy. So does every other call here. Rows in a store
 * (a device's, or a file's) are copied before the call returns. `to_disk`: the agent then writes it, keeps
 * `keep` checkpoints (0: all), and the call requires that no save is on its way.
 *   FSDP_ERR_PEER  a rank or the agent is gone
 *   any other      of the copy, or of one before it that saver_copied() has not returned yet; a save to the
 *                  disk then fails on every rank, as saver_wait() says
 */
enum fsdp_status saver_save(struct saver *saver, const struct fsdp_checkpoint_state *state, bool to_disk,
                            uint32_t keep, struct fsdp_err *err);

/** Waits until the copy that saver_save() began is whole, or has failed. Not collective. */
void saver_end_copy(struct saver *saver);

/**
 * Returns what failed in a copy that has ended, once; FSDP_OK if there is nothing, or while it is being made.
 * Does not wait, and is not collective. Errors are those of saver_save().
 */
enum fsdp_status saver_copied(struct saver *saver, struct fsdp_err *err);

/**
 * Is a save on its way to the disk, of which this rank does not know yet how it ended? Not collective: ranks
 * learn it at different moments. They agree on it, and tell saver_agreed().
 */
bool saver_is_busy(struct saver *saver);
/** Some rank is busy (or none is): its slot is not overwritten (or is free). */
void saver_agreed(struct saver *saver, bool busy);

/**
 * Returns how the last save to the disk ended, once. Waits until it has. FSDP_OK if there is none.
 *   FSDP_ERR_PEER  a rank or the agent is gone
 *   any other      as checkpoint_save()
 */
enum fsdp_status saver_wait(struct saver *saver, struct fsdp_err *err);

#endif
