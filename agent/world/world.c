#include "agent/world/world.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/world/world_impl.h"

enum {
    BLAME_MS = 1000, /* how long we wait for the one that went first to show */
    LOOK_EVERY_MS = 250,
};

int64_t world_now_ns(const struct world *world)
{
    return world->services.os->now_ns(world->services.os->arg);
}

void world_say(const struct world *world, const char *words)
{
    console_say(world->services.console, "fsdprun: %s", words);
}

void world_post(struct world *world, enum world_event event)
{
    /* Any number of workers may be found dead in one pass; that some have failed is one event. */
    for (int i = 0; i < world->queue_n && (event == WE_FAILED || event == WE_PEER_LOST); i++)
        if (world->queue[(world->queue_head + i) % WORLD_QUEUE] == event)
            return;
    if (world->queue_n == WORLD_QUEUE)
        return; /* cannot be: of the other events few can come between two runs */
    world->queue[(world->queue_head + world->queue_n++) % WORLD_QUEUE] = event;
}

/* --- deadlines --------------------------------------------------------------------------------------------------- */

static void on_deadline(uv_timer_t *timer)
{
    struct world *world = timer->data;

    world->deadline_ns = 0;
    world_post(world, WE_DEADLINE);
    world_proceed(world);
}

void world_set_deadline(struct world *world, int64_t ms)
{
    uv_update_time(world->services.loop);
    world->deadline_ns = world_now_ns(world) + ms * 1000000;
    uv_timer_start(&world->deadline, on_deadline, (uint64_t)ms, 0);
}

static void clear_deadline(struct world *world)
{
    world->deadline_ns = 0;
    uv_timer_stop(&world->deadline);
    uv_timer_stop(&world->sweep);
}

void world_suspended(struct world *world, int64_t slept_ns)
{
    timer_pipe_suspended(world->timers, slept_ns);
    if (world->deadline_ns != 0) {
        int64_t left_ns = world->deadline_ns + slept_ns - world_now_ns(world);

        world_set_deadline(world, left_ns < 0 ? 0 : left_ns / 1000000);
    }
    if (world->workers == NULL)
        return;
    for (int i = 0; i < world->config->n_workers; i++) {
        world->workers[i].changed_ns += slept_ns;
        world->workers[i].stuck_since_ns = 0;
    }
}

int64_t world_grace_ms(const struct world *world)
{
    return world->config->job_json != NULL ? 0 : world->config->grace_ms;
}

/* --- the actions ------------------------------------------------------------------------------------------------- */

static void abort_others(struct world *world)
{
    if (world->links != NULL)
        link_server_abort(world->links);
}

static void tell_down(struct world *world)
{
    if (world->services.logs != NULL)
        logs_end_generation(world->services.logs);
    if (world->services.relay != NULL)
        relay_end_generation(world->services.relay);
    world->listener.stopped(world->listener.arg, world->plan.generation);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct world *world = handle->data;

    if (--world->n_timers == 0)
        world->listener.ended(world->listener.arg);
}

static void close_all(struct world *world)
{
    world_gpus_end(world);
    link_server_destroy(world->links);
    world->links = NULL;
    timer_pipe_destroy(world->timers);
    world->timers = NULL;
    uv_close((uv_handle_t *)&world->deadline, on_timer_closed);
    uv_close((uv_handle_t *)&world->sweep, on_timer_closed);
    uv_close((uv_handle_t *)&world->look, on_timer_closed);
}

static void perform(struct world *world, enum world_action action)
{
    switch (action) {
    case WA_NONE:
        return;
    case WA_SPAWN:
        world_spawn(world);
        return;
    case WA_ABORT:
        abort_others(world);
        world_set_deadline(world, BLAME_MS);
        return;
    case WA_NOTIFY:
        world_set_deadline(world, world->config->grace_ms);
        return;
    case WA_CLEAR:
        abort_others(world);
        /* fall through */
    case WA_TERM:
        world_end_all(world, world->config->job_json != NULL ? SIGKILL
                             : world->stop_signal != 0       ? world->stop_signal
                                                             : SIGTERM);
        world_set_deadline(world, world_grace_ms(world));
        return;
    case WA_KILL:
        world_kill(world);
        return;
    case WA_DRAIN:
        world_gpus_end(world);
        world_drain(world);
        return;
    case WA_SWEEP:
        world_gpus_end(world);
        world_sweep(world);
        return;
    case WA_ABANDON:
        world_abandon(world);
        tell_down(world);
        return;
    case WA_DOWN:
        tell_down(world);
        return;
    case WA_CLOSE:
        close_all(world);
        return;
    case WA_UNSET:
    case WA_COUNT:
        break;
    }
}

/* --- the machine ------------------------------------------------------------------------------------------------- */

static void impossible(struct world *world, enum world_event event)
{
    console_say(world->services.console, "fsdprun: bug: event %s in state %s; stopping",
                world_event_name(event), world_state_name(world->state));
    world_kill_all(world);
}

/* A generation begins once nothing of the loop points into the one before. */
static bool must_wait(const struct world *world)
{
    const enum world_event event = world->queue[world->queue_head];

    if (event == WE_FORM && world_gpus_wait(world))
        return true;
    return (event == WE_FORM || event == WE_END) && world->n_worker_handles > 0;
}

void world_proceed(struct world *world)
{
    if (world->running)
        return; /* an action's callback: the loop below goes on with what it posted */
    world->running = true;
    while (world->queue_n > 0 && !must_wait(world)) {
        enum world_event event = world->queue[world->queue_head];
        enum world_state before = world->state;
        enum world_action action;

        world->queue_head = (world->queue_head + 1) % WORLD_QUEUE;
        world->queue_n--;
        if (!world_fsm_step(&world->state, event, &action)) {
            impossible(world, event);
            continue;
        }
        if (world->state != before)
            clear_deadline(world);
        perform(world, action);
    }
    world->running = false;
}

/* --- life -------------------------------------------------------------------------------------------------------- */

enum fsdp_status world_create(struct world **out, const struct agent_config *config,
                              const struct world_services *services, const struct world_listener *listener,
                              struct fsdp_err *err)
{
    struct world *world = calloc(1, sizeof *world);
    uv_timer_t *timers[3];
    enum fsdp_status status;

    *out = NULL;
    if (world == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    world->config = config;
    world->services = *services;
    world->listener = *listener;
    world->state = WS_DOWN;
    world->stuck_limit_ns = world_stuck_limit_ns(config);
    if (gethostname(world->host, sizeof world->host - 1) < 0)
        snprintf(world->host, sizeof world->host, "?");
    status = world_make_timers(world, err);
    if (status != FSDP_OK) {
        free(world);
        return status;
    }
    oom_watch_begin(&world->oom, "/proc/self/cgroup", "/sys/fs/cgroup", "/dev/kmsg");
    timers[0] = &world->deadline;
    timers[1] = &world->sweep;
    timers[2] = &world->look;
    for (int i = 0; i < 3; i++) {
        uv_timer_init(services->loop, timers[i]);
        timers[i]->data = world;
        world->n_timers++;
    }
    uv_timer_start(&world->look, world_watch, LOOK_EVERY_MS, LOOK_EVERY_MS);
    *out = world;
    return FSDP_OK;
}

void world_destroy(struct world *world)
{
    if (world == NULL)
        return;
    oom_watch_end(&world->oom);
    free(world->workers);
    free(world);
}

/* --- from the coordinator ---------------------------------------------------------------------------------------- */

static void post_and_run(struct world *world, enum world_event event)
{
    world_post(world, event);
    world_proceed(world);
}

void world_form(struct world *world, const struct world_plan *plan)
{
    world->plan = *plan;
    world_gpus_begin(world);
    post_and_run(world, WE_FORM);
}

void world_stop(struct world *world, int signal, bool now)
{
    if (world->stop_signal == 0)
        world->stop_signal = signal;
    if (signal == 0)
        abort_others(world);
    world_gpus_let_go(world);
    post_and_run(world, now ? WE_STOP_NOW : WE_STOP);
}

void world_notify(struct world *world, const struct fsdp_link_notice *notice)
{
    if (world->links == NULL || world->state == WS_DOWN)
        return;
    world->noticed = true;
    link_server_notify(world->links, notice);
    post_and_run(world, WE_NOTICE);
}

void world_publish(struct world *world, const struct fsdp_link_published *published)
{
    if (world->links != NULL)
        link_server_publish(world->links, published);
}

void world_put(struct world *world, int generation, const char *key, const void *value, size_t size_bytes)
{
    struct fsdp_err err = { 0 };

    if (world->links == NULL || generation != world->plan.generation || world->state == WS_DOWN)
        return; /* of a generation that is over, or not begun here: fenced */
    if (link_server_put(world->links, key, value, size_bytes, &err) != FSDP_OK)
        world_say(world, err.message);
}

void world_end(struct world *world)
{
    world_gpus_let_go(world);
    post_and_run(world, WE_END);
}
