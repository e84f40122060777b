/*
 * What the ranks of a program show (agent/watch/hang_life.h): heartbeats, output, the work of their processes
 * and of the GPUs. Nothing here exists without --hang-timeout.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/os/descendants.h"
#include "agent/world/world_impl.h"

enum { HEART_BYTES = 4096, HEART_READS = 16 };

bool world_life_has(const struct world *world, const struct worker *worker)
{
    const struct fsdp_progress *page = link_server_page(world->links, worker->local_rank);

    return world->life.limit_ns > 0 && (page == NULL || worker->seen_beat == 0 ||
                                        atomic_load_explicit(&page->step, memory_order_relaxed) == 0);
}

/* Returns whether workers print some bytes that do not pass through this process. */
static bool prints_elsewhere(const struct world *world)
{
    const struct agent_config *config = world->config;

    if (world->services.output == NULL || config->output.direct)
        return true;
    for (int i = 0; i < config->n_workers; i++)
        if (!output_joins(world->services.output) &&
            worker_output_mode(config, i, AGENT_STDOUT) == OUTPUT_INHERIT)
            return true;
    return false;
}

void world_life_begin(struct world *world)
{
    const struct agent_config *config = world->config;

    world->life = (struct hang_life){ .shown_ns = world_now_ns(world) };
    if (!config->watched || config->job_json != NULL)
        return;
    world->life.limit_ns = config->hang_timeout_ms * 1000000;
    world->prints_elsewhere = prints_elsewhere(world);
    if (world->services.output != NULL)
        world->n_output = output_read(world->services.output);
}

void world_life_shift(struct world *world, int64_t ns)
{
    world->life.shown_ns += ns;
    for (int i = 0; world->workers != NULL && i < world->config->n_workers; i++)
        /*
         * the CPU time that was used would be compared with too long a time, so the next look starts afresh
         */
        world->workers[i].sample.taken_ns = 0;
}

static void take_sign(struct worker *worker, int64_t at_ns)
{
    if (at_ns <= worker->changed_ns)
        return;
    worker->changed_ns = at_ns;
    worker->patience = (struct hang_patience){ 0 };
}

void world_life_shown(struct world *world, int64_t ago_ns)
{
    const int64_t at_ns = world_now_ns(world) - ago_ns;

    if (world->life.limit_ns == 0 || at_ns <= world->life.shown_ns)
        return;
    world->life.shown = true;
    world->life.shown_ns = at_ns;
    for (int i = 0; i < world->config->n_workers; i++)
        if (!world->workers[i].heart.used)
            take_sign(&world->workers[i], at_ns);
}

static void take_weak(const struct world *world, struct worker *worker)
{
    if (!worker->heart.used && world->life.limit_ns > 0 &&
        hang_life_takes_weak(&world->life, world_now_ns(world)))
        take_sign(worker, world_now_ns(world));
}

void world_life_gpus(struct world *world)
{
    bool busy = false;

    for (int i = 0; i < world->gpu_health.n; i++) {
        const struct gpu_state *gpu = &world->gpu_health.gpus[i];

        /* A collective that waits keeps its GPU busy, too, but uses no memory. So both must be seen. */
        busy = busy || (gpu->seen && gpu->last.utilisation_percent >= 5 && gpu->last.memory_percent >= 1);
    }
    for (int i = 0; busy && world->workers != NULL && i < world->config->n_workers; i++)
        take_weak(world, &world->workers[i]);
}

static bool read_heart(struct worker *worker)
{
    char bytes[HEART_BYTES];
    bool beats = false;
    ssize_t n;

    for (int i = 0; i < HEART_READS && worker->heart_fd > 0; i++) {
        n = read(worker->heart_fd, bytes, sizeof bytes);
        if (n <= 0)
            break;
        heartbeat_take(&worker->heart, bytes, (size_t)n);
        beats = true;
    }
    return beats;
}

/* Adds up what the processes of each worker have used. */
static void add_usages(const struct world *world, struct process_usage *usages)
{
    pid_t pids[WORLD_PROCESSES];

    for (int i = 0; i < world->config->n_workers; i++) {
        const struct worker *worker = &world->workers[i];
        size_t n = worker->live ? descendants_living_below(worker->child.pid, pids, WORLD_PROCESSES) : 0;

        for (size_t j = 0; j < n; j++)
            process_usage_add(&usages[i], "/proc", pids[j]);
    }
}

static void take_samples(struct world *world)
{
    const int64_t now = world_now_ns(world);
    struct process_usage *usages;
    bool wanted = false, printed = false;

    for (int i = 0; i < world->config->n_workers; i++)
        wanted = wanted || hang_life_wants_sample(&world->life, &world->workers[i].sample, now);
    usages = wanted ? calloc((size_t)world->config->n_workers, sizeof *usages) : NULL;
    if (usages == NULL)
        return;
    add_usages(world, usages);
    for (int i = 0; i < world->config->n_workers; i++) {
        struct worker *worker = &world->workers[i];
        const uint64_t written_bytes = worker->sample.usage.written_bytes;

        if (!worker->live || !hang_life_wants_sample(&world->life, &worker->sample, now))
            continue;
        printed = printed || usages[i].written_bytes > written_bytes;
        if (hang_life_works(&worker->sample, now, &usages[i]))
            take_weak(world, worker);
    }
    free(usages);
    if (printed && world->prints_elsewhere)
        world_life_shown(world, 0);
}

void world_life_look(struct world *world)
{
    bool shown = false;

    if (world->life.limit_ns == 0)
        return;
    for (int i = 0; i < world->config->n_workers; i++) {
        if (!read_heart(&world->workers[i]))
            continue;
        shown = true;
        take_sign(&world->workers[i], world_now_ns(world));
    }
    if (world->services.output != NULL && output_read(world->services.output) != world->n_output) {
        world->n_output = output_read(world->services.output);
        shown = true;
    }
    if (shown)
        world_life_shown(world, 0);
    take_samples(world);
}
