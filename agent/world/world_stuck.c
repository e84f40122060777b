/*
 * Workers that sleep in the kernel, where no signal reaches them (state D). If every look finds a worker, or
 * one process below it, in that state for TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT seconds, the run ends.
 * PyTorch's agent looks at the worker alone, which may be a shell that waits for its Python. The run ends
 * even if restarts are left. The process holds a GPU or a file system that a new worker on this host would
 * need.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/os/descendants.h"
#include "agent/world/world_impl.h"

/* Read the variable as PyTorch does: a text that is not a number above 0 means no limit. */
int64_t world_stuck_limit_ns(void)
{
    static const double most_s = 1e9; /* a longer limit counts as none */
    const char *text = getenv("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT");
    char *end;
    double limit_s;

    if (text == NULL || *text == '\0')
        return 0;
    limit_s = strtod(text, &end);
    end += strspn(end, " \t\n");
    return *end != '\0' || !(limit_s > 0) || limit_s > most_s ? 0 : (int64_t)(limit_s * 1e9);
}

/*
 * Returns the worker's process that was asleep at the last look, if it still is; otherwise the first one that
 * is; 0: none.
 */
static pid_t find_asleep(const struct worker *worker, char *place, size_t size)
{
    pid_t pids[WORLD_PROCESSES];
    size_t n;

    if (worker->stuck_pid != 0 && descendants_state(worker->stuck_pid, place, size) == 'D')
        return worker->stuck_pid;
    n = descendants_living_below(worker->child.pid, pids, WORLD_PROCESSES);
    for (size_t i = 0; i < n; i++)
        if (descendants_state(pids[i], place, size) == 'D')
            return pids[i];
    return 0;
}

static void report_stuck(struct world *world, const struct worker *worker, const char *place)
{
    struct death death = worker->death;

    death.kind = DEATH_STUCK;
    death.code = SIGKILL;
    death.when_ns = world_now_ns(world);
    snprintf(death.words, sizeof death.words,
             "uninterruptible sleep (state D) for %.1f s, waits in %.100s; a restart would not help",
             (double)(death.when_ns - worker->stuck_since_ns) / 1e9, place);
    world_report(world, &death, NULL);
    world_post(world, WE_FAILED);
}

void world_look_for_stuck(struct world *world)
{
    const int64_t now = world_now_ns(world);
    char place[128];

    if (world->stuck_limit_ns == 0 || (world->state != WS_RUNNING && world->state != WS_LEAVING))
        return;
    for (int i = 0; i < world->config->n_workers; i++) {
        struct worker *worker = &world->workers[i];
        const pid_t pid = worker->live ? find_asleep(worker, place, sizeof place) : 0;

        if (pid != worker->stuck_pid || worker->stuck_since_ns == 0) {
            worker->stuck_pid = pid;
            worker->stuck_since_ns = now;
        } else if (pid != 0 && now - worker->stuck_since_ns >= world->stuck_limit_ns) {
            report_stuck(world, worker, place);
            return;
        }
    }
}
