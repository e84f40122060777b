#include <stdio.h>

#include "agent/os/descendants.h"
#include "agent/world/world_impl.h"

/* Returns the worker that is `pid` or an ancestor of it; NULL: none is. */
static struct worker *worker_above(const struct world *world, pid_t pid)
{
    const pid_t top = descendants_top(pid);

    for (int i = 0; world->workers != NULL && i < world->config->n_workers; i++)
        if (world->workers[i].live && world->workers[i].child.pid == top)
            return &world->workers[i];
    return NULL;
}

/* If the timer's signal ends the worker, world_explain() reports the timer as the reason of the death. */
static void on_expired(void *arg, const struct timer_request *timer)
{
    struct world *world = arg;
    struct worker *worker = worker_above(world, timer->pid);
    char name[32], whom[64] = "a process of the workers";

    if (worker != NULL)
        snprintf(whom, sizeof whom, "rank %d", worker->rank);
    if (worker != NULL && timer->signal > 0) {
        worker->timer_signal = timer->signal;
        worker->timer_ns = world_now_ns(world);
        if (timer->pid == worker->child.pid)
            snprintf(worker->timer, sizeof worker->timer, "timer %.100s expired", timer->scope);
        else
            snprintf(worker->timer, sizeof worker->timer, "timer %.100s of its process %d expired",
                     timer->scope, (int)timer->pid);
    }
    console_say(world->services.console, "fsdprun: timer %s of %s (pid %d) expired: %s", timer->scope, whom,
                (int)timer->pid,
                timer->signal > 0 ? errors_signal_name(timer->signal, name) : "it asks for no signal");
    world_record(world, "timer_expired",
                 (struct events_field[]){ EVENT_INT("rank", worker != NULL ? worker->rank : -1),
                                          EVENT_INT("pid", timer->pid), EVENT_TEXT("scope", timer->scope),
                                          EVENT_INT("signal", timer->signal), EVENT_END });
}

static void on_note(void *arg, const char *words)
{
    world_say(arg, words);
}

enum fsdp_status world_make_timers(struct world *world, struct fsdp_err *err)
{
    const struct timer_handlers handlers = { .arg = world, .expired = on_expired, .note = on_note };
    char path[RUNDIR_PATH_BYTES];

    if (!timer_pipe_wanted(path))
        return FSDP_OK;
    return timer_pipe_create(&world->timers, world->services.loop, path, NULL, &handlers, err);
}
