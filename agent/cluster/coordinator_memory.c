/*
 * Chooses the memory from which the next generation resumes (agent/snapshot/restore.h). The step is chosen
 * before the generation forms. When the nodes have their seats, each node learns whether it has that step, or
 * which node it must fetch it from.
 */
#include <stdlib.h>

#include "agent/cluster/coordinator_impl.h"
#include "agent/snapshot/restore.h"

/*
 * Lists what the nodes have in memory, and their seats. The caller frees the list; NULL: there is no memory.
 */
static struct restore_node *list_nodes(const struct coordinator *coordinator)
{
    const int n = coordinator->roster.capacity;
    struct restore_node *nodes = calloc((size_t)n, sizeof *nodes);

    for (int i = 0; nodes != NULL && i < n; i++) {
        const struct roster_node *at = &coordinator->roster.nodes[i];

        nodes[i].seat = coordinator_in_play(coordinator, i) ? at->first_rank : -1;
        if (at->present)
            nodes[i].held = coordinator->nodes[i].held;
    }
    return nodes;
}

/*
 * Returns the number of ranks in the generation that is over. A coordinator that took over learns it from the
 * nodes.
 */
static int world_of(const struct coordinator *coordinator, const struct restore_node *nodes)
{
    int world_size = coordinator->world_size;

    for (int i = 0; !coordinator->has_formed && i < coordinator->roster.capacity; i++)
        if (nodes[i].held.world_size > world_size)
            world_size = nodes[i].held.world_size;
    return world_size;
}

void coordinator_find_memory_step(struct coordinator *coordinator)
{
    const int n_ranks = coordinator->config->n_workers, capacity = coordinator->roster.capacity;
    struct restore_node *nodes = list_nodes(coordinator);
    bool *covered = calloc((size_t)capacity, sizeof *covered);
    int n_seats;

    coordinator->memory_step = (struct snapshot_held){ .step = -1 };
    coordinator->memory_world = 0;
    if (nodes != NULL && covered != NULL) {
        coordinator->memory_world = world_of(coordinator, nodes);
        n_seats = coordinator->memory_world / n_ranks;
        if (n_seats <= capacity) /* else it is not of this run */
            coordinator->memory_step = restore_choose(nodes, capacity, n_ranks, n_seats, covered);
    }
    free(covered);
    free(nodes);
}

static bool find_sources(struct coordinator *coordinator, const struct restore_node *nodes, int *numbers,
                         struct world_plan *plan)
{
    const struct snapshot_held step = { plan->memory_step, (uint32_t)plan->memory_generation };
    const int capacity = coordinator->roster.capacity;
    int *sources = numbers, *at_seat = numbers + capacity;

    if (!restore_sources(nodes, capacity, coordinator->config->n_workers, coordinator->roster.n_nodes, step,
                         at_seat, sources))
        return false;
    for (int i = 0; i < capacity; i++) {
        if (sources[i] < 0 || (sources[i] == i && !restore_swaps(&nodes[i], step)))
            continue;
        coordinator->nodes[i].source = sources[i];
        plan->memory_is_peer = true;
    }
    return true;
}

void coordinator_find_memory(struct coordinator *coordinator, struct world_plan *plan)
{
    const int capacity = coordinator->roster.capacity;
    const bool same = coordinator->roster.world_size == coordinator->memory_world;
    struct restore_node *nodes = same && coordinator->memory_step.step >= 0 ? list_nodes(coordinator) : NULL;
    int *numbers = calloc(2 * (size_t)capacity, sizeof *numbers); /* no more nodes than that have seats */

    plan->memory_step = coordinator->memory_step.step;
    plan->memory_generation = (int)coordinator->memory_step.generation;
    plan->memory_from = -1;
    for (int i = 0; i < capacity; i++)
        coordinator->nodes[i].source = -1;
    if (nodes == NULL || numbers == NULL || !find_sources(coordinator, nodes, numbers, plan)) {
        plan->memory_step = -1;
        plan->memory_generation = 0;
    }
    free(numbers);
    free(nodes);
}
