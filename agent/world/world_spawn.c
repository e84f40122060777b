/*
 * Starts the workers of a generation, in the steps of worker.h:
 *   1. The calls that may wait for a file system are one job of the disk's thread, if there is one.
 *   2. When the thread has answered, the loop makes all processes. With a disk it does not wait for their
 *      execs.
 * If the generation is stopped before the answer, nothing was started. The start is over at once, and the
 * late answer only closes the files.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/os/descendants.h"
#include "agent/world/world_impl.h"
#include "shard_runtime/core/exit_status.h"

struct world_start {
    struct disk_job job;
    struct world *world; /* NULL: the generation is over */
    struct world_services services;
    struct worker_context context;
    struct world_plan plan; /* copies, for the thread */
    char program[RUNDIR_PATH_BYTES];
    struct death death; /* why a worker cannot be started */
    int refused;        /* its local rank; -1: none */
    struct start_wait wait;
    atomic_bool cancelled;
    int n_workers;
    struct worker_files files[];
};

static void fill_context(struct world *world, struct worker_context *context)
{
    *context = (struct worker_context){
        .config = world->config,
        .os = world->services.os,
        .baseline = world->services.baseline,
        .plan = &world->plan,
        .disk = world->services.disk,
        .rundir = world->services.rundir,
        .output = world->services.output,
        .program = world->program,
        .host = world->host,
        .archive_fd = world->archive_fd,
        .timer_file = world->timers == NULL ? NULL : timer_pipe_path(world->timers),
        .snapshots = world->entries == NULL ? NULL : world->config->place->path,
        .placement = world->services.placement,
        .kept = &world->kept,
        .has_snapshots = world->segments != NULL,
        .has_copies = world->copies != NULL,
        .held_bytes = segments_bytes(world->held),
        .standby = world->standby,
        .links = world->links,
        .lease = world->services.lease,
    };
}

bool world_start_standby(struct world *world, int local_rank, struct standby_process *process,
                         struct death *death)
{
    struct worker_context context;

    fill_context(world, &context);
    return worker_start_standby(&context, local_rank, process, death);
}

/* Step 1 */

static bool check_node(struct world_start *start)
{
    const struct world_services *services = &start->services;
    struct fsdp_err err = { 0 };
    enum fsdp_status status;

    if (services->check == NULL)
        return true;
    status = services->check(services->check_arg, &start->plan, &err);
    if (status == FSDP_OK)
        return true;
    start->death.kind = DEATH_SPAWN;
    start->death.code = exit_status_of(status);
    snprintf(start->death.words, sizeof start->death.words, "%.200s", err.message);
    return false;
}

static void open_files(struct disk_job *job)
{
    struct world_start *start = (struct world_start *)job;

    start->refused = -1;
    if (atomic_load(&start->cancelled))
        return;
    if (!check_node(start) || !worker_find_program(start->context.config, start->program, &start->death)) {
        start->refused = 0;
        return;
    }
    for (int i = 0; i < start->n_workers && !atomic_load(&start->cancelled); i++)
        if (!worker_open_files(&start->files[i], &start->context, i, &start->death)) {
            start->refused = i;
            return;
        }
}

static void end_start(struct world_start *start)
{
    for (int i = 0; i < start->n_workers; i++)
        worker_close_files(&start->files[i]);
    free(start);
}

/* Reports that a worker cannot be started, as `why` says. Its generation ends. */
static void refuse(struct world *world, const struct worker *worker, const struct death *why)
{
    struct death death = worker->death;

    death.kind = why->kind;
    death.code = why->code;
    death.when_ns = world_now_ns(world);
    snprintf(death.words, sizeof death.words, "%s", why->words);
    world_report(world, &death, NULL);
    world_post(world, WE_FAILED);
}

/* Step 2 */

static bool start_worker(struct world *world, const struct worker_context *context, int i,
                         struct worker_files *files)
{
    struct worker *worker = &world->workers[i];

    if (!worker_start(worker, context, files)) {
        world_report(world, &worker->death, NULL);
        world_post(world, WE_FAILED);
        return false;
    }
    world->n_live++;
    start_wait_begin(&worker->exec, world_now_ns(world));
    world_record(world, "spawn",
                 (struct events_field[]){
                     EVENT_INT("rank", worker->rank), EVENT_INT("pid", worker->child.pid),
                     worker->was_standby ? EVENT_JSON("standby", "true") : EVENT_END, EVENT_END });
    world_watch_worker(worker);
    return true;
}

static void start_workers(struct world *world, struct world_start *start)
{
    struct worker_context context;

    snprintf(world->program, sizeof world->program, "%s", start->program);
    fill_context(world, &context);
    for (int i = 0; i < start->n_workers; i++)
        if (!start_worker(world, &context, i, &start->files[i]))
            break;
    if (world->noticed)
        link_server_notify(world->links, &world->notice); /* it came before there was any worker */
}

static void on_files(struct disk_job *job)
{
    struct world_start *start = (struct world_start *)job;
    struct world *world = start->world;

    if (world != NULL) {
        world->start = NULL;
        if (start->refused >= 0)
            refuse(world, &world->workers[start->refused], &start->death);
        else
            start_workers(world, start);
        if (world->n_live == 0)
            world_post(world, WE_REAPED);
        world_look_at_start(world);
    }
    end_start(start);
    if (world != NULL)
        world_proceed(world);
}

void world_cancel_start(struct world *world)
{
    if (world->start == NULL)
        return;
    atomic_store(&world->start->cancelled, true);
    world->start->world = NULL;
    world->start = NULL;
    world_post(world, WE_REAPED);
}

/* Make all workers known, before any of them has a process. */
static struct world_start *create(struct world *world)
{
    const int n = world->config->n_workers;
    struct world_start *start = calloc(1, sizeof *start + (size_t)n * sizeof *start->files);

    world->workers = calloc((size_t)n, sizeof *world->workers);
    if (start == NULL || world->workers == NULL) {
        free(start);
        return NULL;
    }
    start->job = (struct disk_job){ .work = open_files, .done = on_files };
    start->world = world;
    start_wait_begin(&start->wait, world_now_ns(world));
    start->services = world->services;
    start->n_workers = n;
    start->plan = world->plan;
    fill_context(world, &start->context);
    start->context.plan = &start->plan;
    for (int i = 0; i < n; i++) {
        worker_begin(&world->workers[i], &start->context, i);
        world->workers[i].world = world;
    }
    return start;
}

void world_spawn(struct world *world)
{
    struct fsdp_err err = { 0 };

    world->noticed = false;
    world->started = false;
    world->stop_signal = 0;
    world->signs_ns = 0;
    hang_bounds_begin(&world->bounds, world->config->hang_timeout_ms * 1000000, world->plan.world_size,
                      world->plan.resume_step >= 0);
    world_life_begin(world);
    world->lost = false;
    world->suspected_ns = 0;
    timer_pipe_reset(world->timers);
    world_account_drop(world);
    free(world->workers);
    world->workers = NULL;
    if (!world_make_links(world, &err) || (world->start = create(world)) == NULL) {
        world_say(world, err.status != FSDP_OK ? err.message : "out of memory");
        world_post(world, WE_FAILED);
        world_post(world, WE_REAPED);
        return;
    }
    disk_submit(world->services.disk, &world->start->job);
}

/* A start that takes long */

static void look_at_files(struct world *world, struct world_start *start)
{
    char why[START_WAIT_WORDS_BYTES];
    struct death death = { 0 };

    if (!start_wait_look_at_disk(&start->wait, world_now_ns(world), world->services.console, why))
        return;
    worker_system_refused(&death, "its program and files", why);
    refuse(world, &world->workers[0], &death);
}

static void look_at_exec(struct world *world, struct worker *worker)
{
    const enum start_news news = start_wait_look(&worker->exec, world_now_ns(world));
    char what[96], where[160], place[128];
    struct death death = { 0 };
    char state;

    if (news == START_NO_NEWS)
        return;
    state = descendants_state(worker->child.pid, place, sizeof place);
    snprintf(where, sizeof where, "no answer for %d s (state %c, waits in %.100s)",
             worker->exec.waited_ms / 1000, state, place);
    if (news == START_IS_SLOW) {
        console_say(world->services.console, "fsdprun: rank %d (pid %d): exec of %.200s: %s", worker->rank,
                    (int)worker->child.pid, world->program, where);
        return;
    }
    snprintf(what, sizeof what, "exec of %.80s", world->config->argv[0]);
    worker_system_refused(&death, what, where);
    refuse(world, worker, &death);
}

void world_look_at_start(struct world *world)
{
    bool all = true;

    if (world->started || (world->state != WS_RUNNING && world->state != WS_LEAVING))
        return;
    if (world->start != NULL) {
        look_at_files(world, world->start);
        return;
    }
    for (int i = 0; i < world->config->n_workers; i++) {
        struct worker *worker = &world->workers[i];

        if (worker->live && !worker_executed(worker, world->services.os, world->config))
            look_at_exec(world, worker);
        /* A worker that has ended in the meantime counts as started, too. */
        all = all && worker->child.pid > 0 && worker->exec_fd < 0 && !worker->refused;
    }
    world->started = all;
    if (all && world->config->observer.started != NULL)
        world->config->observer.started(world->config->observer.arg);
}
