#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/placement/gpu_watch.h"
#include "agent/world/world_impl.h"

/*
 * Returns whether every worker of this node trains. Only then are workers on standby executed, because that
 * would take CPU time from the start of the others.
 */
static bool all_train(const struct world *world)
{
    for (int i = 0; i < world->config->n_workers; i++) {
        const struct fsdp_progress *page = link_server_page(world->links, i);
        const uint32_t pass =
            page == NULL ? FSDP_PHASE_START : atomic_load_explicit(&page->pass, memory_order_relaxed);

        if (!world->workers[i].live || pass < FSDP_PHASE_DATA || pass > FSDP_PHASE_SAVE)
            return false;
    }
    return true;
}

void world_standby_look(struct world *world)
{
    struct standby_process process;
    struct death death;
    int local_rank;

    if (world->standby == NULL || world->state != WS_RUNNING || !all_train(world))
        return;
    local_rank = standby_next(world->standby, world->plan.generation);
    if (local_rank < 0)
        return;
    if (world_start_standby(world, local_rank, &process, &death))
        standby_put(world->standby, local_rank, &process);
    else
        world_say(world, death.words);
}

void world_standby_ended(struct world *world, pid_t pid)
{
    struct worker worker = { .exec_fd = standby_ended(world->standby, pid) };

    (void)worker_executed(&worker, world->services.os, world->config);
    if (worker.refused)
        world_say(world, worker.death.words);
}

size_t world_kept(const struct world *world, pid_t *pids)
{
    size_t n = standby_pids(world->standby, pids);

    if (world->gpu_watch != NULL && gpu_watch_pid(world->gpu_watch) != 0)
        pids[n++] = gpu_watch_pid(world->gpu_watch);
    return n;
}

size_t world_spared(const struct world *world, const pid_t **pids)
{
    const size_t n = (size_t)world->n_left;

    *pids = world->spared;
    memcpy(world->spared, world->left, n * sizeof *world->spared);
    return n + world_kept(world, world->spared + n);
}
