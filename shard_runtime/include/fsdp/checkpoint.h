/*
 * Save a model with its optimizer, and go on from it at any world size. Each rank writes its own rows into
 * one safetensors file; the directory gets its final name, step-<8 digits>, in one rename once every file is
 * on disk. PyTorch's HuggingFaceStorageReader reads it. docs/checkpoint-format.md says what is in it.
 *
 * Of the optimizer it holds the state tensors and the count of updates. Learning rates, schedules and all other options are the
 * program's: it gives them again (fsdp_optimizer_create(), fsdp_optimizer_set_lr(), fsdp_optimizer_set_lr_lambda()).
 */
#ifndef FSDP_CHECKPOINT_H
#define FSDP_CHECKPOINT_H

#include <stdint.h>

#include <fsdp/model.h>
#include <fsdp/optimizer.h>

FSDP_BEGIN_DECLS

enum { FSDP_MADE_WITH_BYTES = 256 };

/** What belongs to a training run beside its tensors. */
struct fsdp_checkpoint_state {
    uint64_t step;           /* steps done: the checkpoint's number */
    uint64_t cursor;         /* samples consumed so far */
    uint64_t seed;           /* of the job */
    uint64_t optimizer_step; /* updates done; filled in by save and load from the optimizer */

    /* Filled in by load: what the bits of a continuation depend on. Where both are as now, it is
     * bit-identical. */
    int world_size;                       /* ranks that saved */
    char made_with[FSDP_MADE_WITH_BYTES]; /* fsdp_context_describe() of then; "" when it is not known */
};

/**
 * Save step state->step; collective. Returns on every rank once the checkpoint is durable, or failed on all.
 *   directory      where the step-... directories go, the same on all ranks and nodes; made where it is not there. A
 *                  relative path is of the working directory. NULL: "checkpoints" in the run directory. Under an
 *                  agent it is the agent that publishes what the ranks wrote, in either
 *   optimizer      NULL: weights only
 *   keep           newest checkpoints to keep, 0: all
 *   job_json       the job, kept in the manifest; NULL: what the context was given, if anything
 *
 *   FSDP_ERR_ARG   there is no run directory. Also: an optimizer in backward has updated some groups in a step that
 *                  failed, or that was dropped (reset, or followed by another) before fsdp_optimizer_step() ended it,
 *                  and no checkpoint was loaded since; or in a step that fsdp_optimizer_step() did not end yet
 *   FSDP_ERR_CONFIG    `directory` belongs to another user, and everyone may write to it
 *   FSDP_ERR_IO    a disk refused; what was published before stands. The message says so if the new step is complete
 *                  and in place all the same: only the sync of its name failed
 *   FSDP_ERR_BUSY  another process saves to `directory`; the message has its pid and host. The agent, or alone this
 *                  process, holds the directory from the first save until the end of the run, or of the context
 *   FSDP_ERR_PEER  a rank or the agent is gone
 *   FSDP_ERR_MISMATCH  the ranks were told to save different steps, or to different directories; nothing was published
 *   any            another rank failed alone (<fsdp/fsdp.h>)
 */
FSDP_API enum fsdp_status fsdp_checkpoint_save(struct fsdp_model *model, struct fsdp_optimizer *optimizer,
                                               const char *directory,
                                               const struct fsdp_checkpoint_state *state, uint32_t keep,
                                               const char *job_json, struct fsdp_err *err);

/**
 * Load step `step` of `directory` into the model and, unless NULL, the optimizer; collective. `step` -1 is the newest
 * that verifies, those that this run has saved included; damaged ones are passed over. `directory` NULL is the run
 * directory's "checkpoints".
 *
 * Every byte of the checkpoint is verified before it is loaded: by the ranks, which share the work, or by the agent
 * when it formed this generation (what the first load of NULL and -1 finds).
 *
 *   FSDP_ERR_NOT_FOUND  there is none, or no run directory
 *   FSDP_ERR_FORMAT     damaged; the message names the file, on the rank that found it
 *   FSDP_ERR_MISMATCH   of another model: the first tensor that differs; or the ranks found different steps
 *   any                 another rank could not load it (<fsdp/fsdp.h>)
 * After a failure parameters and state are undefined, on all ranks; *state and the optimizer's step count are as before.
 */
FSDP_API enum fsdp_status fsdp_checkpoint_load(struct fsdp_model *model, struct fsdp_optimizer *optimizer,
                                               const char *directory, int64_t step,
                                               struct fsdp_checkpoint_state *state, struct fsdp_err *err);

FSDP_END_DECLS

#endif
