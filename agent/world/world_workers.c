#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/os/environment.h"
#include "agent/world/flight.h"
#include "agent/world/world_impl.h"

extern char **environ;

/* --- exits ------------------------------------------------------------------------------------------------------- */

static void on_worker_closed(uv_handle_t *handle)
{
    struct worker *worker = handle->data;
    struct world *world = worker->world;

    close(worker->child.pidfd);
    worker->child.pidfd = -1;
    world->n_worker_handles--;
    world_proceed(world); /* a generation may be waiting for the last of them */
}

void world_stop_watching(struct worker *worker)
{
    if (!worker->polled) {
        close(worker->child.pidfd);
        worker->child.pidfd = -1;
        return;
    }
    worker->polled = false;
    uv_close((uv_handle_t *)&worker->poll, on_worker_closed);
}

static void record_exit(const struct world *world, const struct worker *worker)
{
    const struct death *death = &worker->death;
    const bool killed = death->kind == DEATH_SIGNAL;

    world->listener.record(
        world->listener.arg, world->plan.generation, "exit",
        (struct events_field[]){ EVENT_INT("rank", worker->rank), EVENT_INT("pid", death->pid),
                                 EVENT_INT(killed ? "signal" : "code", death->code), EVENT_END });
}

/* Its last collectives, for whoever asks which of them it hung or died in. Nothing else depends on them. */
static void keep_flight(const struct world *world, const struct worker *worker)
{
    struct timespec now;
    struct flight_source source = { .generation = world->plan.generation,
                                    .rank = worker->rank,
                                    .pid = worker->death.pid,
                                    .page = link_server_page(world->links, worker->local_rank),
                                    .now_ns = (uint64_t)world_now_ns(world) };
    char folder[RUNDIR_PATH_BYTES];
    struct fsdp_err err = { 0 };

    if (source.page == NULL || world->services.rundir == NULL ||
        atomic_load_explicit(&source.page->n_collectives, memory_order_relaxed) == 0)
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    source.time_s = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
    if (rundir_rank_folder(world->services.rundir, source.generation, worker->rank, worker->local_rank,
                           folder, &err) != FSDP_OK ||
        flight_write(&source, rundir_io(world->services.rundir), folder, &err) != FSDP_OK)
        console_say(world->services.console, "fsdprun: rank %d: its last collectives are lost: %s",
                    worker->rank, err.message);
}

static void worker_exited(struct world *world, struct worker *worker, const siginfo_t *info)
{
    struct errors_detail detail;
    bool known;

    worker_ended(worker, info, world->noticed, link_server_page(world->links, worker->local_rank),
                 world_now_ns(world));
    if (worker->death.kind != DEATH_NONE)
        keep_flight(world, worker);
    timer_pipe_drop(world->timers, (pid_t)worker->death.pid);
    known = world_explain(world, worker, &detail);
    link_server_drop(world->links, worker->local_rank); /* its last events and reports come first */
    record_exit(world, worker);
    world_stop_watching(worker);
    world->n_live--;
    world->listener.exited(world->listener.arg, world->plan.generation, &worker->death,
                           known ? &detail : NULL);
    if (first_cause_blames_another(&worker->death))
        world_post(world, WE_PEER_LOST);
    else if (worker->death.kind != DEATH_NONE)
        world_post(world, WE_FAILED);
    if (world->n_live == 0)
        world_post(world, WE_REAPED);
}

void world_look_at_worker(struct world *world, struct worker *worker)
{
    siginfo_t info;

    if (worker->live && world->services.os->reap(world->services.os->arg, &worker->child, &info))
        worker_exited(world, worker, &info);
}

static void on_pidfd(uv_poll_t *poll, int status, int events)
{
    struct worker *worker = poll->data;
    struct world *world = worker->world;

    (void)status;
    (void)events;
    world_look_at_worker(world, worker);
    world_proceed(world);
}

/* --- links ------------------------------------------------------------------------------------------------------- */

static void on_link_saved(void *arg, int rank, const struct fsdp_link_saved *saved, int manifest_fd)
{
    struct world *world = arg;

    world->listener.saved(world->listener.arg, world->plan.generation, rank, saved, manifest_fd);
}

static void on_link_event(void *arg, int rank, const char *json, size_t length)
{
    struct world *world = arg;

    world->listener.event(world->listener.arg, world->plan.generation, rank, json, length);
}

static void on_link_broken(void *arg, int rank, const char *words)
{
    struct world *world = arg;

    console_say(world->services.console, "fsdprun: rank %d: its link was closed: %s", rank, words);
}

static void on_link_put(void *arg, const char *key, const void *value, size_t size_bytes)
{
    struct world *world = arg;

    if (strcmp(key, FSDP_LINK_KEPT_KEY) == 0) { /* of this node: no other one hears of it */
        world->kept.n_bytes = size_bytes <= sizeof world->kept.bytes ? (uint32_t)size_bytes : 0;
        memcpy(world->kept.bytes, value, world->kept.n_bytes);
        return;
    }
    if (world->listener.put != NULL)
        world->listener.put(world->listener.arg, world->plan.generation, key, value, size_bytes);
}

static bool make_links(struct world *world, struct fsdp_err *err)
{
    const struct link_server_handlers handlers = { .arg = world,
                                                   .saved = on_link_saved,
                                                   .event = on_link_event,
                                                   .broken = on_link_broken,
                                                   .put = on_link_put };

    link_server_destroy(world->links);
    world->links = NULL;
    return link_server_create(&world->links, world->services.loop, world->config->n_workers, &handlers,
                              err) == FSDP_OK;
}

/* --- starting ---------------------------------------------------------------------------------------------------- */

static void report_death(struct world *world, struct worker *worker)
{
    worker->death.when_ns = world_now_ns(world);
    world->listener.exited(world->listener.arg, world->plan.generation, &worker->death, NULL);
}

static bool start_worker(struct world *world, const struct worker_context *context, int i, int lookup_error)
{
    struct worker *worker = &world->workers[i];

    if (lookup_error != 0) {
        *worker = (struct worker){ .rank = context->plan->first_rank + i,
                                   .local_rank = i,
                                   .child = { .pidfd = -1 } };
        worker->death = (struct death){ .rank = worker->rank,
                                        .local_rank = i,
                                        .node_rank = context->plan->node_rank,
                                        .step = -1,
                                        .phase = -1 };
        snprintf(worker->death.host, sizeof worker->death.host, "%s", world->host);
        worker_cannot_start(&worker->death, world->config->argv[0], lookup_error, false);
        return false;
    }
    if (!worker_start(worker, context, i))
        return false;
    worker->world = world;
    world->n_live++;
    world->listener.record(world->listener.arg, world->plan.generation, "spawn",
                           (struct events_field[]){ EVENT_INT("rank", worker->rank),
                                                    EVENT_INT("pid", worker->child.pid), EVENT_END });
    if (uv_poll_init(world->services.loop, &worker->poll, worker->child.pidfd) == 0) {
        worker->poll.data = worker;
        worker->polled = true;
        world->n_worker_handles++;
        uv_poll_start(&worker->poll, UV_READABLE, on_pidfd);
    } /* else: SIGCHLD finds it all the same */
    return true;
}

void world_spawn(struct world *world)
{
    const struct agent_config *config = world->config;
    char *const *environment = config->environment != NULL ? config->environment : environ;
    char program[RUNDIR_PATH_BYTES];
    struct worker_context context = {
        .config = config,
        .os = world->services.os,
        .baseline = world->services.baseline,
        .plan = &world->plan,
        .rundir = world->services.rundir,
        .logs = world->services.logs,
        .relay = world->services.relay,
        .environment = environment,
        .program = program,
        .host = world->host,
        .timer_file = world->timers == NULL ? NULL : timer_pipe_path(world->timers),
        .placement = world->services.placement,
        .kept = &world->kept,
    };
    struct fsdp_err err = { 0 };
    int error;

    world->noticed = false;
    world->stop_signal = 0;
    timer_pipe_reset(world->timers);
    free(world->workers);
    world->workers = calloc((size_t)config->n_workers, sizeof *world->workers);
    if (world->workers == NULL || !make_links(world, &err)) {
        world_say(world, world->workers == NULL ? "out of memory" : err.message);
        world_post(world, WE_FAILED);
        world_post(world, WE_REAPED);
        return;
    }
    context.links = world->links;
    error = os_find_program(config->argv[0], environment_find(environment, "PATH"), config->directory, program,
                            sizeof program);
    for (int i = 0; i < config->n_workers; i++) {
        if (start_worker(world, &context, i, error))
            continue;
        report_death(world, &world->workers[i]);
        world_post(world, WE_FAILED);
        break;
    }
    if (world->n_live == config->n_workers && config->observer.started != NULL)
        config->observer.started(config->observer.arg);
    if (world->n_live == 0)
        world_post(world, WE_REAPED);
}
