#include "agent/run/run.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/os/sink.h"
#include "agent/run/run_impl.h"
#include "shard_runtime/core/exit_status.h"
#include "shard_runtime/shardfile/io_beneath.h"

enum {
    DISK_WAIT_MS = 5000,
    LAST_WORD_MS = 1000, /* for a reader who takes nothing, once somebody wants us to end */
};

/* --- the end ------------------------------------------------------------------------------------------------------ */

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
        dprintf(run->config->stdio[2], "fsdprun: %s\n", words);
}

/* The first cause is the last line, so that it is what stands above the prompt. */
static void say_last(const struct run *run)
{
    char text[RUN_WHERE_BYTES + RUN_ACCOUNT_BYTES + RUN_LINE_BYTES + 16];

    if (run->line[0] == '\0' || (run->config->quiet && run->status == FSDP_EXIT_NOTICE))
        return;
    snprintf(text, sizeof text, "%s%s%sfsdprun: %s\n", run->within_line ? "\n" : "", run->where, run->account,
             run->line);
    sink_say(run->config->stdio[2], text, run->hurried ? LAST_WORD_MS : -1);
}

/* One that was made for this run, which never began: it goes as it came. */
static void discard_directory(struct run *run)
{
    const struct rundir_spec spec = { .kind = RUNDIR_PROGRAM,
                                      .path = run->config->run_dir,
                                      .temporary = true };

    if (run->config->run_dir == NULL || !run->config->run_dir_temporary ||
        rundir_open(&run->rundir, &spec, NULL) != FSDP_OK)
        return;
    rundir_close(run->rundir, true);
    run->rundir = NULL;
}

static void finish(struct run *run)
{
    void (*done)(void *, int, bool) = run->done;
    void *arg = run->done_arg;
    const int status = run->status;
    const bool stuck = run->stuck;

    say_last(run);
    events_close(run->events);
    if (run->rundir == NULL)
        discard_directory(run);
    rundir_close(run->rundir, run->refused || (!run->captured && status == 0));
    if (!stuck)
        io_beneath_destroy(run->io);
    placement_fini(&run->placement);
    free(run);
    done(arg, status, stuck);
}

static void on_closed(uv_handle_t *handle)
{
    struct run *run = handle->data;

    if (--run->n_handles == 0)
        finish(run);
}

static void close_all(struct run *run)
{
    run->closing = true;
    uplink_destroy(run->uplink);
    nodes_destroy(run->nodes);
    world_destroy(run->world);
    run->world = NULL;
    logs_destroy(run->logs);
    run->within_line = run->relay != NULL && relay_within_line(run->relay);
    relay_destroy(run->relay);
    console_destroy(run->console);
    uv_close((uv_handle_t *)&run->children, on_closed);
    uv_close((uv_handle_t *)&run->disk, on_closed);
}

static void leave(struct run *run)
{
    run->coordinator = NULL;
    uv_timer_stop(&run->disk);
    close_all(run);
}

static void on_disk_answered(void *arg)
{
    struct run *run = arg;

    if (!run->closing && coordinator_destroy(run->coordinator))
        leave(run);
}

/* The coordinator stays for the thread that may still come back. */
static void on_disk_silent(uv_timer_t *timer)
{
    struct run *run = timer->data;

    console_say(run->console, "fsdprun: the disk does not answer; leaving without it");
    run->stuck = true;
    leave(run);
}

/* A publication or a look at the checkpoints may be under way; a disk that hangs must not hold the end up. */
static void on_settled(uv_timer_t *timer)
{
    struct run *run = timer->data;

    if (coordinator_destroy(run->coordinator)) {
        leave(run);
        return;
    }
    coordinator_when_idle(run->coordinator, on_disk_answered, run);
    uv_timer_start(&run->disk, on_disk_silent, DISK_WAIT_MS, 0);
}

static void on_drained(void *arg)
{
    struct run *run = arg;

    uv_timer_start(&run->disk, on_settled, 0, 0);
}

static void on_relayed(void *arg)
{
    struct run *run = arg;

    if (relay_lost(run->relay) > 0)
        console_say(run->console, "fsdprun: %llu bytes of output could not be written",
                    (unsigned long long)relay_lost(run->relay));
    on_drained(run);
}

static void on_logged(void *arg)
{
    struct run *run = arg;

    if (run->relay != NULL)
        relay_drain(run->relay, on_relayed, run);
    else
        on_drained(run);
}

void run_world_ended(void *arg)
{
    struct run *run = arg;

    if (run->logs != NULL)
        logs_drain(run->logs, on_logged, run);
    else
        on_logged(run);
}

/* It cannot be begun. What is open is closed, as at any end. */
static void refuse(struct run *run, int exit_status, const char *why)
{
    run->refused = true;
    run->status = exit_status;
    snprintf(run->line, sizeof run->line, "%s", why);
    run_world_ended(run);
}

/* --- from outside ------------------------------------------------------------------------------------------------- */

static void stop(struct run *run, int signal, bool now)
{
    if (run->uplink != NULL)
        uplink_stop(run->uplink, signal, now);
    else
        coordinator_stop(run->coordinator, signal, now);
}

static void save_and_stop(struct run *run, int signal)
{
    if (run->uplink != NULL)
        uplink_notice(run->uplink, signal);
    else
        coordinator_notice(run->coordinator, signal);
}

static void forward(struct run *run, int signal)
{
    if (run->uplink != NULL)
        uplink_forward(run->uplink, signal);
    else
        coordinator_forward(run->coordinator, signal);
}

/* Nothing runs that could be asked to save, or told of another signal. */
static void stop_before_start(struct run *run, int signal)
{
    char words[64], name[32];

    placement_search_cancel(run->search);
    run->search = NULL;
    run->hurried = true;
    snprintf(words, sizeof words, "stopped by %s", errors_signal_name(signal, name));
    refuse(run, 128 + signal, words);
}

/* The answer to the first Ctrl-C. A job is killed at once: it loses no more than what a checkpoint does not have. */
static void say_stopping(const struct run *run)
{
    const struct agent_config *config = run->config;

    if (config->quiet || (!isatty(config->stdio[0]) && !isatty(config->stdio[2])))
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
    stop(run, signal, run->n_interrupts > 1 && signal == SIGINT);
}

void run_signal(struct run *run, int signal)
{
    unsigned save = run->config->save_on_signal;

    if (signal == agent_daemon_stops() && (save & AGENT_SAVE_DAEMON) != 0) {
        signal = SIGTERM;
        save |= AGENT_SAVE_TERM;
    }
    if (run->search != NULL) {
        if (((run->config->stop_signals >> signal & 1) != 0 ||
             (signal == SIGTERM && (save & AGENT_SAVE_TERM) != 0) ||
             (signal == SIGUSR1 && (save & AGENT_SAVE_USR1) != 0)))
            stop_before_start(run, signal);
        return;
    }
    run->hurried |= (run->config->stop_signals >> signal & 1) != 0;
    if (run->relay != NULL && run->hurried)
        relay_hurry(run->relay);
    if (run->closing || (run->uplink == NULL && run->coordinator == NULL))
        return; /* the end has begun; or this node was to host and could not, and is about to end */
    if ((signal == SIGTERM && (save & AGENT_SAVE_TERM) != 0) ||
        (signal == SIGUSR1 && (save & AGENT_SAVE_USR1) != 0))
        save_and_stop(run, signal);
    else if ((run->config->stop_signals >> signal & 1) != 0)
        answer_stop(run, signal);
    else if ((run->config->forward_signals >> signal & 1) != 0)
        forward(run, signal);
}

void run_resized(struct run *run)
{
    if (run->relay != NULL)
        relay_resized(run->relay);
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
        while (waitpid(-1, NULL, WNOHANG) > 0) /* who looked at the machine */
            continue;
}

/* --- several nodes -------------------------------------------------------------------------------------------------- */

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
    status = run_open_as_coordinator(run, rendezvous, &err);
    if (status != FSDP_OK) {
        refuse(run, exit_status_of(status), err.message);
        return;
    }
    if (!run->config->quiet) {
        snprintf(words, sizeof words, "this node hosts, at %s; waiting for the others", where);
        on_note(run, words);
    }
    coordinator_attach(run->coordinator, COORDINATOR_SELF, &run_member, run);
}

/* Alone, or meet the others. */
static enum fsdp_status open_run(struct run *run, struct fsdp_err *err)
{
    static const struct uplink_handlers handlers = { on_hosts, on_note };

    return run->config->n_nodes > 1
               ? uplink_create(&run->uplink, run->loop, run->config, &run_member, &handlers, run, err)
               : run_open_as_coordinator(run, NULL, err);
}

static void form_alone(struct run *run)
{
    if (run->coordinator != NULL)
        coordinator_attach(run->coordinator, COORDINATOR_SELF, &run_member, run);
}

/* Of several nodes, one that is not fit meets the others all the same: it is through it that they hear why. */
static void on_placed(void *arg, const struct placement *found, enum fsdp_status status, const char *why)
{
    struct run *run = arg;
    struct fsdp_err err = { 0 };

    run->search = NULL;
    run->placement = *found;
    run->fit = status;
    snprintf(run->unfit, sizeof run->unfit, "%s", why != NULL ? why : "");
    if (status != FSDP_OK && run->config->n_nodes == 1) {
        refuse(run, exit_status_of(status), why);
        return;
    }
    status = open_run(run, &err);
    if (status == FSDP_OK)
        form_alone(run);
    else
        refuse(run, exit_status_of(status), err.message);
}

/* Without a binding there is nothing to be waited for. */
static enum fsdp_status place(struct run *run, struct fsdp_err *err)
{
    return run->config->numa == AGENT_NUMA_NONE
               ? placement_init(&run->placement, run->config, err)
               : placement_search_begin(&run->search, run->loop, run->config, PLACEMENT_WITHIN_MS, on_placed,
                                        run, err);
}

enum fsdp_status run_start(struct run **out, uv_loop_t *loop, const struct agent_config *config,
                           const struct os_baseline *baseline,
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
    run->node_rank = -1;
    run->done = done;
    run->done_arg = arg;
    status = place(run, err);
    if (status == FSDP_OK && run->search == NULL)
        status = open_run(run, err);
    if (status != FSDP_OK) {
        coordinator_destroy(run->coordinator);
        logs_destroy(run->logs);
        relay_destroy(run->relay);
        console_destroy(run->console);
        events_close(run->events);
        if (run->rundir == NULL)
            discard_directory(run);
        rundir_close(run->rundir, true);
        io_beneath_destroy(run->io);
        placement_fini(&run->placement);
        free(run);
        return status;
    }
    uv_signal_init(loop, &run->children);
    uv_timer_init(loop, &run->disk);
    run->children.data = run->disk.data = run;
    run->n_handles = 2;
    uv_signal_start(&run->children, on_child, SIGCHLD);
    *out = run;
    form_alone(run);
    return FSDP_OK;
}
