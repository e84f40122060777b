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
#include <time.h>
#include <unistd.h>

#include <fsdp/link.h>

#include "agent/os/clock.h"
#include "agent/os/descendants.h"
#include "agent/os/sink.h"

/* What the agent may need beyond the grace: to reap, to report, to bring the last of the output out. */
enum {
    SLACK_MS = 15000,
    INTERRUPTS_THAT_KILL = 3,
    MAX_STRANGERS = 64,
    GUARD_SECOND_LOOK_MS = 250,
    LAST_WORD_MS = 1000,
};

/* What the agent was told by TSTP (Ctrl-Z) and CONT (fg), as far as it has not answered by a stop. */
enum suspension { NOT_TOLD, TOLD_TO_STOP, TOLD_TO_GO_ON };

struct guard {
    pid_t agent;
    int agent_pidfd, signals;
    int leaves; /* readable: the agent ends with this status, also if it cannot be reaped */
    enum suspension suspension;
    bool agent_stands; /* it is stopped, by itself or from outside */
    int n_interrupts;
    const struct guard_config *config;
    int64_t deadline_ms; /* 0: nothing is to end yet */
    bool over;
    bool swept; /* the agent ended by itself: it has ended what it could, and named what it could not */
    int status;
    /* Children that this process had before it was ours: `exec fsdprun > >(tee log)`. They are let be. */
    pid_t strangers[MAX_STRANGERS];
    size_t n_strangers;
};

/* A reader who takes nothing must not keep us. */
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

/* The same, and the agent learns who sent it to us (agent.c: is_copy), unless the system refuses that. */
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
 * Ctrl-Z: the agent is told, and stops itself once its workers are stopped; then the guard stops. Two other things can
 * happen:
 *   - The agent was stopped from outside (kill -STOP), without Ctrl-Z: that is not the guard's business. Only the
 *     agent gets the SIGCONT that ends such a stop, so a guard that stopped too would stay so for ever.
 *   - fg came before the agent had stopped, or before the guard knows that it has: the agent is woken again.
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
    } else if (!has_pending(SIGCONT)) { /* a stop would drop it, and last for ever */
        raise(SIGSTOP);
        /* Running again: the SIGCONT that woke us is in the signal descriptor, and will be relayed. */
    }
}

/* Has the agent ended, stopped or gone on? */
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
        return; /* TSTP goes on to the workers, and stops nothing here */
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
        if (guard->deadline_ms == 0)
            guard->deadline_ms = clock_now_ms() + guard->config->grace_ms + SLACK_MS;
    }
}

static int wait_timeout(const struct guard *guard)
{
    int64_t left;

    if (guard->deadline_ms == 0)
        return -1;
    left = guard->deadline_ms - clock_now_ms();
    return left < 0 ? 0 : left > 1000000 ? 1000000 : (int)left;
}

static int watch(struct guard *guard)
{
    while (!guard->over) {
        struct pollfd fds[3] = { { .fd = guard->signals, .events = POLLIN },
                                 { .fd = guard->agent_pidfd, .events = POLLIN },
                                 { .fd = guard->leaves, .events = POLLIN } };
        int n = poll(fds, 3, wait_timeout(guard));

        if (n < 0 && errno != EINTR)
            break;
        take_signal(guard);
        if (fds[1].revents != 0)
            look_at_agent(guard);
        look_at_leaving(guard);
        if (!guard->over && n == 0 && guard->deadline_ms != 0) {
            relay(guard, SIGKILL);
            guard->deadline_ms = 0;
            say("fsdprun: the agent (pid %d) did not stop in time and is killed\n", (int)guard->agent);
        }
    }
    if (descendants_end(guard->swept ? GUARD_SECOND_LOOK_MS : GUARD_CLEANUP_MS, guard->strangers,
                        guard->n_strangers) > 0 &&
        !guard->swept)
        say("fsdprun: processes of this run could not be killed and are left behind\n");
    return guard->status;
}

static void set_of_signals(sigset_t *set, uint64_t relayed, const struct os_baseline *baseline)
{
    relayed |= UINT64_C(1) << SIGTSTP | UINT64_C(1) << SIGCONT | UINT64_C(1) << SIGWINCH;
    sigemptyset(set);
    sigaddset(set, SIGCHLD);
    /* What was ignored when we were started stays so (nohup; a background job of a script). */
    for (int i = 1; i < 64; i++)
        if ((relayed >> i & 1) != 0 && sigismember(&baseline->ignored, i) != 1)
            sigaddset(set, i);
}

static _Noreturn void be_agent(int (*inner)(void *, const struct guard_inside *), void *arg,
                               const struct guard_inside *inside, pid_t guard)
{
    /* A session of its own: the terminal's signals reach the guard alone, and come relayed, once each. */
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    /* Stopped, after Ctrl-Z or from outside, it could not act on the guard's end: the end itself wakes it. */
    prctl(PR_SET_PDEATHSIG, SIGCONT);
    if (getppid() != guard)
        _exit(128 + SIGKILL);
    exit(inner(arg, inside));
}

/* A standard descriptor that is closed would become that of the next file: a worker would write into it. */
static void fill_standard_descriptors(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY); /* the lowest free number: this one */
}

int guard_run(int (*inner)(void *arg, const struct guard_inside *inside), void *arg,
              const struct guard_config *config)
{
    struct guard guard = { .config = config, .status = FSDP_EXIT_BUG };
    struct os_baseline baseline;
    struct guard_inside inside = { .baseline = &baseline };
    sigset_t set, before;
    const pid_t self = getpid();
    int leaves[2];

    os_baseline_capture(&baseline);
    fill_standard_descriptors();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGCHLD, SIG_DFL); /* ignored, it would take our children's statuses away */
    signal(SIGPIPE, SIG_IGN); /* stderr may have no reader; the run is swept all the same */
    set_of_signals(&set, config->relayed, &baseline);
    sigprocmask(SIG_BLOCK, &set, &before);
    guard.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    /* Opened before the fork, so that it can never name another process. */
    inside.guard_pidfd = (int)syscall(SYS_pidfd_open, self, 0);
    if (guard.signals < 0 || inside.guard_pidfd < 0 || pipe2(leaves, O_CLOEXEC | O_NONBLOCK) < 0) {
        fprintf(stderr, "fsdprun: %s\n", strerror(errno));
        return FSDP_EXIT_IO;
    }
    guard.leaves = leaves[0];
    inside.leaves_fd = leaves[1];
    for (int i = 1; i < 64; i++)
        if (sigismember(&set, i) == 1)
            sigdelset(&before, i); /* relayed, they must arrive, whatever the mask was at the start */
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
    close(inside.guard_pidfd);
    guard.agent_pidfd =
        (int)syscall(SYS_pidfd_open, guard.agent, 0); /* our child, not reaped: it is itself */
    if (guard.agent_pidfd < 0) {
        kill(guard.agent, SIGKILL);
        fprintf(stderr, "fsdprun: pidfd_open: %s\n", strerror(errno));
        descendants_end(GUARD_CLEANUP_MS, guard.strangers, guard.n_strangers);
        return FSDP_EXIT_IO;
    }
    return watch(&guard);
}
