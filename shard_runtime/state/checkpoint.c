/*
 * Saves and loads a model with its optimizer. This file does what all ranks must agree on before and after,
 * and fills in the manifest's state. checkpoint/ reads and writes the files.
 */
#include <fsdp/checkpoint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/checkpoint/load.h"
#include "shard_runtime/checkpoint/save.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/model.h"
#include "shard_runtime/engine/optimizer.h"
#include "shard_runtime/engine/unshard.h"
#include "shard_runtime/state/checkpoint_choose.h"
#include "shard_runtime/state/checkpoint_halves.h"
#include "shard_runtime/state/load_readers.h"
#include "shard_runtime/state/made_with.h"
#include "shard_runtime/state/save_files.h"
#include "shard_runtime/state/state_tensors.h"

/*
 * Checks that the model uses all ranks of the world. A checkpoint describes the whole world; it cannot hold
 * one of several models that groups of ranks train separately.
 */
static enum fsdp_status check_world(const struct fsdp_model *model, struct fsdp_err *err)
{
    return model->data_ranks * model->T == model->context->W
               ? FSDP_OK
               : fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                           "checkpoints of a model on %d of the world's %d ranks are not supported",
                           model->data_ranks * model->T, model->context->W);
}

static enum fsdp_status check_optimizer(const struct fsdp_model *model,
                                        const struct fsdp_optimizer *optimizer, struct fsdp_err *err)
{
    return optimizer == NULL || optimizer->model == model
               ? FSDP_OK
               : fsdp_fail(err, FSDP_ERR_ARG, "a checkpoint of a model and the optimizer of another one");
}

/* Checks that all ranks save the same step. Otherwise ranks would wait for answers about different steps. */
static enum fsdp_status compare_steps(const struct fsdp_context *context, int64_t step, struct fsdp_err *err)
{
    int64_t most[2] = { step, -step }; /* newest step, negated oldest step */
    enum fsdp_status status = FSDP_OK;

    if (context->W > 1)
        status =
            fsdp_all_reduce(context->comm, most, 2, FSDP_I64, FSDP_MAX, context->streams[PLAN_COMPUTE], err);
    if (status != FSDP_OK || most[0] == -most[1])
        return status;
    return fsdp_fail(err, FSDP_ERR_MISMATCH,
                     "ranks were told to save different steps, from step %lld to step %lld",
                     (long long)-most[1], (long long)most[0]);
}

/*
 * Checks on this rank that the model can be saved. If only this rank finds a fault, the caller tells the
 * other ranks.
 */
static enum fsdp_status check_save(const struct fsdp_model *model, const struct fsdp_optimizer *optimizer,
                                   struct fsdp_err *err)
{
    OK_OR_RETURN(check_world(model, err));
    OK_OR_RETURN(check_optimizer(model, optimizer, err));
    return model_check_not_torn(model, err);
}

enum fsdp_status checkpoint_gather(struct fsdp_model *model, struct fsdp_optimizer *optimizer,
                                   const struct fsdp_checkpoint_state *state, enum fsdp_status own,
                                   struct state_tensors *tensors, struct fsdp_err *err)
{
    struct fsdp_context *context = model->context;
    enum fsdp_status status = own;

    /* Wait until gathers that fsdp_module_unshard() began have ended. Their failures do not matter here. */
    unshard_settle_all(context);
    if (status == FSDP_OK)
        status = check_save(model, optimizer, err);
    if (status == FSDP_OK)
        status = model_draw(model, err);
    if (status == FSDP_OK)
        status = state_tensors_make(tensors, model, optimizer, err);
    /*
     * from here on, the coordinator reports a rank's failure to all ranks, so no further agreement is needed
     */
    status = model_agree(model, NULL, 0, status, err);
    return status == FSDP_OK ? compare_steps(context, (int64_t)state->step, err) : status;
}

struct checkpoint_state checkpoint_state_of(struct fsdp_model *model, struct fsdp_optimizer *optimizer,
                                            const struct fsdp_checkpoint_state *state, const char *numerics,
                                            const char *job_json)
{
    return (struct checkpoint_state){
        .step = (int64_t)state->step,
        .cursor = state->cursor,
        .seed = state->seed,
        .optimizer_step = optimizer != NULL ? fsdp_optimizer_step_count(optimizer) : 0,
        .numerics = numerics,
        .extra = model->context->checkpoint_extra,
        .job = job_json != NULL ? job_json : fsdp_context_job(model->context, NULL),
    };
}

enum fsdp_status fsdp_checkpoint_save(struct fsdp_model *model, struct fsdp_optimizer *optimizer,
                                      const char *directory, const struct fsdp_checkpoint_state *state,
                                      uint32_t keep, const char *job_json, struct fsdp_err *err)
{
    REQUIRE(model, err);

    struct fsdp_context *context = model->context;
    struct save_files files = { .root = NULL };
    const struct checkpoint_save_options options = {
        .link = context->link,
        .directory = directory != NULL ? files.directory : NULL,
        .keep = keep,
        .loaded_step = model->loaded_step,
        .io = context_files(context),
        .locks = &context->saves_to,
    };
    struct checkpoint_state saved = { 0 };
    char *numerics = NULL;
    struct state_tensors tensors = { 0 };
    enum fsdp_status status;
    struct checkpoint_saved done;

    fsdp_context_phase(context, FSDP_PHASE_SAVE);
    status = GIVEN(state, err);
    if (status == FSDP_OK)
        status = check_save(model, optimizer, err); /* a save that is refused touches no file */
    if (status == FSDP_OK)
        status = save_files_open(&files, context, directory, err);
    status = checkpoint_gather(model, optimizer, state, status, &tensors, err);
    if (status == FSDP_OK)
        status = made_with_gather(context, &numerics, err);
    if (status != FSDP_OK)
        goto done;
    saved = checkpoint_state_of(model, optimizer, state, numerics, job_json);
    context->resume_is_stale = true;
    status = checkpoint_save(&options, &saved, tensors.list, tensors.n, &done, err);
done:
    save_files_close(&files, context);
    state_tensors_free(&tensors);
    free(numerics);
    return status;
}

static enum fsdp_status load_step(struct fsdp_context *context, const char *directory, int64_t step,
                                  const struct state_tensors *tensors, unsigned flags,
                                  struct manifest *manifest, struct fsdp_err *err)
{
    const struct checkpoint_readers readers = load_readers(context);
    char step_directory[IO_PATH_BYTES];

    OK_OR_RETURN(commit_step_path(directory, step, step_directory, err));
    OK_OR_RETURN(checkpoint_load(context_files(context), step_directory, context->W, context->rank,
                                 tensors->list, tensors->n, flags, &readers, manifest, NULL, err));
    if (manifest->step == (uint64_t)step) /* every rank has read the same manifest */
        return FSDP_OK;
    fsdp_fail(err, FSDP_ERR_FORMAT, "%s holds step %llu", step_directory, (unsigned long long)manifest->step);
    manifest_free(manifest);
    return FSDP_ERR_FORMAT;
}

/* Loads the chosen step. If it is damaged, loads the next older one that can be loaded. */
static enum fsdp_status load_chosen(struct fsdp_context *context, struct checkpoint_choice *choice,
                                    const struct state_tensors *tensors, unsigned flags,
                                    struct manifest *manifest, struct fsdp_err *err)
{
    for (;;) {
        struct fsdp_err reason = { 0 };
        enum fsdp_status status;
        int64_t step = -1;

        OK_OR_RETURN(checkpoint_choice_next(choice, &step, err));
        status = load_step(context, choice->directory, step, tensors, flags, manifest, &reason);
        if (status == FSDP_OK || !checkpoint_choice_pass(choice, status, reason.message, err))
            return status;
    }
}

static enum fsdp_status load_here(struct fsdp_model *model, struct fsdp_optimizer *optimizer,
                                  const char *directory, int64_t step, struct manifest *manifest,
                                  struct fsdp_err *err)
{
    struct fsdp_context *context = model->context;
    const unsigned flags = optimizer == NULL ? CHECKPOINT_SUBSET : 0u;
    /*
     * If the run's own newest checkpoint is wanted, the agent has found its step before this generation
     * began.
     */
    const bool resumes = directory == NULL && step < 0 && !context->resume_is_stale;
    const bool falls_back = step < 0;
    enum fsdp_status status = check_world(model, err);
    struct state_tensors tensors = { 0 };
    struct checkpoint_choice choice;

    if (status == FSDP_OK)
        status = check_optimizer(model, optimizer, err);
    if (status == FSDP_OK && directory == NULL) {
        directory = link_hello(context->link)->checkpoint_dir;
        if (directory[0] == '\0')
            status = fsdp_fail(err, FSDP_ERR_NOT_FOUND, "there is no run directory to load from");
    }
    if (status == FSDP_OK)
        status = state_tensors_make(&tensors, model, optimizer, err);
    status = model_agree(model, NULL, 0, status, err); /* the next calls are collective */
    if (status == FSDP_OK && resumes) {
        step = fsdp_context_resume_step(context);
        if (step < 0)
            status = fsdp_fail(err, FSDP_ERR_NOT_FOUND, "there is no checkpoint in %s", directory);
    }
    checkpoint_choice_init(&choice, context, directory, step, falls_back);
    if (status == FSDP_OK)
        status = load_chosen(context, &choice, &tensors, flags, manifest, err);
    checkpoint_choice_free(&choice);
    state_tensors_free(&tensors);
    return status;
}

enum fsdp_status fsdp_checkpoint_load(struct fsdp_model *model, struct fsdp_optimizer *optimizer,
                                      const char *directory, int64_t step,
                                      struct fsdp_checkpoint_state *state, struct fsdp_err *err)
{
    REQUIRE(model, err);
    REQUIRE(state, err);

    struct manifest manifest = { 0 };
    enum fsdp_status status;

    unshard_drop_all(model);
    fsdp_context_phase(model->context, FSDP_PHASE_LOAD);
    status = load_here(model, optimizer, directory, step, &manifest, err);
    model->context->resume_is_stale = true;
    status = checkpoint_adopt(model, optimizer, &manifest, status, state, err);
    if (status == FSDP_OK)
        model->loaded_step = (int64_t)state->step;
    manifest_free(&manifest);
    return status;
}

enum fsdp_status checkpoint_adopt(struct fsdp_model *model, struct fsdp_optimizer *optimizer,
                                  const struct manifest *manifest, enum fsdp_status own,
                                  struct fsdp_checkpoint_state *state, struct fsdp_err *err)
{
    struct made_with made_with;
    enum fsdp_status status = own;

    if (status == FSDP_OK)
        status = made_with_read(manifest, model->context->rank, &made_with, err);
    status = model_agree(model, NULL, 0, status, err);
    if (status == FSDP_OK) {
        *state = (struct fsdp_checkpoint_state){ .step = manifest->step,
                                                 .cursor = manifest->cursor,
                                                 .seed = manifest->seed,
                                                 .optimizer_step = manifest->optimizer_step,
                                                 .world_size = (int)manifest->world_size };
        memcpy(state->made_with, made_with.words, sizeof made_with.words);
        model->draws.step = manifest->optimizer_step;
        if (optimizer != NULL)
            fsdp_optimizer_set_step_count(optimizer, manifest->optimizer_step);
    }
    for (int i = 0; i < model->layout.n_params && status == FSDP_OK; i++)
        model_is_filled(model, i);
    if (status == FSDP_OK)
        model->torn = model->has_gradients = false;
    return status;
}
