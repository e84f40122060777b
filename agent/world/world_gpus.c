/*
 * The GPUs of the node while a generation lives. The world watches them and prints warnings. It also waits
 * for their memory to be free before the next generation starts.
 */
#include "agent/placement/gpu_watch.h"
#include "agent/world/world_impl.h"

/*
 * The driver frees a dead process's memory on a GPU within moments, unless the driver is slow. The next
 * generation begins when every GPU has at most `held_bytes` more in use than the least seen in this run.
 * After HELD_AT_MOST_MS it begins anyway, because other programs may use the GPUs too.
 */
static const int64_t held_bytes = 512ll << 20;
enum { HELD_AT_MOST_MS = 10000, NS_PER_MS = 1000000 };

static void on_warned(void *arg, enum gpu_warning warning, const struct gpu_sample *sample, const char *words)
{
    struct world *world = arg;

    console_say(world->services.console, "fsdprun: %s", words);
    world_record(world, "gpu",
                 (struct events_field[]){ EVENT_TEXT("warning", gpu_warning_name(warning)),
                                          EVENT_INT("gpu", sample->index), EVENT_TEXT("pci", sample->pci),
                                          EVENT_INT("xid", sample->xid), EVENT_TEXT("message", words),
                                          EVENT_END });
}

void world_gpus_show(const struct world *world)
{
    for (int i = 0; i < world->config->n_workers && world->gpu_watch != NULL && world->links != NULL; i++) {
        struct fsdp_progress *page = link_server_page(world->links, i);

        if (page != NULL)
            gpu_health_show(&world->gpu_health, page);
    }
}

static void on_sampled(void *arg)
{
    world_gpus_show(arg);
    world_life_gpus(arg);
    world_gpus_look(arg);
}

static void stop_watch(struct world *world)
{
    gpu_watch_stop(world->gpu_watch);
    world->gpu_watch = NULL;
}

void world_gpus_begin(struct world *world)
{
    const struct gpu_watch_listener listener = { .arg = world, .warned = on_warned, .sampled = on_sampled };

    world_gpus_let_go(world);
    if (world->gpu_watch != NULL && gpu_watch_ended(world->gpu_watch))
        stop_watch(world);
    if (world->gpu_watch != NULL)
        gpu_watch_ask(world->gpu_watch);
    else if (gpu_watch_possible())
        world->gpu_watch = gpu_watch_start(world->services.loop, &world->gpu_health, &listener);
    if (world->gpu_watch != NULL && world->plan.generation > 0)
        world->gpu_deadline_ns = world_now_ns(world) + (int64_t)HELD_AT_MOST_MS * NS_PER_MS;
}

bool world_gpus_wait(const struct world *world)
{
    return world->gpu_deadline_ns != 0;
}

void world_gpus_let_go(struct world *world)
{
    world->gpu_deadline_ns = 0;
}

void world_gpus_look(struct world *world)
{
    const bool over = world_now_ns(world) >= world->gpu_deadline_ns;
    bool answered;

    if (!world_gpus_wait(world))
        return;
    answered = gpu_watch_answered(world->gpu_watch);
    if (!over && !gpu_watch_ended(world->gpu_watch) &&
        (!answered || gpu_health_memory_held(&world->gpu_health, held_bytes)))
        return;
    if (over && answered && !gpu_watch_ended(world->gpu_watch))
        console_say(world->services.console,
                    "fsdprun: the memory of a GPU is still in use after %d s; starting all the same",
                    HELD_AT_MOST_MS / 1000);
    world_gpus_let_go(world);
    world_proceed(world);
}

/* Write one event for each GPU: how much it was used since the run began. */
static void record_usage(struct world *world)
{
    for (int i = 0; i < world->gpu_health.n; i++) {
        const struct gpu_state *gpu = &world->gpu_health.gpus[i];

        if (!gpu->seen)
            continue;
        world_record(
            world, "gpu_usage",
            (struct events_field[]){
                EVENT_INT("gpu", i), EVENT_TEXT("pci", gpu->last.pci),
                EVENT_INT("memory_most_bytes", gpu->most_used_bytes),
                EVENT_INT("memory_bytes", gpu->last.memory_total_bytes),
                EVENT_REAL("utilisation_percent", (double)gpu->utilisation_sum / (double)gpu->n_samples),
                EVENT_INT("temperature_c", gpu->last.temperature_c),
                EVENT_REAL("throttled", (double)gpu->n_throttled / (double)gpu->n_samples),
                EVENT_INT("ecc_uncorrected", gpu->last.ecc_uncorrected), EVENT_INT("xids", gpu->n_xids),
                EVENT_END });
    }
}

void world_gpus_end(struct world *world)
{
    if (world->gpu_watch == NULL)
        return;
    stop_watch(world);
    world_gpus_let_go(world);
    record_usage(world);
}
