#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/watch/flight.h"
#include "agent/world/world_impl.h"
#include "shard_runtime/core/clock.h"

/* Exits */

static void on_worker_closed(uv_handle_t *handle)
{
    struct worker *worker = handle->data;
    struct world *world = worker->world;

    close(worker->child.pidfd);
    worker->child.pidfd = -1;
    world->n_worker_handles--;
    world_proceed(world); /* the generation may have been waiting for this worker's handle to be closed */
}

void world_stop_watching(struct worker *worker)
{
    worker_close_watch(worker);
    if (worker->exec_fd >= 0)
        close(worker->exec_fd);
    worker->exec_fd = -1;
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

    world_record(world, "exit",
                 (struct events_field[]){ EVENT_INT("rank", worker->rank), EVENT_INT("pid", death->pid),
                                          EVENT_INT(killed ? "signal" : "code", death->code), EVENT_END });
}

/* A worker's last collectives on their way to the disk. */
struct flight_file {
    struct disk_job job;
    struct rundir *rundir;
    struct console *console;
    int generation, rank, local_rank;
    char *line;
    size_t length;
    struct fsdp_err err;
};

static void write_flight(struct disk_job *job)
{
    struct flight_file *file = (struct flight_file *)job;
    char folder[RUNDIR_PATH_BYTES];

    if (rundir_rank_folder(file->rundir, file->generation, file->rank, file->local_rank, folder,
                           &file->err) == FSDP_OK)
        (void)flight_write(file->line, file->length, rundir_io(file->rundir), folder, &file->err);
}

static void on_flight(struct disk_job *job)
{
    struct flight_file *file = (struct flight_file *)job;

    if (file->err.status != FSDP_OK)
        console_say(file->console, "fsdprun: rank %d: its last collectives are lost: %s", file->rank,
                    file->err.message);
    free(file->line);
    free(file);
}

/* Keep the worker's last collectives, which show in which of them it hung or died. Nothing else uses them. */
static void keep_flight(const struct world *world, const struct worker *worker)
{
    struct flight_source source = { .generation = world->plan.generation,
                                    .rank = worker->rank,
                                    .pid = worker->death.pid,
                                    .page = link_server_page(world->links, worker->local_rank),
                                    .now_ns = (uint64_t)world_now_ns(world) };
    struct flight_file *file;

    if (source.page == NULL || world->services.rundir == NULL ||
        atomic_load_explicit(&source.page->n_collectives, memory_order_relaxed) == 0)
        return;
    source.time_s = clock_epoch_s();
    file = calloc(1, sizeof *file);
    if (file == NULL || (file->line = flight_json(&source, &file->length)) == NULL) {
        console_say(world->services.console, "fsdprun: rank %d: its last collectives are lost: out of memory",
                    worker->rank);
        free(file);
        return;
    }
    file->job = (struct disk_job){ .work = write_flight, .done = on_flight };
    file->rundir = world->services.rundir;
    file->console = world->services.console;
    file->generation = source.generation;
    file->rank = source.rank;
    file->local_rank = worker->local_rank;
    disk_submit(world->services.disk, &file->job);
}

static void worker_exited(struct world *world, struct worker *worker, const siginfo_t *info)
{
    world_look_at_start(world); /* it may end before the first look */
    (void)worker_executed(worker, world->services.os, world->config);
    /* If the guard has killed it because the lease is over, its end is not the cause of a failure. */
    worker->killed |= world->services.lease != NULL && lease_is_over(world->services.lease);
    worker_ended(worker, info, world->noticed, link_server_page(world->links, worker->local_rank),
                 world_now_ns(world));
    if (worker->death.kind != DEATH_NONE)
        keep_flight(world, worker);
    timer_pipe_drop(world->timers, (pid_t)worker->death.pid);
    /* only now, because this still delivers the worker's last events and reports */
    link_server_drop(world->links, worker->local_rank);
    record_exit(world, worker);
    world_stop_watching(worker);
    world->n_live--;
    if (first_cause_blames_another(&worker->death))
        world_post(world, WE_PEER_LOST);
    else if (worker->death.kind != DEATH_NONE)
        world_post(world, WE_FAILED);
    world_explain(world, worker);
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

void world_watch_worker(struct worker *worker)
{
    struct world *world = worker->world;

    if (uv_poll_init(world->services.loop, &worker->poll, worker->child.pidfd) != 0)
        return; /* SIGCHLD makes world_reap() find its exit */
    worker->poll.data = worker;
    worker->polled = true;
    world->n_worker_handles++;
    uv_poll_start(&worker->poll, UV_READABLE, on_pidfd);
}

/* Links */

static void on_link_saved(void *arg, int rank, const struct fsdp_link_saved *saved, int manifest_fd)
{
    world_saved(arg, rank, saved, manifest_fd);
}

static void on_link_event(void *arg, int rank, const char *json, size_t length)
{
    struct world *world = arg;

    world->reporter.event(world->reporter.to, world->plan.generation, rank, json, length);
}

static void on_link_broken(void *arg, int rank, const char *words)
{
    struct world *world = arg;

    console_say(world->services.console, "fsdprun: rank %d: its link was closed: %s", rank, words);
}

static void on_link_put(void *arg, const char *key, const void *value, size_t size_bytes)
{
    struct world *world = arg;

    /* this key is kept for later workers of this node; other nodes do not get it */
    if (strcmp(key, FSDP_LINK_KEPT_KEY) == 0) {
        world->kept.n_bytes = size_bytes <= sizeof world->kept.bytes ? (uint32_t)size_bytes : 0;
        memcpy(world->kept.bytes, value, world->kept.n_bytes);
        return;
    }
    world->reporter.put(world->reporter.to, world->plan.generation, key, value, size_bytes);
}

static void on_link_want(void *arg, const char *key)
{
    struct world *world = arg;

    world->reporter.want(world->reporter.to, world->plan.generation, key);
}

bool world_make_links(struct world *world, struct fsdp_err *err)
{
    const struct link_server_handlers handlers = { .arg = world,
                                                   .saved = on_link_saved,
                                                   .event = on_link_event,
                                                   .broken = on_link_broken,
                                                   .put = on_link_put,
                                                   .want = on_link_want };

    link_server_destroy(world->links);
    world->links = NULL;
    return link_server_create(&world->links, world->services.loop, world->config->n_workers, &handlers,
                              err) == FSDP_OK &&
           world_give_segments(world, err);
}
