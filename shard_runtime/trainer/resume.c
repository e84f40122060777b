#include "shard_runtime/trainer/trainer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/json.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/context.h"
#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/verify.h"
#include "shard_runtime/state/saver.h"
#include "shard_runtime/trainer/models.h"

static const char *checkpoint_directory(const struct trainer *trainer, char out[TRAINER_PATH_BYTES + 16])
{
    const char *by_agent = link_hello(context_link(trainer->context))->checkpoint_dir;
    const char *by_job = trainer->job->checkpoint.dir;

    if (by_agent[0] != '\0')
        snprintf(out, TRAINER_PATH_BYTES + 16, "%s", by_agent);
    else if (by_job != NULL && by_job[0] != '\0')
        snprintf(out, TRAINER_PATH_BYTES + 16, "%s", by_job);
    else
        snprintf(out, TRAINER_PATH_BYTES + 16, "%s/checkpoints", trainer->run_dir);
    return out;
}

bool trainer_goes_on(const struct trainer *trainer)
{
    char directory[TRAINER_PATH_BYTES + 16];
    struct fsdp_err ignored = { 0 };
    int64_t *steps = NULL;
    size_t n_steps = 0;
    bool any;

    if (!fsdp_context_alone(trainer->context))
        return fsdp_context_resume_step(trainer->context) >= 0 ||
               fsdp_context_generation(trainer->context) > 0;
    any = verify_list_steps(trainer->io, checkpoint_directory(trainer, directory), &steps, &n_steps,
                            &ignored) == FSDP_OK &&
          n_steps > 0;
    free(steps);
    return any;
}

/*
 * Rank 0 reports that training resumes, on stdout and in the run's events. The event includes the times that
 * rank 0 needed so far, so that the events show the cost of a restart.
 */
static enum fsdp_status tell(const struct trainer *trainer, const char *source, const char *directory,
                             double load_s, struct fsdp_err *err)
{
    const struct fsdp_opening opening = fsdp_context_opening(trainer->context);
    char words[256];
    struct json_text event = json_text_fixed(words, sizeof words);

    if (trainer->rank != 0)
        return FSDP_OK;
    printf("resuming after step %" PRIu64 " from %s\n", trainer->step, directory);
    (void)fflush(stdout);
    json_open(&event, NULL, '{');
    json_field_string(&event, "event", "resume");
    json_field(&event, "step", "%" PRIu64, trainer->step);
    json_field_string(&event, "source", source);
    json_field(&event, "context_ms", "%.3f", opening.device_s * 1e3);
    json_field(&event, "collectives_ms", "%.3f", opening.collectives_s * 1e3);
    json_field(&event, "load_ms", "%.3f", load_s * 1e3);
    json_close(&event, '}');
    return fsdp_context_event(trainer->context, words, err);
}

/*
 * Loads the initial weights that the job names. Rank 0 prints each parameter that did not match by name.
 * Otherwise a model could start half random without anyone noticing.
 */
static enum fsdp_status take_weights(const struct trainer *trainer, struct fsdp_err *err)
{
    const struct job *job = trainer->job;
    struct fsdp_load_report report;
    enum fsdp_status status =
        fsdp_model_load_weights_named(trainer->model, job->model.weights, job->model.weights_strict,
                                      models_weight_names(job), &report, err);

    if (trainer->rank == 0 && report.lines != NULL && report.lines[0] != '\0')
        printf("model.weights: of %zu parameters in %s these differ:\n%s", report.n_loaded,
               job->model.weights, report.lines);
    else if (trainer->rank == 0 && status == FSDP_OK)
        printf("initial weights from %s\n", job->model.weights);
    (void)fflush(stdout);
    fsdp_load_report_fini(&report);
    return status;
}

/* Rank 0 checks the checkpoint on behalf of all ranks. */
static enum fsdp_status check_saved(struct trainer *trainer, const char *directory,
                                    const struct fsdp_checkpoint_state *state, struct fsdp_err *err)
{
    char step_directory[IO_PATH_BYTES];
    enum fsdp_status status = FSDP_OK;

    if (trainer->rank == 0)
        status = commit_step_path(directory, (int64_t)state->step, step_directory, err);
    if (status == FSDP_OK && trainer->rank == 0)
        status = trainer_check_saved(trainer, step_directory, state, err);
    return trainer_agree(trainer, status, err);
}

/* Starts without a checkpoint: with the weights that the job names, or with initial weights. */
static enum fsdp_status begin(const struct trainer *trainer, struct fsdp_err *err)
{
    return trainer->job->model.weights == NULL || trainer->job->model.weights[0] == '\0'
               ? FSDP_OK
               : take_weights(trainer, err);
}

/* Goes on after the step that was loaded from `source`. */
static enum fsdp_status go_on(struct trainer *trainer, const struct fsdp_checkpoint_state *state,
                              const char *source, const char *place, double began_s, struct fsdp_err *err)
{
    trainer->resumed = true;
    trainer->step = state->step;
    trainer->cursor = state->cursor;
    fsdp_context_beat(trainer->context,
                      &(struct fsdp_beat){ .step = trainer->step, .total_steps = trainer->job->train.steps });
    return tell(trainer, source, place, clock_now_s() - began_s, err);
}

/*
 * Resumes from the snapshots in memory, if the agent names a step. They are of this run: of the same job and
 * data. FSDP_ERR_NOT_FOUND: the disk is next.
 */
static enum fsdp_status resume_from_memory(struct trainer *trainer, struct fsdp_err *err)
{
    const struct fsdp_link_hello *hello = link_hello(context_link(trainer->context));
    struct fsdp_checkpoint_state state = { 0 };
    const double began_s = clock_now_s();
    enum fsdp_status status;

    if (trainer->saver == NULL)
        return FSDP_ERR_NOT_FOUND;
    status = hello->memory_step >= 0 ? saver_load(trainer->saver, &state, err) : FSDP_ERR_NOT_FOUND;
    if (status == FSDP_ERR_NOT_FOUND)
        saver_forget(trainer->saver);
    if (status != FSDP_OK)
        return status;
    trainer->unsaved = (int64_t)state.step > hello->resume_step;
    OK_OR_RETURN(trainer_compare_machines(trainer, &state, err)); /* a spare's may be another */
    return go_on(trainer, &state, hello->memory_is_peer ? "peer" : "memory", "memory", began_s, err);
}

enum fsdp_status trainer_open_saver(struct trainer *trainer, struct fsdp_err *err)
{
    const struct job *job = trainer->job;
    uint64_t lacks = 0;

    if (!(job->checkpoint.async && job->checkpoint.every > 0) && job->checkpoint.snapshot_every == 0)
        return FSDP_OK;
    OK_OR_RETURN(
        saver_open(&trainer->saver, trainer->model, trainer->optimizer, trainer->job_json, &lacks, err));
    if (lacks > 0 && trainer->rank == 0)
        fprintf(
            stderr,
            "fsdp-train: a node lacks %.1f MiB of memory for snapshots: training waits for the disk when it "
            "saves (checkpoint.async)\n",
            (double)lacks / 1048576);
    return FSDP_OK;
}

enum fsdp_status trainer_resume(struct trainer *trainer, struct fsdp_err *err)
{
    const bool alone = fsdp_context_alone(trainer->context);
    struct fsdp_checkpoint_state state = { 0 };
    char directory[TRAINER_PATH_BYTES + 16];
    enum fsdp_status status;
    double began_s;

    OK_OR_RETURN(trainer_agree(trainer, trainer_open_saver(trainer, err), err));
    status = resume_from_memory(trainer, err);
    if (status != FSDP_ERR_NOT_FOUND)
        return status;
    fsdp_err_clear(err);
    if (!alone && fsdp_context_resume_step(trainer->context) < 0)
        return begin(trainer, err);
    fsdp_context_phase(trainer->context, FSDP_PHASE_LOAD);
    checkpoint_directory(trainer, directory);
    began_s = clock_now_s();
    status =
        fsdp_checkpoint_load(trainer->model, trainer->optimizer, alone ? directory : NULL, -1, &state, err);
    if (status == FSDP_ERR_NOT_FOUND && alone) {
        fsdp_err_clear(err);
        return begin(trainer, err);
    }
    if (status != FSDP_OK)
        return status;
    if (alone && trainer->job->checkpoint.resume == JOB_RESUME_NEVER)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%s has checkpoints, and checkpoint.resume is never",
                         directory);
    OK_OR_RETURN(check_saved(trainer, directory, &state, err));
    OK_OR_RETURN(trainer_compare_machines(trainer, &state, err));
    if (state.seed != trainer->job->run.seed)
        return fsdp_fail(err, FSDP_ERR_MISMATCH,
                         "checkpoint of step %" PRIu64 " was made with run.seed %" PRIu64
                         ", the job says %" PRIu64,
                         state.step, state.seed, trainer->job->run.seed);
    return go_on(trainer, &state, "disk", directory, began_s, err);
}

static struct fsdp_checkpoint_state state_of(const struct trainer *trainer)
{
    return (struct fsdp_checkpoint_state){
        .step = trainer->step,
        .cursor = trainer->cursor,
        .seed = trainer->job->run.seed,
    };
}

enum fsdp_status trainer_snapshot(struct trainer *trainer, bool to_disk, struct fsdp_err *err)
{
    const struct fsdp_checkpoint_state state = state_of(trainer);

    return saver_save(trainer->saver, &state, to_disk, (uint32_t)trainer->job->checkpoint.keep, err);
}

enum fsdp_status trainer_save(struct trainer *trainer, struct fsdp_err *err)
{
    const struct fsdp_checkpoint_state state = state_of(trainer);
    char directory[TRAINER_PATH_BYTES + 16];

    fsdp_context_phase(trainer->context, FSDP_PHASE_SAVE);
    checkpoint_directory(trainer, directory);
    return fsdp_checkpoint_save(trainer->model, trainer->optimizer,
                                fsdp_context_alone(trainer->context) ? directory : NULL, &state,
                                (uint32_t)trainer->job->checkpoint.keep, trainer->job_json, err);
}
