#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "agent/os/deadlines.h"
#include "agent/os/descendants.h"
#include "agent/placement/gpu_watch.h"
#include "agent/record/error_reader.h"
#include "agent/world/world_impl.h"

enum { SWEEP_EVERY_MS = 10 };

static struct worker *worker_of(const struct world *world, pid_t pid)
{
    for (int i = 0; world->workers != NULL && i < world->config->n_workers; i++)
        if (world->workers[i].live && world->workers[i].child.pid == pid)
            return &world->workers[i];
    return NULL;
}

/* Forgets a process that an earlier sweep had given up, and that has ended after all. */
static void forget_left(struct world *world, pid_t pid)
{
    const int n_before = world->n_left;

    for (int i = 0; i < world->n_left; i++)
        if (world->left[i] == pid)
            world->left[i--] = world->left[--world->n_left];
    /* no one needs to be told once the world is over */
    if (n_before > 0 && world->n_left == 0 && world->state != WS_OVER)
        world->reporter.unkilled(world->reporter.to, 0);
}

/*
 * Is any descendant alive, except processes that are kept on purpose and those that an earlier sweep has
 * given up?
 */
static bool any_but_spared(const struct world *world)
{
    const pid_t *spared;
    const size_t n = world_spared(world, &spared);

    return n == 0 || descendants_living(NULL, 0, spared, n) > 0;
}

/* Signals every descendant except those that are kept on purpose. */
static void signal_rest(const struct world *world, int signal)
{
    descendants_signal(signal, world->spared, world_kept(world, world->spared));
}

/*
 * Reap orphans that became children of this process. Workers are not reaped here but through their pidfd.
 * Returns whether there is still a child to wait for.
 */
static bool reap_orphans(struct world *world)
{
    siginfo_t info;

    for (;;) {
        struct worker *worker;

        memset(&info, 0, sizeof info);
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0) {
            if (errno == EINTR)
                continue;
            return false;
        }
        if (info.si_pid == 0)
            return any_but_spared(world);
        worker = worker_of(world, info.si_pid);
        if (worker != NULL) {
            world_look_at_worker(world, worker);
        } else {
            forget_left(world, info.si_pid); /* its pid may be reused */
            world_standby_ended(world, info.si_pid);
            gpu_watch_reaped(world->gpu_watch, info.si_pid);
            waitid(P_PID, (id_t)info.si_pid, &info, WEXITED | WNOHANG);
        }
    }
}

void world_reap(struct world *world)
{
    bool any = reap_orphans(world);

    if (!any && (world->state == WS_DRAINING || world->state == WS_SWEEPING) && world->deadline_ns != 0)
        world_post(world, WE_SWEPT);
    world_proceed(world);
}

void world_end_all(struct world *world, int signal)
{
    for (int i = 0; world->workers != NULL && i < world->config->n_workers; i++)
        worker_end(&world->workers[i], world->services.os, signal);
}

/* Send KILL once to every worker and descendant. */
static void kill_all(struct world *world)
{
    world_end_all(world, SIGKILL);
    signal_rest(world, SIGKILL);
}

/* A process may have forked while it was being killed, so each pass kills again. */
static void on_sweep(uv_timer_t *timer)
{
    struct world *world = timer->data;

    signal_rest(world, SIGKILL);
    world_reap(world);
}

void world_kill(struct world *world)
{
    kill_all(world);
    world_set_deadline(world, KILL_MS);
    uv_timer_start(&world->sweep, on_sweep, SWEEP_EVERY_MS, SWEEP_EVERY_MS);
}

void world_sweep(struct world *world)
{
    world_kill(world);
    if (!reap_orphans(world) && world->n_live == 0)
        world_post(world, WE_SWEPT);
}

void world_drain(struct world *world)
{
    if (!reap_orphans(world)) {
        world_set_deadline(world, DRAIN_MS); /* the next state clears it */
        world_post(world, WE_SWEPT);
        return;
    }
    signal_rest(world, SIGTERM);
    world_set_deadline(world, world_grace_ms(world) < DRAIN_MS ? world_grace_ms(world) : DRAIN_MS);
}

/*
 * KILL does not end this process, because it sleeps inside the kernel. Reports where it sleeps, and remembers
 * that no end of a generation waits for it.
 */
static void leave_behind(struct world *world, pid_t pid, const struct worker *worker)
{
    char place[128], whom[64] = "a process that the workers left running";
    const char state = descendants_state(pid, place, sizeof place);
    const char letter[2] = { state, '\0' };

    if (worker != NULL)
        snprintf(whom, sizeof whom, "rank %d", worker->rank);
    console_say(world->services.console,
                "fsdprun: %s (pid %d) cannot be killed: state %c, waits in %s; it is left behind", whom,
                (int)pid, state, place);
    world_record(world, "left_behind",
                 (struct events_field[]){ EVENT_INT("rank", worker != NULL ? worker->rank : -1),
                                          EVENT_INT("pid", pid), EVENT_TEXT("state", letter),
                                          EVENT_TEXT("wchan", place), EVENT_END });
    if (world->n_left < WORLD_LEFT)
        world->left[world->n_left++] = pid;
}

static void leave_all_behind(struct world *world)
{
    const pid_t *spared;
    pid_t pids[WORLD_LEFT];
    size_t n;

    for (int i = 0; world->workers != NULL && i < world->config->n_workers; i++) {
        struct worker *worker = &world->workers[i];

        if (!worker->live)
            continue;
        leave_behind(world, worker->child.pid, worker);
        worker->live = false;
        world->n_live--;
        world_stop_watching(worker);
    }
    if (!reap_orphans(world))
        return;
    n = world_spared(world, &spared);
    n = descendants_living(pids, WORLD_LEFT, spared, n);
    for (size_t i = 0; i < n && i < WORLD_LEFT; i++)
        leave_behind(world, pids[i], NULL);
}

/* Report the processes that cannot be killed, and go on without them. */
void world_abandon(struct world *world)
{
    if (world->services.error_reader != NULL)
        error_reader_give_up(world->services.error_reader);
    leave_all_behind(world);
    if (world->n_left > 0)
        world->reporter.unkilled(world->reporter.to, world->n_left);
}

/* Returns the set of signals in a line of /proc/PID/status. */
static unsigned long long signal_set(const char *line)
{
    const char *colon = strchr(line, ':');

    return colon == NULL ? 0 : strtoull(colon + 1, NULL, 16);
}

/*
 * Does the process handle, block (sigwait, signalfd) or ignore this signal, so that the signal would not end
 * it?
 */
static bool withstands(pid_t pid, int signal)
{
    char path[64], line[256];
    unsigned long long set = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    file = fopen(path, "re");
    if (file == NULL)
        return false;
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "SigBlk:", 7) == 0 || strncmp(line, "SigIgn:", 7) == 0 ||
            strncmp(line, "SigCgt:", 7) == 0)
            set |= signal_set(line);
    fclose(file);
    return (set >> (signal - 1) & 1) != 0;
}

static bool ends_by_default(int signal)
{
    return signal != SIGCHLD && signal != SIGCONT && signal != SIGURG && signal != SIGWINCH;
}

void world_forward(struct world *world, int signal)
{
    const struct agent_os *os = world->services.os;
    char name[32];

    for (int i = 0; world->workers != NULL && i < world->config->n_workers; i++) {
        struct worker *worker = &world->workers[i];

        if (!worker->live)
            continue;
        /* A process blocks all signals before its exec. A signal that is pending then ends it later. */
        if (ends_by_default(signal) &&
            (!worker_executed(worker, os, world->config) || !withstands(worker->child.pid, signal)))
            console_say(world->services.console,
                        "fsdprun: rank %d (pid %d) does not handle %s, which would end it: not passed on",
                        worker->rank, (int)worker->child.pid, errors_signal_name(signal, name));
        else
            kill(worker->child.pid, signal);
    }
}
