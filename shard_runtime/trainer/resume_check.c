/* Compares a checkpoint with the job that resumes from it. Differences are reported or refused. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/engine/context.h"
#include "shard_runtime/shardfile/io.h"
#include "shard_runtime/shardfile/job_changes.h"
#include "shard_runtime/trainer/trainer.h"

/*
 * Sequences per step of the run that saved the checkpoint; 0: the manifest does not have the job's numbers.
 */
static uint64_t saved_sequences(const struct manifest *manifest)
{
    const uint64_t global_batch = job_changes_count(manifest, "train", "global_batch");
    const uint64_t tensor = job_changes_count(manifest, "parallel", "tensor");

    if (global_batch != 0)
        return global_batch;
    return manifest->world_size / (tensor == 0 ? 1 : tensor) * job_changes_count(manifest, "train", "batch") *
           job_changes_count(manifest, "train", "grad_accumulation");
}

/*
 * Reports that another number of ranks goes on, so results may differ from those of the run that saved. Equal
 * bits are promised only for the same world, and on each rank for the same threads, CPU and libraries.
 */
static void say_other_bits(const struct trainer *trainer, const struct fsdp_checkpoint_state *state,
                           const struct manifest *manifest)
{
    const uint64_t was = saved_sequences(manifest),
                   is = (uint64_t)trainer->data_ranks * trainer->batch * trainer->n_micro;

    if (state->world_size != trainer->W && was != 0 && was != is)
        printf("saved by %d ranks, going on with %d: the sequences of a step went from %" PRIu64
               " to %" PRIu64 "%s\n",
               state->world_size, trainer->W, was, is,
               trainer->job->train.global_batch == 0
                   ? ", because train.batch is a number for each rank; train.global_batch keeps them"
                   : "");
    else if (state->world_size != trainer->W)
        printf("saved by %d ranks, going on with %d: equal to rounding, not to the bit\n", state->world_size,
               trainer->W);
}

enum fsdp_status trainer_compare_machines(const struct trainer *trainer,
                                          const struct fsdp_checkpoint_state *state, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;
    struct fsdp_err words = { 0 };
    char now[FSDP_MADE_WITH_BYTES];

    (void)fsdp_context_describe(trainer->context, now, sizeof now);
    /* a checkpoint that was imported from other programs names no machine */
    if (state->world_size == trainer->W && state->made_with[0] != '\0' && strcmp(state->made_with, now) != 0)
        status =
            fsdp_fail(&words, FSDP_ERR_MISMATCH, "saved with %s, going on with %s", state->made_with, now);
    status = context_agree(trainer->context, status, &words);
    if (status != FSDP_OK && status != FSDP_ERR_MISMATCH)
        return fsdp_fail(err, status, "%s", words.message);
    if (status != FSDP_OK && trainer->rank == 0)
        printf("%s: equal to rounding, not to the bit\n", words.message);
    (void)fflush(stdout);
    return FSDP_OK;
}

static enum fsdp_status check_data(const struct trainer *trainer, const struct manifest *manifest,
                                   struct fsdp_err *err)
{
    const struct job *job = trainer->job;
    struct data_record saved;
    enum fsdp_status status;
    char words[128];
    bool found;

    status = data_record_read(manifest, &saved, &found, err);
    if (status != FSDP_OK || !found || !data_record_differs(&saved, &trainer->data, words, sizeof words))
        return status;
    if (job->checkpoint.data == JOB_DATA_CHECK)
        return fsdp_fail(err, FSDP_ERR_MISMATCH,
                         "step %" PRIu64
                         " was trained on other data: %.200s: %s; with checkpoint.data: ignore "
                         "training goes on all the same",
                         manifest->step, job->data.path, words);
    printf("step %" PRIu64 " was trained on other data: %.200s: %s; training goes on, as checkpoint.data is "
           "ignore\n",
           manifest->step, job->data.path, words);
    return FSDP_OK;
}

/*
 * Compares the job with the job that made the checkpoint. `defaults` has the default values of all keys or,
 * if training is `complete`, of the keys that affect the result.
 */
static enum fsdp_status compare_job(const struct trainer *trainer, const struct manifest *manifest,
                                    bool complete, const char *defaults, struct fsdp_err *err)
{
    const bool check = trainer->job->checkpoint.data == JOB_DATA_CHECK;
    struct job_changes changes;
    enum fsdp_status status;

    if (complete) {
        status = job_changes_refuse(manifest, trainer->job_json, defaults, check, &trainer->data.bytes, err);
        if (status == FSDP_ERR_CONFIG)
            fsdp_wrap(err, "%s is complete, and was trained by another job", trainer->run_dir);
        return status;
    }
    status = job_changes_find(&changes, manifest, trainer->job_json, defaults, NULL, err);
    if (status == FSDP_OK && changes.n > 0)
        printf("the job has changed since step %" PRIu64 ": %s\n", manifest->step, changes.words);
    return status;
}

enum fsdp_status trainer_check_saved(const struct trainer *trainer, const char *step_directory,
                                     const struct fsdp_checkpoint_state *state, struct fsdp_err *err)
{
    const bool complete = state->step >= trainer->job->train.steps;
    struct manifest manifest = { 0 };
    char *defaults = NULL;
    enum fsdp_status status;

    status = manifest_read(context_files(trainer->context), step_directory, &manifest, err);
    if (status == FSDP_OK && !complete)
        status = check_data(trainer, &manifest, err);
    if (status == FSDP_OK)
        status = job_defaults_json(complete, &defaults, err);
    if (status == FSDP_OK) {
        say_other_bits(trainer, state, &manifest);
        status = compare_job(trainer, &manifest, complete, defaults, err);
    }
    (void)fflush(stdout);
    free(defaults);
    manifest_free(&manifest);
    return status;
}
