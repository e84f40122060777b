/*
 * Chooses the checkpoint that the ranks load. The ranks choose together, so all of them load the same step.
 * That a checkpoint is damaged shows only while it is loaded. Then the ranks pass it over and choose the one
 * before it.
 */
#ifndef STATE_CHECKPOINT_CHOOSE_H
#define STATE_CHECKPOINT_CHOOSE_H

#include "shard_runtime/engine/context.h"

struct checkpoint_choice {
    struct fsdp_context *context;
    const char *directory;
    int64_t named;   /* the step to try first; -1: the newest one that all ranks see */
    bool falls_back; /* if a step is damaged, older ones may be loaded in its place */

    int64_t tried; /* the step that was chosen last; INT64_MAX: none yet */
    int64_t *steps;
    size_t n_steps; /* steps that this rank sees, newest first; listed when they are needed */
    bool listed;
    size_t n_passed;
    char newest[FSDP_ERR_MESSAGE_BYTES]; /* why the first step that was tried could not be loaded */
};

/** `directory` is borrowed. checkpoint_choice_free() releases the choice. */
void checkpoint_choice_init(struct checkpoint_choice *choice, struct fsdp_context *context,
                            const char *directory, int64_t named, bool falls_back);
void checkpoint_choice_free(struct checkpoint_choice *choice);

/**
 * Chooses the step to load next. Collective over the world: every rank gets the same step and status.
 *   FSDP_ERR_NOT_FOUND  there is none
 *   FSDP_ERR_FORMAT     every one was passed over; the message has the reason of the newest
 *   FSDP_ERR_MISMATCH   the ranks see different checkpoints
 */
enum fsdp_status checkpoint_choice_next(struct checkpoint_choice *choice, int64_t *step,
                                        struct fsdp_err *err);

/**
 * Call it if the chosen step could not be loaded: every rank got `status`, with the message `words`. Returns
 * true if the ranks may choose an older step; rank 0 then records an event that this one was passed over.
 * Returns false, with status and message in `err`, if they may not.
 */
bool checkpoint_choice_pass(struct checkpoint_choice *choice, enum fsdp_status status, const char *words,
                            struct fsdp_err *err);

#endif
