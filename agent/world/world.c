#include "agent/world/world.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/os/bug.h"
#include "agent/os/deadlines.h"
#include "agent/watch/python_stacks.h"
#include "agent/world/world_impl.h"

enum { BLAME_MS = 1000 }; /* after a rank's end: how long to wait until it is known which rank ended first */

int64_t world_now_ns(const struct world *world)
{
    return world->services.os->now_ns(world->services.os->arg);
}

void world_say(const struct world *world, const char *words)
{
    console_say(world->services.console, "fsdprun: %s", words);
}

void world_record(const struct world *world, const char *event, const struct events_field *fields)
{
    world->reporter.record(world->reporter.to, world->plan.generation, event, fields);
}

void world_report(const struct world *world, const struct death *death, const struct errors_detail *detail)
{
    world->reporter.exited(world->reporter.to, world->plan.generation, death, detail);
}

static bool is_from_outside(enum world_event event)
{
    return event == WE_STOP || event == WE_STOP_NOW || event == WE_NOTICE || event == WE_FAILED ||
           event == WE_PEER_LOST;
}

static _Noreturn void stop_as_bug(const struct world *world, enum world_event event, const char *what)
{
    bug_stop("event %s %s, in state %s", world_event_name(event), what, world_state_name(world->state));
}

/*
 * Is the event in the queue already? Events before the last FORM belong to an earlier generation, and do not
 * count.
 */
static bool is_waiting(const struct world *world, enum world_event event)
{
    for (int i = world->queue_n - 1; i >= 0; i--) {
        const enum world_event other = world->queue[(world->queue_head + i) % WORLD_QUEUE];

        if (other == event || other == WE_FORM)
            return other == event;
    }
    return false;
}

void world_post(struct world *world, enum world_event event)
{
    if (is_from_outside(event) && is_waiting(world, event))
        return;
    if (world->queue_n == WORLD_QUEUE)
        stop_as_bug(world, event, "has no place in the queue");
    world->queue[(world->queue_head + world->queue_n++) % WORLD_QUEUE] = event;
}

/* Deadlines */

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
    world_life_shift(world, slept_ns);
    world->signs_ns = uv_hrtime(); /* the pause is accounted for */
}

int64_t world_grace_ms(const struct world *world)
{
    const int64_t grace_ms = world->config->job_json != NULL ? 0 : world->config->grace_ms;

    return world->lost && grace_ms > LOST_GRACE_MS ? LOST_GRACE_MS : grace_ms;
}

/* The actions */

static void abort_others(struct world *world)
{
    if (world->links != NULL)
        link_server_abort(world->links);
}

static void tell_down(struct world *world)
{
    struct restore_steps held;

    if (world->services.output != NULL)
        output_end_generation(world->services.output);
    if (world_in_memory(world, &held))
        world->reporter.held(world->reporter.to, world->plan.generation, &held);
    entry_dir_tell(world->entries);
    world->reporter.stopped(world->reporter.to, world->plan.generation);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct world *world = handle->data;

    if (--world->n_timers == 0)
        world->services.ended(world->services.ended_arg);
}

static void close_all(struct world *world)
{
    world_account_drop(world);
    world_gpus_end(world);
    world_end_saves(world);
    entry_dir_close(world->entries);
    world->entries = NULL;
    link_server_destroy(world->links);
    world->links = NULL;
    timer_pipe_destroy(world->timers);
    standby_destroy(world->standby, world->services.os);
    world->standby = NULL;
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
        world_end_saves(world);
        world_drain(world);
        return;
    case WA_SWEEP:
        world_end_saves(world);
        world_sweep(world);
        return;
    case WA_ABANDON:
        world_end_saves(world);
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

/* The machine */

/* Must the next event wait? A generation begins only when all handles of the generation before are closed. */
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
        return; /* called from within an action: the loop below, which is running, takes the new event */
    world->running = true;
    while (world->queue_n > 0 && !must_wait(world)) {
        enum world_event event = world->queue[world->queue_head];
        enum world_state before = world->state;
        enum world_action action;

        world->queue_head = (world->queue_head + 1) % WORLD_QUEUE;
        world->queue_n--;
        if (!world_fsm_step(&world->state, event, &action))
            stop_as_bug(world, event, "came out of order");
        if (world->state != before)
            clear_deadline(world);
        if (world->state != WS_RUNNING && world->state != WS_LEAVING)
            world_cancel_start(world);
        perform(world, action);
    }
    world->running = false;
}

/* Life */

/*
 * Makes room for the workers on standby, if there will be any. Also makes room for the list of processes that
 * are not killed at the end of a generation.
 */
static enum fsdp_status make_standby(struct world *world, struct fsdp_err *err)
{
    const int n = world->config->standby;

    world->spared = calloc(WORLD_LEFT + (size_t)n + 1, sizeof *world->spared);
    if (n > 0)
        world->standby = standby_create(n);
    if (world->spared == NULL || (n > 0 && world->standby == NULL))
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for %d workers on standby", n);
    return FSDP_OK;
}

static void close_archive(const struct world *world)
{
    if (world->archive_fd > 0)
        close(world->archive_fd);
}

enum fsdp_status world_create(struct world **out, const struct agent_config *config,
                              const struct world_services *services, const struct reporter *reporter,
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
    world->reporter = *reporter;
    world->state = WS_DOWN;
    world->stuck_limit_ns = world_stuck_limit_ns();
    if (gethostname(world->host, sizeof world->host - 1) < 0)
        snprintf(world->host, sizeof world->host, "?");
    if (config->python_stacks && (world->archive_fd = python_stacks_archive()) < 0)
        world->archive_fd = 0;
    status = make_standby(world, err);
    if (status == FSDP_OK && config->job_json != NULL && services->rundir != NULL)
        status = segments_create(&world->segments, config->n_workers, err);
    if (status == FSDP_OK && world->segments != NULL && config->replicas)
        status = segments_create(&world->held, config->n_workers, err);
    if (status == FSDP_OK)
        status = world_open_entries(world, err);
    if (status == FSDP_OK)
        status = world_make_timers(world, err);
    if (status != FSDP_OK) {
        entry_dir_close(world->entries);
        segments_destroy(world->segments);
        segments_destroy(world->held);
        standby_destroy(world->standby, services->os);
        close_archive(world);
        free(world->spared);
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
    uv_timer_start(&world->look, world_watch, WORLD_LOOK_EVERY_MS, WORLD_LOOK_EVERY_MS);
    *out = world;
    return FSDP_OK;
}

void world_report_to(struct world *world, const struct reporter *reporter)
{
    world->reporter = *reporter;
    if (world->n_left > 0)
        reporter->unkilled(reporter->to, world->n_left);
}

void world_destroy(struct world *world)
{
    if (world == NULL)
        return;
    oom_watch_end(&world->oom);
    close_archive(world);
    segments_destroy(world->segments);
    segments_destroy(world->held);
    free(world->workers);
    free(world->spared);
    free(world);
}

/* From the coordinator */

static void post_and_run(struct world *world, enum world_event event)
{
    world_post(world, event);
    world_proceed(world);
}

void world_form(struct world *world, const struct world_plan *plan)
{
    world->plan = *plan;
    world_begin_entries(world);
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

void world_lost(struct world *world)
{
    world->lost = true;
    if (world->state == WS_STOPPING &&
        world->deadline_ns > world_now_ns(world) + world_grace_ms(world) * 1000000)
        world_set_deadline(world, world_grace_ms(world));
}

void world_notify(struct world *world, const struct fsdp_link_notice *notice)
{
    if (world->links == NULL || world->state == WS_DOWN)
        return;
    world->noticed = true;
    world->notice = *notice; /* for workers that are not started yet */
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

    if (world->links == NULL || generation != world->plan.generation || world->state == WS_DOWN ||
        copies_take(world->copies, key, value, size_bytes))
        return; /* the value belongs to a generation that is over, or that has not begun on this node */
    if (link_server_put(world->links, key, value, size_bytes, &err) != FSDP_OK)
        world_say(world, err.message);
}

void world_end(struct world *world)
{
    world_gpus_let_go(world);
    post_and_run(world, WE_END);
}
