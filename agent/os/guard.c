#include "agent/os/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fsdp/link.h>

#include "agent/os/deadlines.h"
#include "agent/os/descendants.h"
#include "agent/os/guard_lease.h"
#include "agent/os/sink.h"
#include "shard_runtime/core/clock.h"

enum {
    INTERRUPTS_THAT_KILL = 3,
    MAX_STRANGERS = 64,
    GUARD_SECOND_LOOK_MS = 250,
};

/*
 * What the guard has last asked of the agent: TSTP (Ctrl-Z) or CONT (fg). Reset when the agent has stopped
 * because of it.
 */
enum suspension { NOT_TOLD, TOLD_TO_STOP, TOLD_TO_GO_ON };

struct guard {
    pid_t agent;
    int agent_pidfd, signals;
    struct guard_lease lease;
    /* readable with the agent's exit status if the agent ends but cannot be reaped (guard_leave()) */
    int leaves;
    enum suspension suspension;
    bool agent_stands; /* the agent is stopped, by its own decision or from outside */
    int n_interrupts;
    const struct guard_config *config;
    int64_t asked_ms; /* when a signal asked the agent to end; 0: none did */
    bool over;
    bool swept; /* the agent ended in order: it has ended all processes that it could, and named the others */
    int status;
    /*
     * Children that this process had before it was executed, as in `exec fsdprun > >(tee log)`. The guard
     * leaves them alone.
     */
    pid_t strangers[MAX_STRANGERS];
    size_t n_strangers;
};

/* Print a line, but never wait long for a reader of stderr that takes nothing. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    char text[160];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    sink_say(STDERR_FILENO, text, LAST_WORD_MS);
}

static void relay(const struct guard *guard, int signal)
{
    syscall(SYS_pidfd_send_signal, guard->agent_pidfd, signal, NULL, 0);
}

/* Relay the signal with the pid of its sender (agent.c: is_copy), unless the system refuses that. */
static void relay_from(const struct guard *guard, int signal, pid_t sender)
{
    siginfo_t info = { .si_signo = signal, .si_code = SI_QUEUE };

    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_value.sival_int = sender;
    if (syscall(SYS_pidfd_send_signal, guard->agent_pidfd, signal, &info, 0) < 0)
        relay(guard, signal);
}

static bool has_pending(int signal)
{
    sigset_t pending;

    return sigpending(&pending) == 0 && sigismember(&pending, signal) == 1;
}

/*
 * Ctrl-Z, step by step:
 *   1. The guard gets TSTP and relays it to the agent.
 *   2. The agent stops its workers, and then itself.
 *   3. The guard sees that the agent is stopped, and stops itself.
 * Two other orders are possible:
 *   - The agent was stopped from outside (kill -STOP), without Ctrl-Z. The guard then does not stop: only the
 *     agent gets the SIGCONT that ends such a stop, so a stopped guard would stay stopped.
 *   - fg came before the agent had stopped, or before the guard knew it. The guard then wakes the agent
 *     again.
 */
static void follow_suspension(struct guard *guard)
{
    const enum suspension suspension = guard->suspension;

    if (!guard->agent_stands || suspension == NOT_TOLD)
        return;
    guard->suspension = NOT_TOLD;
    if (suspension == TOLD_TO_GO_ON) {
        guard->agent_stands = false;
        relay(guard, SIGCONT);
        /* otherwise the stop would discard a SIGCONT that came before it, and last for ever */
    } else if (!has_pending(SIGCONT)) {
        if (!guard_lease_all_stopped(&guard->lease)) {
            say("fsdprun: a process of this run cannot be stopped; it goes on, and so does its "
                "supervision\n");
            return;
        }
        raise(SIGSTOP);
        /* The guard runs again. The SIGCONT that woke it is in the signal descriptor, and will be relayed. */
        guard_lease_look(&guard->lease);
    }
}

/* Look whether the agent has ended, stopped or gone on. */
static void look_at_agent(struct guard *guard)
{
    siginfo_t info = { 0 };

    if (waitid(P_PIDFD, (id_t)guard->agent_pidfd, &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG) < 0 ||
        info.si_pid == 0)
        return;
    if (info.si_code == CLD_STOPPED || info.si_code == CLD_CONTINUED) {
        guard->agent_stands = info.si_code == CLD_STOPPED;
        follow_suspension(guard);
        return;
    }
    guard->over = true;
    if (info.si_code == CLD_EXITED) {
        guard->swept = true;
        guard->status = info.si_status;
        return;
    }
    guard->status = 128 + info.si_status;
    say("fsdprun: the agent (pid %d) was killed by SIG%s; its workers are being ended\n", (int)guard->agent,
        sigabbrev_np(info.si_status) != NULL ? sigabbrev_np(info.si_status) : "?");
}

_Noreturn void guard_leave(const struct guard_inside *inside, int status)
{
    const unsigned char byte = (unsigned char)status;

    (void)!write(inside->leaves_fd, &byte, sizeof byte);
    _exit(status);
}

static void look_at_leaving(struct guard *guard)
{
    unsigned char byte;

    if (guard->over || read(guard->leaves, &byte, sizeof byte) != (ssize_t)sizeof byte)
        return;
    guard->over = guard->swept = true;
    guard->status = byte;
}

static void relay_job_control(struct guard *guard, int signal)
{
    if ((guard->config->relayed >> SIGTSTP & 1) != 0)
        return; /* TSTP is forwarded to the workers; it then stops neither guard nor agent */
    if (signal == SIGTSTP)
        guard->suspension = TOLD_TO_STOP;
    else if (guard->suspension == TOLD_TO_STOP)
        guard->suspension = TOLD_TO_GO_ON;
    if (signal == SIGCONT)
        guard->agent_stands = false;
    follow_suspension(guard);
}

static void take_signal(struct guard *guard)
{
    struct signalfd_siginfo info;

    while (read(guard->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        int signal = (int)info.ssi_signo;

        if (signal == SIGCHLD) {
            look_at_agent(guard);
            continue;
        }
        relay_from(guard, signal, (pid_t)info.ssi_pid);
        if (signal == SIGTSTP || signal == SIGCONT)
            relay_job_control(guard, signal);
        if ((guard->config->ending >> signal & 1) == 0)
            continue;
        if (signal == SIGINT && ++guard->n_interrupts >= INTERRUPTS_THAT_KILL)
            relay(guard, SIGKILL);
        if (guard->asked_ms == 0)
            guard->asked_ms = clock_now_ms();
    }
}

/*
 * Returns how long the agent may still take. The leader's lease counts, which the agent may learn only after
 * the signal.
 */
static int64_t left_ms(const struct guard *guard)
{
    return guard->asked_ms + guard->config->grace_ms +
           guard_lease_slack_ms(&guard->lease, guard->config->lease_ms) - clock_now_ms();
}

static int wait_timeout(const struct guard *guard)
{
    const int64_t left = left_ms(guard);

    if (guard->asked_ms == 0)
        return -1;
    return left < 0 ? 0 : left > 1000000 ? 1000000 : (int)left;
}

static int watch(struct guard *guard)
{
    size_t n_left;

    while (!guard->over) {
        struct pollfd fds[4] = { { .fd = guard->signals, .events = POLLIN },
                                 { .fd = guard->agent_pidfd, .events = POLLIN },
                                 { .fd = guard->leaves, .events = POLLIN },
                                 { .fd = guard->lease.lease.timer, .events = POLLIN } };
        int n = poll(fds, guard->config->leased ? 4 : 3, wait_timeout(guard));

        if (n < 0 && errno != EINTR)
            break;
        /* first, because the guard itself may have been stopped for a while */
        guard_lease_look(&guard->lease);
        take_signal(guard);
        if (fds[1].revents != 0)
            look_at_agent(guard);
        look_at_leaving(guard);
        if (!guard->over && n == 0 && guard->asked_ms != 0 && left_ms(guard) <= 0) {
            relay(guard, SIGKILL);
            guard->asked_ms = 0;
            say("fsdprun: the agent (pid %d) did not stop in time and is killed\n", (int)guard->agent);
        }
    }
    n_left = descendants_end(guard->swept ? GUARD_SECOND_LOOK_MS : GUARD_CLEANUP_MS, guard->strangers,
                             guard->n_strangers);
    if (n_left > 0 && !guard->swept)
        say("fsdprun: processes of this run could not be killed and are left behind\n");
    if (n_left == 0 && guard->config->leased)
        guard->config->swept(guard->config->swept_arg, &guard->lease.lease);
    return guard->status;
}

static _Noreturn void be_agent(int (*inner)(void *, const struct guard_inside *), void *arg,
                               const struct guard_inside *inside, pid_t guard)
{
    /*
     * The agent has its own session. So it gets each signal of the terminal only once: relayed by the guard.
     */
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    /* A stopped agent could not act on the guard's end, so that end wakes it. */
    prctl(PR_SET_PDEATHSIG, SIGCONT);
    if (getppid() != guard)
        _exit(128 + SIGKILL);
    exit(inner(arg, inside));
}

/*
 * If a standard descriptor is closed, the next file to be opened would get its number, and workers would
 * write into that file.
 */
static void fill_standard_descriptors(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            /* gets the lowest free number, which is fd */
            (void)!open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
}

int guard_run(int (*inner)(void *arg, const struct guard_inside *inside), void *arg,
              const struct guard_config *config)
{
    struct guard guard = { .config = config, .status = FSDP_EXIT_BUG };
    struct os_baseline baseline;
    struct guard_inside inside = { .baseline = &baseline,
                                   .lease = config->leased ? &guard.lease.lease : NULL };
    struct fsdp_err err = { 0 };
    sigset_t set, before;
    const pid_t self = getpid();
    int leaves[2];

    os_baseline_capture(&baseline);
    fill_standard_descriptors();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGCHLD, SIG_DFL); /* with SIGCHLD ignored, the kernel would discard our children's statuses */
    signal(SIGPIPE, SIG_IGN); /* stderr may have no reader; descendants must be ended all the same */
    os_signals_to_take(
        &set, config->relayed | UINT64_C(1) << SIGTSTP | UINT64_C(1) << SIGCONT | UINT64_C(1) << SIGWINCH,
        &baseline);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, &before);
    guard.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    /* Opened before the fork, so that it cannot name another process. */
    inside.guard_pidfd = (int)syscall(SYS_pidfd_open, self, 0);
    if (guard.signals < 0 || inside.guard_pidfd < 0 || pipe2(leaves, O_CLOEXEC | O_NONBLOCK) < 0) {
        fprintf(stderr, "fsdprun: %s\n", strerror(errno));
        return FSDP_EXIT_IO;
    }
    if (config->leased && lease_create(&guard.lease.lease, &err) != FSDP_OK) {
        fprintf(stderr, "fsdprun: %s\n", err.message);
        return FSDP_EXIT_IO;
    }
    guard.leaves = leaves[0];
    inside.leaves_fd = leaves[1];
    for (int i = 1; i < 64; i++)
        if (sigismember(&set, i) == 1)
            sigdelset(&before, i); /* relayed signals must arrive, whatever the mask was at the start */
    inside.mask = before;
    guard.n_strangers = descendants_children(guard.strangers, MAX_STRANGERS);
    fflush(NULL);
    guard.agent = fork();
    if (guard.agent < 0) {
        fprintf(stderr, "fsdprun: fork: %s\n", strerror(errno));
        return FSDP_EXIT_IO;
    }
    if (guard.agent == 0) {
        close(guard.signals);
        close(guard.leaves);
        be_agent(inner, arg, &inside, self);
    }
    guard.lease.agent = guard.agent;
    close(inside.guard_pidfd);
    guard.agent_pidfd =
        /* the child is not reaped yet, so its pid cannot be another process's */
        (int)syscall(SYS_pidfd_open, guard.agent, 0);
    if (guard.agent_pidfd < 0) {
        kill(guard.agent, SIGKILL);
        fprintf(stderr, "fsdprun: pidfd_open: %s\n", strerror(errno));
        descendants_end(GUARD_CLEANUP_MS, guard.strangers, guard.n_strangers);
        return FSDP_EXIT_IO;
    }
    return watch(&guard);
}
