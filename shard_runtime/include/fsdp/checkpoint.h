/*
 * Save a model with its optimizer, and resume from it at any world size.
 *
 * Each rank writes its own rows into one safetensors file. When every file is on disk, one rename gives the
 * directory its final name, step-<8 digits>. PyTorch's HuggingFaceStorageReader reads it.
 * docs/checkpoint-format.md describes the contents.
 *
 * Of the optimizer, a checkpoint holds the state tensors and the count of updates. The program gives learning
 * rates, schedules and all other options again: fsdp_optimizer_create(), fsdp_optimizer_set_lr(),
 * fsdp_optimizer_set_lr_lambda().
 *
 * Thread: both calls are made by the thread that created the context, on every rank of the model.
 */
#ifndef FSDP_CHECKPOINT_H
#define FSDP_CHECKPOINT_H

#include <stdint.h>

#include <fsdp/model.h>
#include <fsdp/optimizer.h>

FSDP_BEGIN_DECLS

enum { FSDP_MADE_WITH_BYTES = 256 };

/** The state of a training run in addition to its tensors. */
struct fsdp_checkpoint_state {
    uint64_t step;           /* steps done: the checkpoint's number */
    uint64_t cursor;         /* samples consumed so far */
    uint64_t seed;           /* of the job */
    uint64_t optimizer_step; /* updates done; save and load fill it in from the optimizer */

    /*
     * What the bits of a continuation depend on; load fills it in, on each rank for itself. If both are the
     * same now on every rank, the continuation is bit-identical.
     */
    int world_size; /* ranks that saved */
    /*
     * fsdp_context_describe() of this rank when the checkpoint was saved. If this rank did not save then,
     * that of rank 0. "": not known.
     */
    char made_with[FSDP_MADE_WITH_BYTES];
};

/**
 * Save step state->step. Collective: it returns on every rank when the checkpoint is durable, or has failed
 * on all. Under an agent, the agent publishes what the ranks wrote.
 *
 *   optimizer  NULL: weights only
 *   directory  where the step-... directories go, the same on all ranks and nodes; created if missing. A
 *              relative path starts at the working directory. NULL: "checkpoints" in the run directory
 *   keep       how many of the newest checkpoints to keep; 0: all
 *   job_json   the job, as a JSON object to keep in the manifest; NULL: what the context was given, if
 *              anything
 *
 *   FSDP_ERR_ARG       there is no run directory. Or some groups are updated and others are not: an optimizer
 *                      in backward is in a step that fsdp_optimizer_step() has not ended. Or its step failed
 *                      or was dropped (reset, or followed by another step), and no checkpoint was loaded
 *                      since
 *   FSDP_ERR_CONFIG    `directory` belongs to another user, and everyone may write to it
 *   FSDP_ERR_IO        a disk refused. Checkpoints published before remain valid. If only the sync of the new
 *                      name failed, the message says that the new step is complete and in place
 *   FSDP_ERR_FORMAT    what a rank has written is missing or damaged: a disk or a store lost it. Nothing was
 *                      published
 *   FSDP_ERR_BUSY      another process saves to `directory`; the message has its pid and host. The holder is
 *                      the agent until the run ends, or, without an agent, the process until its context ends
 *   FSDP_ERR_PEER      a rank or the agent is gone, or another rank's GPU failed
 *   FSDP_ERR_MISMATCH  the ranks were told different steps or directories; nothing was published
 *   any                another rank failed alone (<fsdp/fsdp.h>)
 */
FSDP_API enum fsdp_status fsdp_checkpoint_save(struct fsdp_model *model, struct fsdp_optimizer *optimizer,
                                               const char *directory,
                                               const struct fsdp_checkpoint_state *state, uint32_t keep,
                                               const char *job_json, struct fsdp_err *err);

/**
 * Load a checkpoint into the model and, unless it is NULL, the optimizer; collective.
 *
 *   directory  as for saving
 *   step       -1: the newest checkpoint that verifies, including those saved in this run. Damaged ones are
 *              skipped, and each is an event `checkpoint_skipped` of the run
 *   *state     filled in on success
 *
 * Every byte is verified while it is loaded. The ranks share that work, and none returns before all have done
 * theirs. The first load of NULL and -1 begins with the step that the agent found when it formed this
 * generation.
 *
 *   FSDP_ERR_NOT_FOUND  there is no such checkpoint, or no run directory
 *   FSDP_ERR_FORMAT     the checkpoint is damaged; on the rank that found it, the message names the file
 *   FSDP_ERR_MISMATCH   it belongs to another model: the message names the first tensor that differs; or the
 *                       ranks found different steps
 *   any                 another rank could not load it (<fsdp/fsdp.h>)
 * After an error, parameters and optimizer state are undefined on all ranks. *state and the optimizer's count
 * of steps are unchanged.
 */
FSDP_API enum fsdp_status fsdp_checkpoint_load(struct fsdp_model *model, struct fsdp_optimizer *optimizer,
                                               const char *directory, int64_t step,
                                               struct fsdp_checkpoint_state *state, struct fsdp_err *err);

FSDP_END_DECLS

#endif
