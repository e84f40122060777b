#include <math.h>
#include <string.h>

#include "agent/world/world_impl.h"

static uint64_t read64(const _Atomic uint64_t *at)
{
    return atomic_load_explicit(at, memory_order_relaxed);
}

static double as_double(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof value);
    return bits == 0 ? (double)NAN : value; /* an untouched word */
}

/* Fill in `progress` from the progress pages. */
static void sum_progress(const struct world *world, struct agent_progress *progress)
{
    *progress = (struct agent_progress){ .generation = world->plan.generation,
                                         .n_live = world->n_live,
                                         .total_steps = world->config->total_steps,
                                         .loss = (double)NAN,
                                         .grad_norm = (double)NAN,
                                         .tokens_per_s = (double)NAN,
                                         .stopping = world->state != WS_RUNNING };
    for (int i = world->config->n_workers - 1; i >= 0 && world->links != NULL; i--) {
        const struct fsdp_progress *page = link_server_page(world->links, i);
        uint64_t memory;

        if (page == NULL || read64(&page->beat_ns) == 0)
            continue;
        memory = read64(&page->memory_bytes);
        if (memory > progress->memory_bytes)
            progress->memory_bytes = memory;
        if (i > 0)
            continue; /* all ranks report the same numbers: the line shows the first rank's */
        progress->step = read64(&page->step);
        if (read64(&page->total_steps) != 0)
            progress->total_steps = read64(&page->total_steps);
        progress->tokens = read64(&page->tokens);
        progress->loss = as_double(read64(&page->loss_bits));
        progress->grad_norm = as_double(read64(&page->grad_norm_bits));
        progress->tokens_per_s = as_double(read64(&page->tokens_per_s_bits));
        progress->phase = (enum fsdp_phase)atomic_load_explicit(&page->phase, memory_order_relaxed);
    }
}

void world_view(const struct world *world, struct world_view *view)
{
    const struct fsdp_progress *page = world_page(world, 0);

    *view = (struct world_view){ .formed = world->workers != NULL,
                                 .started = world->started,
                                 .by_signal = world->stop_signal != 0,
                                 .plan = &world->plan,
                                 .has_progress = page != NULL && read64(&page->beat_ns) != 0 };
    if (world->state == WS_RUNNING || world->state == WS_BLAMING || world->state == WS_DRAINING)
        view->state = WV_UP;
    else if (world->state == WS_LEAVING)
        view->state = WV_LEAVING;
    else if (world->state != WS_DOWN && world->state != WS_OVER)
        view->state = WV_ENDING;
    sum_progress(world, &view->progress);
}

void world_show_worker(const struct world *world, int i, int *rank, pid_t *pid, int *phase, int64_t *step)
{
    const struct worker *worker = &world->workers[i];
    struct death place = { .phase = -1, .step = -1 };

    if (worker->live && world->links != NULL)
        worker_read_place(&place, link_server_page(world->links, i));
    *rank = worker->rank;
    *pid = worker->live ? worker->child.pid : 0;
    *phase = place.phase;
    *step = place.step;
}

const struct fsdp_progress *world_page(const struct world *world, int i)
{
    return world->links == NULL ? NULL : link_server_page(world->links, i);
}

static void draw_progress(struct world *world)
{
    const struct agent_config *config = world->config;
    struct agent_progress progress;
    char line[512];
    int64_t now = world_now_ns(world);

    if (config->job_json == NULL)
        return;
    sum_progress(world, &progress);
    if (config->observer.progress != NULL)
        config->observer.progress(config->observer.arg, &progress);
    if (!config->output.bar || !console_is_tty(world->services.console))
        return;
    progress_note(&world->clock, &progress, now);
    console_status(world->services.console,
                   progress_line(line, sizeof line, console_width(world->services.console),
                                 config->output.color, &progress,
                                 progress_left_s(&world->clock, &progress, now)));
}

void world_look_soon(struct world *world, uint64_t ms)
{
    uv_timer_start(&world->look, world_watch, ms, WORLD_LOOK_EVERY_MS);
}

void world_watch(uv_timer_t *timer)
{
    struct world *world = timer->data;

    world_gpus_look(world);
    if (world->state == WS_DOWN || world->workers == NULL || world->links == NULL)
        return;
    world_gpus_show(world); /* now, because the worker may just have named its GPU */
    world_look_at_start(world);
    world_look_for_hang(world);
    world_look_for_stuck(world);
    world_look_at_pace(world);
    draw_progress(world);
    world_standby_look(world);
    world_proceed(world);
}
