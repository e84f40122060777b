#include "launcher/cmd_run.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/daemon/lease.h"
#include "agent/run/agent.h"
#include "launcher/ending.h"
#include "launcher/gpu_lease.h"
#include "launcher/job_input.h"
#include "launcher/print_launch.h"
#include "launcher/requeue.h"
#include "launcher/say.h"
#include "launcher/summary.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/exit_status.h"
#include "shard_runtime/core/hide_memory.h"

enum { LONG_S = 600 };

static int complain(const struct options *options, int status, const struct fsdp_err *err)
{
    if (status != 0)
        say(stderr, "%s: %s", options->program, err->message);
    return status;
}

static void print_notes(const struct launch *launch, const struct options *options)
{
    for (size_t i = 0; i < launch->n_notes && !launch->config.quiet; i++)
        say(stderr, "%s: %s", options->program, launch->notes[i]);
}

/* What the handlers of a run's events use. */
struct watch {
    const struct launch *launch;
    const struct options *options;
    /* points to the socket to fsdp-agent, or to -1 once it was told; NULL: no fsdp-agent runs this job */
    int *start_fd;
    bool started, listed;    /* started: the workers were started; listed: the registry has the run */
    struct summary *summary; /* NULL: no memory */
    uint64_t every;          /* the key checkpoint.every of a job; 0 for a program */
};

static void remove_secret(const struct launch *launch)
{
    if (launch->secret_file[0] != '\0')
        (void)unlink(launch->secret_file);
}

/*
 * Tells fsdp-agent, once, that the workers were started and that the commands over jobs find the run. Before
 * it does so, a detached job prints where it runs. The fsdprun that waits for the detached job shows that
 * line. Runs in the agent of the job.
 */
static void tell_agent(const struct watch *watch)
{
    const char *path = watch->options->of[OPT_AGENT].text;
    const unsigned char word = LEASE_STARTED;

    if (watch->start_fd == NULL || *watch->start_fd < 0 || !watch->started || !watch->listed)
        return;
    if (options_has(watch->options, OPT_DETACH) && !watch->launch->config.quiet)
        say(stderr, "fsdprun: job %d runs under %s%s, in %s", (int)getppid(),
            path != NULL ? "the agent at " : "this user's agent", path != NULL ? path : "",
            watch->launch->config.run_dir);
    /* the write fails if fsdp-agent has ended: then no process waits for the word */
    (void)!write(*watch->start_fd, &word, sizeof word);
    /* not closed: the end of this socket shows fsdp-agent that no process of the job is left */
    *watch->start_fd = -1;
}

static void on_started(void *arg)
{
    struct watch *watch = arg;

    /* If no further node can join, every node has the secret by now. */
    if (watch->launch->config.min_nodes == watch->launch->config.n_nodes)
        remove_secret(watch->launch);
    watch->started = true;
    tell_agent(watch);
}

static void on_listed(void *arg)
{
    struct watch *watch = arg;

    watch->listed = true;
    tell_agent(watch);
}

static void on_event(void *arg, const char *line)
{
    summary_event(((const struct watch *)arg)->summary, line, clock_now_ms());
}

static void on_progress(void *arg, const struct agent_progress *progress)
{
    summary_progress(((const struct watch *)arg)->summary, progress, clock_now_ms());
}

/*
 * Prints the last lines of a job to `out`. If the job did a step, they say what it did. If it ran long or had
 * to start again, they also say where its time went.
 */
static void end_job(const struct watch *watch, int status, char *out, size_t size)
{
    const struct summary *summary = watch->summary;
    const struct agent_config *config = &watch->launch->config;
    const struct cost cost = summary_cost(summary, clock_now_ms());
    const struct ending ending = { .status = status,
                                   .steps = summary->steps,
                                   .total_steps = config->total_steps,
                                   .seconds = cost.seconds,
                                   .tokens_per_s = summary_tokens_per_s(summary),
                                   .n_restarts = cost.n_restarts,
                                   .restarting_s = cost.restarting_s,
                                   .n_repeated = summary->n_repeated,
                                   .saved = summary->saved,
                                   .saved_step = summary->saved_step,
                                   .resumes = !config->resume_never,
                                   .run_dir = config->run_dir,
                                   .checkpoint_dir = config->checkpoint_dir,
                                   .summary = watch->options->of[OPT_SUMMARY].text };
    size_t n = 0;

    if (summary->has_trained && config->run_dir != NULL)
        n = ending_words(&ending, out, size);
    if (cost.n_restarts > 0 || cost.seconds >= LONG_S)
        cost_words(&cost, watch->every, out + n, size - n);
}

static void on_ending(void *arg, int status, bool has_logs, char *out, size_t size)
{
    const struct watch *watch = arg;
    const struct agent_config *config = &watch->launch->config;
    const struct cost cost = summary_cost(watch->summary, clock_now_ms());

    /* not removed at the start if this node leads because the node that made the file was lost */
    remove_secret(watch->launch);
    if (watch->summary->generations > 0 && config->job_json != NULL)
        end_job(watch, status, out, size);
    else if (cost.n_restarts > 0)
        ending_program_words(cost.n_restarts, cost.restarting_s, has_logs ? config->run_dir : NULL, out,
                             size);
}

/*
 * Should the job go back to Slurm's queue? Only if it has saved, or could not save in time, after Slurm sent
 * one of these signals:
 *   USR1  Slurm sends it with --signal=USR1@90 when the job's time is nearly over. The job goes back only if
 *         it has done a step since it started: otherwise it would never come to its end.
 *   TERM  Slurm sends it to a job that is preempted or cancelled. The job goes back only if it is preempted.
 */
static bool goes_back(const struct summary *summary, const char *job, int status)
{
    if (status != FSDP_EXIT_NOTICE && status != 128 + summary->notice)
        return false;
    return summary->notice == SIGUSR1
               ? summary->has_trained
               : summary->notice == SIGTERM && requeue_is_preempted(job, REQUEUE_TIMEOUT_MS);
}

/*
 * Puts the job back into Slurm's queue if that is due. Only the node that leads does it: it has seen the
 * signal.
 */
static void requeue_if_due(const struct watch *watch, const struct surroundings *around, int status)
{
    const char *job = around->get_env(around->arg, "SLURM_JOB_ID");
    struct fsdp_err err = { 0 };

    if (around->slurm == NULL || job == NULL || watch->summary == NULL ||
        !goes_back(watch->summary, job, status))
        return;
    if (requeue(job, REQUEUE_TIMEOUT_MS, &err) == FSDP_OK)
        say(stderr, "fsdprun: job %s is requeued, and goes on when Slurm starts it again", job);
    else
        say(stderr, "fsdprun: not requeued: %s", err.message);
}

/* Runs the launch in this process and returns its exit status. `job` is NULL for a program. */
static int run(struct launch *launch, const struct options *options, const struct surroundings *around,
               const struct job *job)
{
    const char *path = options->of[OPT_SUMMARY].text;
    struct agent_config *config = &launch->config;
    struct watch watch = {
        .launch = launch,
        .options = options,
        .start_fd = around->start_fd,
        .every = job != NULL ? job->checkpoint.every : 0,
    };
    struct fsdp_err err = { 0 };
    int status;

    secret_forget_variable();
    if (config->secret != NULL)
        core_hide_memory();
    status = gpu_lease_take(launch, options, job, around, &err);
    if (status != 0)
        return err.status == FSDP_OK ? status : complain(options, status, &err);
    config->observer.arg = &watch;
    if (around->start_fd != NULL) {
        config->observer.listed = on_listed;
        if (config->job_json != NULL)
            config->save_on_signal |= AGENT_SAVE_DAEMON;
    }
    watch.summary = summary_create(config);
    if (watch.summary != NULL) {
        config->observer.event = on_event;
        config->observer.progress = on_progress;
        config->observer.ending = on_ending;
    }
    config->observer.started = on_started;
    status = agent_run(config);
    gpu_lease_end(launch);
    requeue_if_due(&watch, around, status);
    if (path != NULL && watch.summary != NULL &&
        summary_write(watch.summary, path, status, &err) != FSDP_OK) {
        complain(options, FSDP_EXIT_IO, &err);
        return status != 0 ? status : exit_status_of(err.status);
    }
    return status;
}

/* Checks the path of --summary before anything is created or run. Returns 0, or FSDP_EXIT_USAGE. */
static int check_summary(const struct options *options)
{
    struct fsdp_err err = { 0 };

    return summary_check_path(options->of[OPT_SUMMARY].text, &err) == FSDP_OK
               ? 0
               : complain(options, FSDP_EXIT_USAGE, &err);
}

int cmd_run_job(const struct options *options, const struct surroundings *around)
{
    struct job_input_result input;
    struct launch launch = { 0 };
    struct fsdp_err err = { 0 };
    enum fsdp_status resolved = job_input_resolve(&input, options, stderr, &err);
    int status;

    if (resolved != FSDP_OK) /* job_input_resolve() has printed its problems to stderr */
        return resolved == FSDP_ERR_CONFIG ? FSDP_EXIT_CONFIG
                                           : complain(options, exit_status_of(resolved), &err);
    if (options_has(options, OPT_DRY_RUN)) {
        print_launch_defaults(options, stdout);
        status =
            complain(options, exit_status_of(job_print_yaml(&input.job, &input.origins, stdout, &err)), &err);
    } else {
        status = check_summary(options);
        if (status == 0)
            status = complain(options, launch_job(&launch, options, &input.job, around, &err), &err);
        if (status == 0) {
            print_notes(&launch, options);
            status = run(&launch, options, around, &input.job);
        }
    }
    launch_fini(&launch);
    job_input_fini(&input);
    return status;
}

int cmd_run_program(const struct options *options, enum what_kind kind, const struct surroundings *around)
{
    struct launch launch = { 0 };
    struct fsdp_err err = { 0 };
    int status = check_summary(options);

    if (status == 0)
        status = complain(options, launch_program(&launch, options, kind, around, &err), &err);
    if (status == 0)
        print_notes(&launch, options);
    if (status == 0 && options_has(options, OPT_DRY_RUN)) {
        status = print_launch(&launch, options, stdout);
    } else if (status == 0) {
        if (kind == WHAT_ON_PATH && !options->dashes && !launch.config.quiet)
            say(stderr, "%s: %s is no file here: running the one on PATH", options->program,
                options->rest[0]);
        status = run(&launch, options, around, NULL);
    }
    launch_fini(&launch);
    return status;
}
