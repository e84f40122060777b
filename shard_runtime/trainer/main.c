/*
 * fsdp-train: the worker that trains a job, writes text with what it trained, and says what a job will need.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/fsdp.h>

#include "shard_runtime/core/exit_status.h"
#include "shard_runtime/core/version.h"
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
    if (err->message[0] != '\0') /* empty: another rank has said it */
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

/* The job's text: the agent's, or that of the file that was named, in the form of job_to_json(). *owned is to be freed. */
static enum fsdp_status read_job(struct fsdp_context *context, const struct options *options, struct job *job,
                                 const char **json, char **owned, struct fsdp_err *err)
{
    enum fsdp_status status;
    size_t length;

    *json = fsdp_context_job(context, &length);
    if (*json != NULL && options->job_path != NULL)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "the agent gave a job: no job file beside it");
    if (*json == NULL) {
        if (options->job_path == NULL)
            return fsdp_fail(err, FSDP_ERR_CONFIG, "no job: start it by fsdprun, or name a job.json");
        status = io_read_named(&io_posix, options->job_path, JOB_FILE_MAX_BYTES, owned, &length, err);
        if (status != FSDP_OK)
            return status;
        *json = *owned;
    }
    status = parse_job(job, *json, length, options->job_path, err);
    if (status != FSDP_OK || *owned == NULL)
        return status;
    /* Jobs are compared as text (shardfile/job_changes.h): a file by hand may write a value in another way. */
    free(*owned);
    status = job_to_json(job, owned, err);
    *json = *owned;
    return status;
}

/* What of a job must be known before its process has a place to compute. A job that cannot be read is refused later. */
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
    (void)fflush(stdout);
    return FSDP_OK;
}

/* Said by rank 0 alone; returns the process's exit status. */
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
        /* All ranks came to it at once. The one that speaks is the one that is blamed. */
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

/* The job's text of a file, or of standard input for "-". To be freed. */
static enum fsdp_status read_file(const char *path, char **text, size_t *length, struct fsdp_err *err)
{
    size_t room = 0;
    ssize_t n;

    if (strcmp(path, "-") != 0)
        return io_read_named(&io_posix, path, JOB_FILE_MAX_BYTES, text, length, err);
    n = getdelim(text, &room, '\0', stdin);
    if (n < 0)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "there is no job on standard input");
    *length = (size_t)n;
    return FSDP_OK;
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
    struct forecast forecast;
    enum fsdp_status status = forecast_job(&forecast, job, options->evaluation, err);

    if (status == FSDP_OK && options->memory > 0 && forecast.total > options->memory) {
        status = advice_find(&advice, json, &forecast, options->memory, options->node_ranks, err);
        needed = &advice;
    }
    if (status == FSDP_OK && options->json)
        plan_report_json(stdout, &forecast, options->memory, needed);
    else if (status == FSDP_OK)
        plan_report_text(stdout, job, &forecast, options->memory, needed);
    return status;
}

/* What the job needs, from its file alone. */
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
    (void)signal(SIGPIPE, SIG_IGN); /* whoever reads our lines may leave; training goes on */
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
