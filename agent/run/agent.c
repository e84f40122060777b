#include "agent/run/agent.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <uv.h>

#include "agent/os/deadlines.h"
#include "agent/os/descendants.h"
#include "agent/os/guard.h"
#include "agent/run/last_word.h"
#include "agent/run/run.h"
#include "agent/snapshot/place.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/exit_status.h"

_Static_assert((int)AGENT_LEASE_MS == (int)LEASE_MS, "one default");

enum { N_SIGNALS = 64 };

enum way { WAY_NONE, WAY_GUARD, WAY_DIRECT };

/* How a signal arrived, and the process that sent it to the guard or to the agent. */
struct arrival {
    enum way way;
    pid_t sender;
};

struct agent {
    const struct agent_config *config;
    const struct guard_inside *inside;
    uv_loop_t loop;
    struct run *run;
    pid_t guard_pid;
    int signal_fd;
    /* the last arrival of each signal that may still have a copy; WAY_NONE: there is none */
    struct arrival unpaired[N_SIGNALS];
    uv_poll_t signals, guard;
    int status;
};

/*
 * Ctrl-Z: stops all descendants, and then the agent itself. The guard sees that the agent is stopped, and
 * stops too. After fg, the agent continues and wakes its descendants.
 */
static void suspend(struct agent *agent)
{
    const int64_t began = clock_now_ns();

    /*
     * SIGSTOP is used because the kernel ignores SIGTSTP for workers, whose sessions have no terminal. The
     * second pass stops processes that were being forked during the first.
     */
    descendants_signal(SIGSTOP, NULL, 0);
    descendants_signal(SIGSTOP, NULL, 0);
    raise(SIGSTOP);
    /* If the lease is over, the guard kills them: they must not run again. */
    if (agent->inside->lease == NULL || !lease_is_over(agent->inside->lease))
        descendants_signal(SIGCONT, NULL, 0);
    run_suspended(agent->run, clock_now_ns() - began);
}

static void take_signal(struct agent *agent, int signal)
{
    if (agent->run == NULL)
        return; /* the run is ending already */
    if (signal == SIGWINCH)
        run_resized(agent->run);
    if (signal == SIGTSTP && (agent_signals(agent->config) >> SIGTSTP & 1) == 0)
        suspend(agent);
    else
        run_signal(agent->run, signal);
}

/*
 * Returns whether a signal is a copy of one that was taken already. A scheduler or service manager may signal
 * every process of the run. Then one signal arrives twice: directly, and relayed by the guard. A copy must be
 * ignored: a second interrupt would cancel the grace period, and a second SIGTSTP would stop the run again
 * after fg. A signal and its copy have the same sender; signals of two senders are never copies of each
 * other.
 */
static bool is_copy(struct agent *agent, const struct signalfd_siginfo *info)
{
    const bool relayed = (pid_t)info->ssi_pid == agent->guard_pid && info->ssi_code == SI_QUEUE;
    const struct arrival now = { relayed ? WAY_GUARD : WAY_DIRECT,
                                 relayed ? info->ssi_int : (pid_t)info->ssi_pid };
    struct arrival *unpaired = &agent->unpaired[info->ssi_signo];
    const bool copy = unpaired->way != WAY_NONE && unpaired->way != now.way && unpaired->sender == now.sender;

    *unpaired = copy ? (struct arrival){ WAY_NONE, 0 } : now;
    return copy;
}

static void on_signals(uv_poll_t *poll, int status, int events)
{
    struct agent *agent = poll->data;
    struct signalfd_siginfo info;

    (void)status;
    (void)events;
    while (read(agent->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        if (!is_copy(agent, &info))
            take_signal(agent, (int)info.ssi_signo);
}

/*
 * The guard was killed, so no process waits for the agent's status any more. Ends all descendants and exits.
 */
static void on_guard_gone(uv_poll_t *poll, int status, int events)
{
    const struct agent *agent = poll->data;

    (void)status;
    (void)events;
    if (descendants_end(GUARD_CLEANUP_MS, NULL, 0) == 0 && agent->run != NULL)
        run_swept(agent->run);
    if (agent->config->place != NULL)
        place_remove(agent->config->place);
    _exit(128 + SIGKILL);
}

static void on_done(void *arg, int status, bool stuck)
{
    struct agent *agent = arg;

    agent->run = NULL;
    agent->status = status;
    if (stuck)
        guard_leave(agent->inside, status);
    uv_close((uv_handle_t *)&agent->signals, NULL);
    uv_close((uv_handle_t *)&agent->guard, NULL);
}

/*
 * Opens a descriptor from which the run reads its signals, because a descriptor also gives their senders.
 * These signals stay blocked to the end. `mask` receives the signal mask to set once the run has begun.
 */
static bool open_signals(struct agent *agent, const struct guard_inside *inside, sigset_t *mask)
{
    const uint64_t taken = agent_signals(agent->config) | UINT64_C(1) << SIGTSTP | UINT64_C(1) << SIGWINCH;
    sigset_t set;

    os_signals_to_take(&set, taken, inside->baseline);
    sigorset(mask, &inside->mask, &set);
    sigprocmask(SIG_BLOCK, &set, NULL);
    agent->guard_pid = getppid();
    agent->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (agent->signal_fd < 0)
        return false;
    uv_poll_init(&agent->loop, &agent->signals, agent->signal_fd);
    agent->signals.data = agent;
    uv_poll_start(&agent->signals, UV_READABLE, on_signals);
    return true;
}

static int run_agent(void *arg, const struct guard_inside *inside)
{
    struct agent agent = { .config = arg, .inside = inside };
    struct fsdp_err err = { 0 };
    enum fsdp_status status;
    sigset_t mask;

    prctl(PR_SET_NAME, "fsdprun-agent");
    os_raise_nofile();
    signal(SIGPIPE, SIG_IGN); /* a closed pipe makes a write fail, and must not end the job */
    if (uv_loop_init(&agent.loop) != 0) {
        dprintf(STDERR_FILENO, "fsdprun: no event loop can be made\n");
        return FSDP_EXIT_IO;
    }
    if (!open_signals(&agent, inside, &mask)) {
        dprintf(STDERR_FILENO, "fsdprun: signalfd: %s\n", strerror(errno));
        return FSDP_EXIT_IO;
    }
    uv_poll_init(&agent.loop, &agent.guard, inside->guard_pidfd);
    agent.guard.data = &agent;
    uv_poll_start(&agent.guard, UV_READABLE, on_guard_gone);
    status = run_start(&agent.run, &agent.loop, agent.config, inside->baseline, inside->lease, on_done,
                       &agent, &err);
    if (status != FSDP_OK) {
        dprintf(STDERR_FILENO, "fsdprun: %s\n", err.message);
        on_done(&agent, exit_status_of(status), false);
    }
    if (status == FSDP_OK)
        /* now the SIGCHLD of children that have ended already arrives */
        sigprocmask(SIG_SETMASK, &mask, NULL);
    uv_run(&agent.loop, UV_RUN_DEFAULT);
    uv_loop_close(&agent.loop);
    close(agent.signal_fd);
    return agent.status;
}

/* Prints what this machine lacks, so that the user knows it before the run. */
static void note_missing(const struct agent_config *config)
{
    if (config->quiet)
        return;
    if (!descendants_can_be_found())
        dprintf(STDERR_FILENO,
                "fsdprun: /proc is not there: processes that a worker starts and leaves cannot be found, "
                "and may outlive the run\n");
    if (!os_has_close_range())
        dprintf(STDERR_FILENO,
                "fsdprun: this system lacks close_range (Linux 5.11): files that were open when fsdprun "
                "started may stay open in the workers\n");
}

int agent_run(const struct agent_config *launched)
{
    struct agent_config here = *launched;
    const struct agent_config *config = &here;
    struct place place = { .lock_fd = -1 };
    struct fsdp_err err = { 0 };
    enum fsdp_status status = os_check_kernel(&err);
    int exit_status;
    const uint64_t daemon_stops =
        (config->save_on_signal & AGENT_SAVE_DAEMON) != 0 ? UINT64_C(1) << agent_daemon_stops() : 0;
    const struct guard_config guard = { .grace_ms = config->grace_ms,
                                        .lease_ms = config->lease_ms,
                                        .relayed = agent_signals(config),
                                        .ending = config->stop_signals | daemon_stops,
                                        .leased = config->n_nodes > 1,
                                        .swept = last_word_say,
                                        .swept_arg = (void *)config };

    if (status == FSDP_OK)
        status = place_make(&place, config->snapshot_bytes, &err);
    if (status != FSDP_OK) {
        dprintf(STDERR_FILENO, "fsdprun: %s\n", err.message);
        return exit_status_of(status);
    }
    here.place = place.path[0] != '\0' ? &place : NULL;
    note_missing(config);
    exit_status = guard_run(run_agent, &here, &guard);
    place_remove(&place);
    return exit_status;
}
