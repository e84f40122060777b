#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "agent/hang.h"
#include "agent/world_impl.h"

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

void world_progress(const struct world *world, struct agent_progress *progress)
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
            continue; /* all ranks say the same; the first one is shown */
        progress->step = read64(&page->step);
        if (read64(&page->total_steps) != 0)
            progress->total_steps = read64(&page->total_steps);
        progress->loss = as_double(read64(&page->loss_bits));
        progress->grad_norm = as_double(read64(&page->grad_norm_bits));
        progress->tokens_per_s = as_double(read64(&page->tokens_per_s_bits));
        progress->phase = (enum fsdp_phase)atomic_load_explicit(&page->phase, memory_order_relaxed);
    }
}

/* Every rank stands still; who holds the others up? (agent/hang.h) */
static struct worker *find_culprit(const struct world *world)
{
    struct worker *best = NULL;
    struct hang_rank best_rank = { 0 };

    for (int i = 0; i < world->config->n_workers; i++) {
        struct worker *worker = &world->workers[i];
        const struct fsdp_progress *page = link_server_page(world->links, i);
        struct hang_rank rank;

        if (!worker->live || page == NULL)
            continue;
        rank = (struct hang_rank){ .n_collectives = read64(&page->collective_seq),
                                   .waits = atomic_load_explicit(&page->phase, memory_order_relaxed) ==
                                            FSDP_PHASE_COLLECTIVE,
                                   .still_since_ns = worker->changed_ns };
        if (best == NULL || hang_is_blamed_before(&rank, &best_rank)) {
            best = worker;
            best_rank = rank;
        }
    }
    return best;
}

static void report_hang(struct world *world, struct worker *worker)
{
    const struct fsdp_progress *page = link_server_page(world->links, worker->local_rank);
    struct death hang = worker->death;

    hang.kind = DEATH_HANG;
    hang.code = SIGKILL;
    hang.when_ns = world_now_ns(world);
    hang.step = (int64_t)read64(&page->step);
    hang.phase = (int)atomic_load_explicit(&page->phase, memory_order_relaxed);
    snprintf(hang.words, sizeof hang.words, "no progress for %lld s",
             (long long)(world->config->hang_timeout_ms / 1000));
    world->listener.exited(world->listener.arg, world->plan.generation, &hang, NULL);
    world_post(world, WE_FAILED);
}

/* The two signals of a hang: a rank that has made a step, and then neither beat nor exit for too long. */
static void look_for_hang(struct world *world)
{
    const int64_t now = world_now_ns(world);
    bool hangs = false;

    if (world->config->hang_timeout_ms <= 0 || (world->state != WS_RUNNING && world->state != WS_LEAVING))
        return;
    for (int i = 0; i < world->config->n_workers; i++) {
        struct worker *worker = &world->workers[i];
        const struct fsdp_progress *page = link_server_page(world->links, i);
        uint64_t beat;

        if (!worker->live || page == NULL)
            continue;
        beat = read64(&page->beat_ns);
        if (beat != worker->seen_beat) {
            worker->seen_beat = beat;
            worker->changed_ns = now;
        } else if (beat != 0 && read64(&page->step) > 0 &&
                   now - worker->changed_ns > world->config->hang_timeout_ms * 1000000) {
            hangs = true;
        }
    }
    if (hangs)
        report_hang(world, find_culprit(world));
}

static void draw_progress(struct world *world)
{
    const struct agent_config *config = world->config;
    struct agent_progress progress;
    char line[512];
    int64_t now = world_now_ns(world);

    if (config->job_json == NULL)
        return;
    world_progress(world, &progress);
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

void world_watch(uv_timer_t *timer)
{
    struct world *world = timer->data;

    world_gpus_look(world);
    if (world->state == WS_DOWN || world->workers == NULL || world->links == NULL)
        return;
    world_gpus_show(world); /* to one that has just named its own */
    look_for_hang(world);
    draw_progress(world);
    world_proceed(world);
}
