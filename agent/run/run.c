#include "agent/run/run.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/record/error_file.h"
#include "agent/run/run_impl.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/exit_status.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/io_beneath.h"

void run_say(const struct run *run, const char *format, ...)
{
    char words[RUN_LINE_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    if (run->console != NULL)
        console_say(run->console, "fsdprun: %s", words);
    else
        dprintf(STDERR_FILENO, "fsdprun: %s\n", words);
}

void run_refuse(struct run *run, int exit_status, const char *why)
{
    run->refused = true;
    run->status = exit_status;
    run_lead_resign(run, exit_status);
    snprintf(run->line, sizeof run->line, "%s", why);
    if (run->world != NULL)
        world_end(run->world);
    else
        run_world_ended(run);
}

/* Signals from outside */

static void ask(struct run *run, int signal, enum reporter_ask how)
{
    run->reporter.asked(run->reporter.to, signal, how);
}

void run_stop_before_start(struct run *run, int signal)
{
    char words[64], name[32];

    if (run->search != NULL)
        placement_search_cancel(run->search);
    run->search = NULL;
    run->hurried = true;
    snprintf(words, sizeof words, "stopped by %s", errors_signal_name(signal, name));
    run_refuse(run, 128 + signal, words);
}

/*
 * Prints an answer to the first Ctrl-C. A training job gets no grace period, because it loses only the steps
 * since its last checkpoint.
 */
static void say_stopping(const struct run *run)
{
    const struct agent_config *config = run->config;

    if (config->quiet || (!isatty(STDIN_FILENO) && !isatty(STDERR_FILENO)))
        return;
    if (config->job_json != NULL || config->grace_ms < 1000)
        run_say(run, "stopping");
    else
        run_say(run, "stopping, up to %lld s; Ctrl-C again kills", (long long)config->grace_ms / 1000);
}

static void answer_stop(struct run *run, int signal)
{
    if (signal == SIGINT && ++run->n_interrupts == 1)
        say_stopping(run);
    ask(run, signal, run->n_interrupts > 1 && signal == SIGINT ? REPORTER_STOP_NOW : REPORTER_STOP);
}

/*
 * Is there a coordinator that can be asked now? There is none while the run ends, while a leader steps down,
 * or if this node could not host.
 */
static bool may_ask(const struct run *run)
{
    return !run->lead.steps_down && run->ending != RUN_CLOSES && run->reporter.to != NULL;
}

void run_end_by(struct run *run, int signal, bool save)
{
    if (run->search != NULL) {
        run_stop_before_start(run, signal);
        return;
    }
    run->hurried |= !save;
    if (run->output != NULL && run->hurried)
        output_hurry(run->output);
    run->lead.stopped_by = signal;
    if (!may_ask(run))
        return;
    if (save)
        ask(run, signal, REPORTER_SAVE);
    else
        answer_stop(run, signal);
}

void run_signal(struct run *run, int signal)
{
    unsigned save = run->config->save_on_signal;
    bool saves, stops;

    if (signal == agent_daemon_stops() && (save & AGENT_SAVE_DAEMON) != 0) {
        signal = SIGTERM;
        save |= AGENT_SAVE_TERM;
    }
    saves = (signal == SIGTERM && (save & AGENT_SAVE_TERM) != 0) ||
            (signal == SIGUSR1 && (save & AGENT_SAVE_USR1) != 0);
    stops = (run->config->stop_signals >> signal & 1) != 0;
    run->hurried |= stops;
    if (saves || stops)
        run_end_by(run, signal, saves);
    else if (run->search == NULL && may_ask(run) && (run->config->forward_signals >> signal & 1) != 0)
        ask(run, signal, REPORTER_FORWARD);
}

void run_resized(struct run *run)
{
    if (run->output != NULL)
        output_resized(run->output);
}

void run_swept(struct run *run)
{
    if (run->uplink != NULL)
        uplink_swept(run->uplink);
}

void run_suspended(struct run *run, int64_t slept_ns)
{
    if (run->world != NULL)
        world_suspended(run->world, slept_ns);
}

static void on_child(uv_signal_t *handle, int signal)
{
    struct run *run = handle->data;

    (void)signal;
    if (run->world != NULL)
        world_reap(run->world);
    else
        while (waitpid(-1, NULL, WNOHANG) > 0) /* the child that searched for the placement */
            continue;
}

/* Meeting the other nodes */

static void on_note(void *member, const char *words)
{
    run_say(member, "%s", words);
}

static void on_hosts(void *member, struct rendezvous *rendezvous, const char *where)
{
    struct run *run = member;
    struct fsdp_err err = { 0 };
    char words[ENDPOINT_TEXT_BYTES + 64];
    enum fsdp_status status;

    uplink_destroy(run->uplink);
    run->uplink = NULL;
    run->reporter.to = NULL;
    status = run_open_as_coordinator(run, rendezvous, &err);
    if (status != FSDP_OK) {
        run_refuse(run, exit_status_of(status), err.message);
        return;
    }
    if (!run->config->quiet) {
        snprintf(words, sizeof words, "this node hosts, at %s; waiting for the others", where);
        on_note(run, words);
    }
    coordinator_attach(run->coordinator, COORDINATOR_SELF, run_member, run);
}

enum fsdp_status run_meet(struct run *run, struct fsdp_err *err)
{
    struct uplink_handlers handlers = { .hosts = on_hosts, .note = on_note };

    run_lead_handlers(run, &handlers);
    OK_OR_RETURN(
        uplink_create(&run->uplink, run->loop, run->config, run_member, &handlers, run, run->lease, err));
    /* a leader that steps down keeps the identity under which it joined before it led */
    if (run->lead.arbiter != NULL)
        uplink_keep_identity(run->uplink, run->lead.identity);
    run->reporter = uplink_reporter(run->uplink);
    return FSDP_OK;
}

/* Opens the run: a single node at once, several nodes after they have met. */
static enum fsdp_status open_run(struct run *run, struct fsdp_err *err)
{
    if (run->config->n_nodes == 1)
        return run_open_as_coordinator(run, NULL, err);
    OK_OR_RETURN(disk_create(&run->disk, run->loop, err));
    OK_OR_RETURN(error_reader_create(&run->error_reader, run->loop, error_file_read, err));
    OK_OR_RETURN(run_lead_open(run, err));
    return run_meet(run, err);
}

static void form_alone(struct run *run)
{
    if (run->coordinator != NULL)
        coordinator_attach(run->coordinator, COORDINATOR_SELF, run_member, run);
}

/*
 * Continues after the search for a placement. If the search failed on one of several nodes, that node still
 * meets the others, so that they learn why it cannot run its workers.
 */
static void on_placed(void *arg, const struct placement *found, enum fsdp_status status, const char *why)
{
    struct run *run = arg;
    struct fsdp_err err = { 0 };

    run->search = NULL;
    run->placement = *found;
    run->fit = status;
    snprintf(run->unfit, sizeof run->unfit, "%s", why != NULL ? why : "");
    if (status != FSDP_OK && run->config->n_nodes == 1) {
        run_refuse(run, exit_status_of(status), why);
        return;
    }
    status = open_run(run, &err);
    if (status == FSDP_OK)
        form_alone(run);
    else
        run_refuse(run, exit_status_of(status), err.message);
}

/* Finds the placement of the workers. If workers are not bound to CPUs, the result is known at once. */
static enum fsdp_status place(struct run *run, struct fsdp_err *err)
{
    return run->config->numa == AGENT_NUMA_NONE
               ? placement_init(&run->placement, run->config, err)
               : placement_search_begin(&run->search, run->loop, run->config, PLACEMENT_WITHIN_MS, on_placed,
                                        run, err);
}

enum fsdp_status run_start(struct run **out, uv_loop_t *loop, const struct agent_config *config,
                           const struct os_baseline *baseline, const struct lease *lease,
                           void (*done)(void *arg, int status, bool stuck), void *arg, struct fsdp_err *err)
{
    struct run *run = calloc(1, sizeof *run);
    enum fsdp_status status;

    *out = NULL;
    if (run == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    run->loop = loop;
    run->config = config;
    run->baseline = baseline;
    run->lease = lease;
    run->node_rank = -1;
    run->desk.about.started_s = clock_epoch_s();
    run->desk.began_ns = clock_now_ns();
    run->done = done;
    run->done_arg = arg;
    status = place(run, err);
    if (status == FSDP_OK && run->search == NULL)
        status = open_run(run, err);
    if (status != FSDP_OK) {
        coordinator_destroy(run->coordinator);
        output_destroy(run->output);
        console_destroy(run->console);
        run_lead_close(run);
        disk_close(run->disk);
        error_reader_close(run->error_reader);
        events_close(run->events);
        if (run->rundir == NULL)
            run_discard_directory(run);
        rundir_close(run->rundir, true);
        io_beneath_destroy(run->io);
        placement_fini(&run->placement);
        free(run);
        return status;
    }
    uv_signal_init(loop, &run->children);
    uv_timer_init(loop, &run->patience);
    run->children.data = run->patience.data = run;
    run_watch_directory(run);
    run->n_handles = 3;
    uv_signal_start(&run->children, on_child, SIGCHLD);
    *out = run;
    form_alone(run);
    run_desk_open(run);
    return FSDP_OK;
}
