#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/os/descendants.h"
#include "agent/world/world_impl.h"

enum {
    DRAIN_MS =
        1000, /* for what a finished worker left running, between TERM and KILL: the grace, where it is less */
    KILL_MS = 5000, /* for what was sent KILL; then it is left behind */
    SWEEP_EVERY_MS = 10,
};

static struct worker *worker_of(const struct world *world, pid_t pid)
{
    for (int i = 0; world->workers != NULL && i < world->config->n_workers; i++)
        if (world->workers[i].live && world->workers[i].child.pid == pid)
            return &world->workers[i];
    return NULL;
}

static void forget_left(struct world *world, pid_t pid)
{
    for (int i = 0; i < world->n_left; i++)
        if (world->left[i] == pid)
            world->left[i--] = world->left[--world->n_left];
}

/* Is there anything below us but what an earlier sweep had to leave behind? */
static bool any_but_left(const struct world *world)
{
    return world->n_left == 0 || descendants_living(NULL, 0, world->left, (size_t)world->n_left) > 0;
}

/* Reap orphans that came to us; true while there is any child to wait for. Workers are left to their pidfd. */
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
            return any_but_left(world);
        worker = worker_of(world, info.si_pid);
        if (worker != NULL) {
            world_look_at_worker(world, worker);
        } else {
            forget_left(world, info.si_pid); /* its number may be another's next */
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

void world_kill_all(struct world *world)
{
    world_end_all(world, SIGKILL);
    descendants_signal(SIGKILL, NULL, 0);
}

/* What forks while it is being killed needs another pass. */
static void on_sweep(uv_timer_t *timer)
{
    struct world *world = timer->data;

    descendants_signal(SIGKILL, NULL, 0);
    world_reap(world);
}

void world_kill(struct world *world)
{
    world_kill_all(world);
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
        world_set_deadline(world, DRAIN_MS); /* what follows clears it */
        world_post(world, WE_SWEPT);
        return;
    }
    descendants_signal(SIGTERM, NULL, 0);
    world_set_deadline(world, world_grace_ms(world) < DRAIN_MS ? world_grace_ms(world) : DRAIN_MS);
}

/* One that KILL does not reach, because it sleeps inside the kernel: say where, and remember not to wait for it. */
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
    world->listener.record(world->listener.arg, world->plan.generation, "left_behind",
                           (struct events_field[]){ EVENT_INT("rank", worker != NULL ? worker->rank : -1),
                                                    EVENT_INT("pid", pid), EVENT_TEXT("state", letter),
                                                    EVENT_TEXT("wchan", place), EVENT_END });
    if (world->n_left < WORLD_LEFT)
        world->left[world->n_left++] = pid;
}

/* Name those that cannot be killed, and go on without them. */
void world_abandon(struct world *world)
{
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
    n = descendants_living(pids, WORLD_LEFT, world->left, (size_t)world->n_left);
    for (size_t i = 0; i < n && i < WORLD_LEFT; i++)
        leave_behind(world, pids[i], NULL);
}

/* One line of /proc/PID/status as a set of signals. */
static unsigned long long signal_set(const char *line)
{
    const char *colon = strchr(line, ':');

    return colon == NULL ? 0 : strtoull(colon + 1, NULL, 16);
}

/* Does the process handle, block (sigwait, signalfd) or ignore this signal, so that it is no way to end it? */
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
    char name[32];

    for (int i = 0; world->workers != NULL && i < world->config->n_workers; i++) {
        struct worker *worker = &world->workers[i];

        if (!worker->live)
            continue;
        if (ends_by_default(signal) && !withstands(worker->child.pid, signal))
            console_say(world->services.console,
                        "fsdprun: rank %d (pid %d) does not handle %s, which would end it: not passed on",
                        worker->rank, (int)worker->child.pid, errors_signal_name(signal, name));
        else
            kill(worker->child.pid, signal);
    }
}
