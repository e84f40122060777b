#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "agent/world/hang.h"
#include "agent/world/world_impl.h"

/* How much later a rank is reported that only waits, in a world of several nodes. */
static const int64_t WAITING_NS = 2000000000;

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

/* A worker of a job shows its progress from its start on. A program that uses our library may do other work first. */
static bool is_watched(const struct world *world, const struct fsdp_progress *page)
{
    return world->config->job_json != NULL || (read64(&page->beat_ns) != 0 && read64(&page->step) > 0);
}

static struct hang_rank read_rank(const struct worker *worker, const struct fsdp_progress *page)
{
    const uint32_t phase = atomic_load_explicit(&page->phase, memory_order_relaxed);

    return (struct hang_rank){ .n_collectives = read64(&page->collective_seq),
                               .waits = phase == FSDP_PHASE_COLLECTIVE || phase == FSDP_PHASE_WAIT,
                               .still_since_ns = worker->changed_ns };
}

/*
 * The rank that holds the others up (agent/world/hang.h), once it has shown no sign of life for the time allowed; NULL: all is
 * well. A rank that waits is never reported while another one of this node goes on, and a little later where a rank
 * of another node may be the one it waits for: that node reports first.
 */
static struct worker *find_culprit(const struct world *world)
{
    const int64_t limit_ns = world->config->hang_timeout_ms * 1000000, now = world_now_ns(world);
    struct hang_rank best_rank = { 0 };
    struct worker *best = NULL;
    bool all_wait = true, others_go_on = false;

    for (int i = 0; i < world->config->n_workers; i++) {
        struct worker *worker = &world->workers[i];
        const struct fsdp_progress *page = link_server_page(world->links, i);
        struct hang_rank rank;

        if (!worker->live || page == NULL || !is_watched(world, page))
            continue;
        rank = read_rank(worker, page);
        if (now - worker->changed_ns <= limit_ns + (rank.waits && world->plan.n_nodes > 1 ? WAITING_NS : 0)) {
            others_go_on = true;
            continue;
        }
        all_wait = all_wait && rank.waits;
        if (best == NULL || hang_is_blamed_before(&rank, &best_rank)) {
            best = worker;
            best_rank = rank;
        }
    }
    return all_wait && others_go_on ? NULL : best;
}

static void report_hang(struct world *world, struct worker *worker)
{
    struct death hang = worker->death;

    hang.kind = DEATH_HANG;
    hang.code = SIGKILL;
    hang.when_ns = world_now_ns(world);
    hang.phase = FSDP_PHASE_START; /* of a process that has not opened its link yet, too */
    worker_read_place(&hang, link_server_page(world->links, worker->local_rank));
    snprintf(hang.words, sizeof hang.words, "no progress for %lld s",
             (long long)(world->config->hang_timeout_ms / 1000));
    world->listener.exited(world->listener.arg, world->plan.generation, &hang, NULL);
    world_post(world, WE_FAILED);
}

/* Neither a beat nor an exit for too long, in any phase from the start of the process to its end. */
static void look_for_hang(struct world *world)
{
    const int64_t now = world_now_ns(world);
    struct worker *culprit;

    if (world->config->hang_timeout_ms <= 0 || (world->state != WS_RUNNING && world->state != WS_LEAVING))
        return;
    for (int i = 0; i < world->config->n_workers; i++) {
        struct worker *worker = &world->workers[i];
        const struct fsdp_progress *page = link_server_page(world->links, i);
        const uint64_t beat = page != NULL ? read64(&page->beat_ns) : 0;

        if (beat != worker->seen_beat) {
            worker->seen_beat = beat;
            worker->changed_ns = now;
        }
    }
    culprit = find_culprit(world);
    if (culprit != NULL)
        report_hang(world, culprit);
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
    world_look_for_stuck(world);
    draw_progress(world);
    world_proceed(world);
}
