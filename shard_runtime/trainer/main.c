/*
 * fsdp-train: the worker. It trains a job, writes text with a trained model, or forecasts what a job will
 * need.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fsdp/fsdp.h>

#include "shard_runtime/comm/link_gate.h"
#include "shard_runtime/core/exit_status.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/core/version.h"
#include "shard_runtime/engine/model.h"
#include "shard_runtime/engine/rehearse.h"
#include "shard_runtime/job/job.h"
#include "shard_runtime/shardfile/io.h"
#include "shard_runtime/trainer/export.h"
#include "shard_runtime/trainer/generate.h"
#include "shard_runtime/trainer/options.h"
#include "shard_runtime/trainer/plan_report.h"
#include "shard_runtime/trainer/trainer.h"

enum { JOB_FILE_MAX_BYTES = 1 << 20 };

static int fail(enum fsdp_status status, const struct fsdp_err *err)
{
    if (err->message[0] != '\0') /* an empty message means that another rank prints it */
        fprintf(stderr, "fsdp-train: %s\n", err->message);
    return exit_status_of(status);
}

static void print_version(void)
{
    printf("fsdp-train %s (commit %s, %s)\n", version_number(), version_commit(), version_compiler());
}

static enum fsdp_status parse_job(struct job *job, const char *json, size_t length, const char *path,
                                  struct fsdp_err *err)
{
    enum fsdp_status status = job_from_json(job, json, length, err);

    if (status != FSDP_OK && path != NULL)
        fsdp_wrap(err, "%s", path);
    return status == FSDP_ERR_FORMAT ? FSDP_ERR_CONFIG : status;
}

/*
 * Reads the job's text from the agent, or from the file that the command line names. Text from a file is
 * rewritten by job_to_json(). The caller frees *owned.
 */
static enum fsdp_status read_job(struct fsdp_context *context, const struct options *options, struct job *job,
                                 const char **json, char **owned, struct fsdp_err *err)
{
    enum fsdp_status status;
    size_t length;

    *json = fsdp_context_job(context, &length);
    if (*json != NULL && options->job_path != NULL)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "the agent gave a job: give no job file");
    if (*json == NULL) {
        if (options->job_path == NULL)
            return fsdp_fail(err, FSDP_ERR_CONFIG, "no job: start it by fsdprun, or name a job.json");
        OK_OR_RETURN(io_read_named(&io_posix, options->job_path, JOB_FILE_MAX_BYTES, owned, &length, err));
        *json = *owned;
    }
    status = parse_job(job, *json, length, options->job_path, err);
    if (status != FSDP_OK || *owned == NULL)
        return status;
    /*
     * Jobs are compared as text (shardfile/job_changes.h), and a person may have written a value in the file
     * in another form.
     */
    free(*owned);
    status = job_to_json(job, owned, err);
    *json = *owned;
    return status;
}

/*
 * The settings of a job that must be known before a device is opened. A job that cannot be read is ignored
 * here and refused later.
 */
struct settings {
    const struct options *options;
    struct job job;
};

static void configure(struct fsdp_context_options *chosen, const char *json, size_t length, void *user)
{
    struct settings *settings = user;
    const char *path = settings->options->job_path;
    struct fsdp_err ignored = { 0 };
    char *owned = NULL;

    if (json == NULL && path != NULL &&
        io_read_named(&io_posix, path, JOB_FILE_MAX_BYTES, &owned, &length, &ignored) == FSDP_OK)
        json = owned;
    if (json != NULL && job_from_json(&settings->job, json, length, &ignored) == FSDP_OK) {
        chosen->device = settings->job.run.device;
        chosen->collectives = settings->job.run.collectives;
        chosen->matmul_precision = trainer_matmul_precision(&settings->job);
    }
    free(owned);
}

static enum fsdp_status announce(const struct trainer *trainer)
{
    char words[256];

    if (trainer->rank != 0)
        return FSDP_OK;
    if (fsdp_context_device_refusal(trainer->context)[0] != '\0')
        fprintf(stderr, "fsdp-train: %s\n", fsdp_context_device_refusal(trainer->context));
    printf("%zu parameters, %d ranks, %" PRIu64 " sequences of %" PRIu64 " a step, %s\n",
           fsdp_module_n_elems(trainer->tree), trainer->W,
           (uint64_t)trainer->data_ranks * trainer->batch * trainer->n_micro, trainer->job->model.seq,
           fsdp_context_describe(trainer->context, words, sizeof words));
    if (trainer->model->machines_differ[0] != '\0')
        printf("%s: what is not split is copied in every step\n", trainer->model->machines_differ);
    (void)fflush(stdout);
    return FSDP_OK;
}

/* Prints how training ended, on rank 0 or on the rank that diverged. Returns the process's exit status. */
static int say_end(const struct trainer *trainer, enum trainer_end end, bool was_complete,
                   const struct fsdp_err *err)
{
    if (end != TRAINER_DIVERGED)
        fsdp_context_phase(trainer->context, FSDP_PHASE_DONE);
    switch (end) {
    case TRAINER_COMPLETE:
        if (trainer->rank == 0)
            printf("%s: %" PRIu64 " of %" PRIu64 " steps are done\n",
                   was_complete ? "already complete" : "complete", trainer->step, trainer->job->train.steps);
        return 0;
    case TRAINER_STOPPED:
        if (trainer->rank == 0)
            printf("stopped on notice after step %" PRIu64 ", which is saved: run again to go on\n",
                   trainer->step);
        return FSDP_EXIT_NOTICE;
    case TRAINER_DIVERGED:
        /*
         * All ranks found at the same time that training diverged. Only trainer->speaker exits as the cause;
         * the others exit with FSDP_EXIT_PEER.
         */
        if (trainer->rank != trainer->speaker)
            return FSDP_EXIT_PEER;
        fprintf(stderr, "fsdp-train: %s; what was saved stands; try a lower optimizer.lr\n", err->message);
        return FSDP_EXIT_DIVERGED;
    }
    return FSDP_EXIT_BUG;
}

static int train(struct fsdp_context *context, const struct options *options, struct fsdp_err *err)
{
    struct trainer trainer = { .lock_fd = -1 };
    struct job job = { 0 };
    enum trainer_end end = TRAINER_COMPLETE;
    enum fsdp_status status;
    const char *json = NULL;
    char *owned = NULL;
    bool was_complete;
    int code;

    status = read_job(context, options, &job, &json, &owned, err);
    if (status == FSDP_OK)
        status = trainer_open(&trainer, context, &job, json, err);
    if (status == FSDP_OK)
        status = announce(&trainer);
    if (status == FSDP_OK)
        status = trainer_resume(&trainer, err);
    was_complete = trainer.resumed && trainer.step >= job.train.steps;
    if (status == FSDP_OK)
        status = trainer_run(&trainer, &end, err);
    if (status == FSDP_OK && end == TRAINER_COMPLETE && job.checkpoint.exports == JOB_EXPORT_HUGGINGFACE)
        status = export_write(&trainer, err);
    code = status == FSDP_OK ? say_end(&trainer, end, was_complete, err) : fail(status, err);
    trainer_close(&trainer);
    job_free(&job);
    free(owned);
    return code;
}

/* Reads the job's text from a file, or from standard input if `path` is "-". The caller frees it. */
static enum fsdp_status read_file(const char *path, char **text, size_t *length, struct fsdp_err *err)
{
    enum fsdp_status status;

    if (strcmp(path, "-") != 0)
        return io_read_named(&io_posix, path, JOB_FILE_MAX_BYTES, text, length, err);
    status = file_read(STDIN_FILENO, JOB_FILE_MAX_BYTES, text, length);
    if (status == FSDP_OK && *length > 0)
        return FSDP_OK;
    return fsdp_fail(err, status == FSDP_OK ? FSDP_ERR_FORMAT : status, "there is no job on standard input");
}

static enum fsdp_status print_schedule(const struct job *job, struct fsdp_err *err)
{
    char *text;
    const enum fsdp_status status = forecast_schedule(job, &text, err);

    if (status == FSDP_OK)
        fputs(text, stdout);
    free(text);
    return status;
}

static enum fsdp_status print_forecast(const struct job *job, const char *json, const struct options *options,
                                       struct fsdp_err *err)
{
    struct advice_list advice, *needed = NULL;
    struct json_text text = { 0 };
    struct forecast forecast;
    enum fsdp_status status = forecast_job(&forecast, job, options->evaluation, err);

    if (status == FSDP_OK && options->memory > 0 && forecast.total > options->memory) {
        status = advice_find(&advice, json, &forecast, options->memory, options->node_ranks, err);
        needed = &advice;
    }
    if (status == FSDP_OK && options->json) {
        plan_report_json(&text, &forecast, options->memory, needed);
        if (text.failed)
            status = fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the plan as JSON");
        else
            puts(text.bytes);
        json_text_free(&text);
    } else if (status == FSDP_OK)
        plan_report_text(stdout, job, &forecast, options->memory, needed);
    return status;
}

/* Prints what the job needs, from its file alone. */
static int plan(const struct options *options, struct fsdp_err *err)
{
    struct job job = { 0 };
    enum fsdp_status status;
    char *json = NULL;
    size_t length;

    status = read_file(options->job_path, &json, &length, err);
    if (status == FSDP_OK)
        status = parse_job(&job, json, length, options->job_path, err);
    if (status == FSDP_OK)
        status = options->schedule ? print_schedule(&job, err) : print_forecast(&job, json, options, err);
    if (status == FSDP_OK && (fflush(stdout) != 0 || ferror(stdout) != 0))
        status = fsdp_fail(err, FSDP_ERR_IO, "writing the plan: %s", strerror(errno));
    job_free(&job);
    free(json);
    return status == FSDP_OK ? 0 : fail(status, err);
}

int main(int argc, char **argv)
{
    struct fsdp_context *context = NULL;
    struct fsdp_err err = { 0 };
    struct options options;
    struct settings settings = { .options = &options };
    enum fsdp_status status;
    int code;

    if (options_parse(&options, argc, argv, &err) != FSDP_OK) {
        fprintf(stderr, "fsdp-train: %s (--help lists the options)\n", err.message);
        return FSDP_EXIT_USAGE;
    }
    if (options.help || options.version) {
        if (options.help)
            options_help(stdout);
        else
            print_version();
        return 0;
    }
    if (options.gate) {
        bool opened;

        engine_rehearse();
        status = link_gate_wait(&opened, &err);
        if (status != FSDP_OK || !opened)
            return status == FSDP_OK ? 0 : fail(status, &err);
    }
    (void)signal(SIGPIPE, SIG_IGN); /* the reader of our output may exit; training goes on */
    if (options.plan)
        return plan(&options, &err);
    status = fsdp_context_create(
        &context, &(struct fsdp_context_options){ .configure = configure, .configure_user = &settings },
        &err);
    job_free(&settings.job);
    if (status != FSDP_OK)
        return fail(status, &err);
    if (options.sample != NULL) {
        status = generate(context, &options, stdout, &err);
        code = status == FSDP_OK ? 0 : fail(status, &err);
    } else {
        code = train(context, &options, &err);
    }
    fsdp_context_destroy(context);
    return code;
}
