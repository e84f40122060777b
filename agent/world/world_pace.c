/*
 * Reports how the ranks of a job spend their time. The coordinator, which knows the ranks of all nodes, finds
 * the stragglers.
 */
#include <stdlib.h>

#include "agent/watch/pace.h"
#include "agent/world/world_impl.h"

/* Returns how long a window lasts; a test may set a shorter time. */
static int64_t window_ns(void)
{
    const char *ms = getenv("FSDP_TEST_PACE_MS");

    return INT64_C(1000000) * (ms != NULL ? atoi(ms) : PACE_WINDOW_MS);
}

static void look(struct world *world, struct worker *worker)
{
    const struct fsdp_progress *page = link_server_page(world->links, worker->local_rank);
    struct pace pace = { .rank = worker->rank };
    struct process_toll counted = { 0 };
    struct pace_toll toll;
    struct pace_mark now;
    enum pace_step step;

    if (!worker->live || page == NULL || !pace_read(&now, page))
        return;
    step = pace_look(&worker->window, &now);
    if (step == PACE_WAIT)
        return;
    process_toll_add(&counted, "/proc", worker->child.pid);
    toll = pace_toll_of(&counted);
    if (step == PACE_OVER && pace_sum(&pace, &worker->window, &now, &toll))
        world->reporter.pace(world->reporter.to, world->plan.generation, &pace);
    worker->window = (struct pace_window){ window_ns(), now, toll };
}

void world_look_at_pace(struct world *world)
{
    /* a single rank has no other to be compared with, and a program does not show its steps */
    if (world->config->job_json == NULL || world->plan.world_size < 2)
        return;
    for (int i = 0; i < world->config->n_workers && world->state == WS_RUNNING; i++)
        look(world, &world->workers[i]);
}
