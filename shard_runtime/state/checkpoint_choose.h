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
    int64_t named;   /* the step to begin with; -1: the newest that the ranks see */
    bool falls_back; /* older ones may be loaded in its place */

    int64_t tried; /* the step that was chosen last; INT64_MAX: none yet */
    int64_t *steps;
    size_t n_steps; /* steps that this rank sees, newest first; listed when they are needed */
    bool listed;
    size_t n_passed;
    char newest[FSDP_ERR_MESSAGE_BYTES]; /* why the first one could not be loaded */
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
 * The chosen step could not be loaded: every rank got `status`, and `words` for it. Returns whether the ranks
 * may choose again. Then the run's events say which step was passed over. Otherwise `err` receives both.
 */
bool checkpoint_choice_pass(struct checkpoint_choice *choice, enum fsdp_status status, const char *words,
                            struct fsdp_err *err);

#endif
