/*
 * The run as the commands over jobs see it: its entry in the registry, what it answers, and what it does when
 * it is told to.
 */
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fsdp/link.h>

#include "agent/desk/job_view.h"
#include "agent/run/run_impl.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/version.h"

/* What it answers */

static enum job_state state_of(const struct run *run, const struct world_view *world)
{
    if (run->refused || run->ending != RUN_GOES_ON)
        return run->status == 0 ? JOB_COMPLETE : JOB_FAILED;
    if (run->lead.stopped_by != 0 || (world->state == WV_ENDING && world->by_signal))
        return JOB_STOPPING;
    if (!world->formed)
        return JOB_STARTING;
    if (world->state == WV_UP)
        return world->started ? JOB_RUNNING : world->plan->generation == 0 ? JOB_STARTING : JOB_RESTARTING;
    /*
     * WV_LEAVING: the ranks were asked to save. Only the coordinator knows why; a stop of its own was handled
     * above
     */
    return world->state == WV_LEAVING && run->coordinator == NULL ? JOB_STOPPING : JOB_RESTARTING;
}

/* Fill in what `ps` shows. */
static void look(const struct run *run, struct job_view *view)
{
    const struct agent_config *config = run->config;
    const struct registry_job *about = &run->desk.about;
    struct world_view world = { 0 };

    if (run->world != NULL)
        world_view(run->world, &world);
    *view = (struct job_view){ .id = about->id,
                               .name = about->name,
                               .state = state_of(run, &world),
                               .n_nodes = config->n_nodes,
                               .n_ranks = config->n_nodes * config->n_workers,
                               .step = -1,
                               .loss = (double)NAN,
                               .tokens_per_s = (double)NAN,
                               .age_s = (double)(clock_now_ns() - run->desk.began_ns) / 1e9,
                               .run_dir = about->run_dir[0] != '\0' ? about->run_dir : NULL,
                               .node_rank = run->node_rank };
    if (!world.formed)
        return;
    view->n_nodes = world.plan->n_nodes;
    view->n_ranks = world.plan->world_size;
    view->generation = world.plan->generation;
    view->n_restarts = world.plan->restart_count;
    view->node_rank = world.plan->node_rank;
    if (!world.has_progress)
        return;
    view->step = (int64_t)world.progress.step;
    view->loss = world.progress.loss;
    view->tokens_per_s = world.progress.tokens_per_s;
}

/* The GPU that the worker has named on its page, as it was sampled last (agent/placement/gpu_health.h). */
static void look_at_gpu(const struct fsdp_progress *page, struct job_worker *worker)
{
    worker->gpu_percent = worker->gpu_memory_bytes = -1;
    if (page == NULL || atomic_load_explicit(&page->gpu.named, memory_order_acquire) != 1)
        return;
    snprintf(worker->gpu, sizeof worker->gpu, "%.*s", (int)sizeof page->gpu.id, page->gpu.id);
    if (atomic_load_explicit(&page->gpu.n_samples, memory_order_acquire) == 0)
        return;
    worker->gpu_percent = atomic_load_explicit(&page->gpu.utilisation_percent, memory_order_relaxed);
    worker->gpu_memory_bytes = atomic_load_explicit(&page->gpu.memory_used_bytes, memory_order_relaxed);
}

/* Adds the member `workers`. */
static void put_workers(const struct run *run, struct job_view *view, struct json_text *out)
{
    struct world_view world = { 0 };
    struct job_worker *workers;

    if (run->world != NULL)
        world_view(run->world, &world);
    workers = world.formed ? calloc((size_t)run->config->n_workers, sizeof *workers) : NULL;
    for (int i = 0; workers != NULL && i < run->config->n_workers; i++) {
        world_show_worker(run->world, i, &workers[i].rank, &workers[i].pid, &workers[i].phase,
                          &workers[i].step);
        look_at_gpu(world_page(run->world, i), &workers[i]);
    }
    view->workers = workers;
    view->n_workers = workers != NULL ? run->config->n_workers : 0;
    job_view_put_workers(out, view);
    free(workers);
}

static void put_path(struct json_text *out, const char *key, const char *path)
{
    json_field_string(out, key, path[0] != '\0' ? path : NULL);
}

/*
 * Adds the job as one line. Newlines in its JSON may become spaces, because JSON escapes newlines inside of
 * texts.
 */
static void put_job_file(struct json_text *out, const char *json)
{
    json_key(out, "job_file");
    if (json == NULL)
        json_add(out, "null");
    while (json != NULL && *json != '\0') {
        const size_t n = strcspn(json, "\n");

        json_add_bytes(out, json, n);
        if (json[n] == '\n')
            json_add(out, " ");
        json += n + (json[n] == '\n');
    }
}

/* Adds what only `inspect` shows. It leaves out the environment, which may have secrets. */
static void put_everything(const struct run *run, struct json_text *out)
{
    const struct agent_config *config = run->config;
    char directory[REGISTRY_PATH_BYTES] = "", host[256] = "";

    if (getcwd(directory, sizeof directory) == NULL)
        directory[0] = '\0';
    gethostname(host, sizeof host - 1);
    json_field(out, "pid", "%d", (int)run->desk.about.pid);
    json_field(out, "agent_pid", "%d", (int)getpid());
    json_field_string(out, "host", host);
    json_field_bool(out, "coordinates", run->coordinator != NULL);
    json_field(out, "started", "%.6f", run->desk.about.started_s);
    json_field_string(out, "version", version_number());
    put_path(out, "directory", directory);
    job_view_put_command(out, config->command);
    json_field(out, "max_restarts", "%d", config->max_restarts);
    put_job_file(out, config->job_json);
}

static void on_show(void *arg, enum desk_word word, struct json_text *answer)
{
    const struct run *run = arg;
    struct job_view view;

    look(run, &view);
    if (word == DESK_WATCH || word == DESK_WATCH_ALL)
        /* left out: it changes all the time, and the caller knows when the run began */
        view.age_s = (double)NAN;
    json_open(answer, NULL, '{');
    job_view_put(answer, &view);
    if (word != DESK_PS && word != DESK_WATCH)
        put_workers(run, &view, answer);
    if (word == DESK_INSPECT)
        put_everything(run, answer);
    json_close(answer, '}');
}

/* What it is told to do */

static int refuse(char *reason, int status, const char *words)
{
    snprintf(reason, DESK_REASON_BYTES, "%s", words);
    return status;
}

static int restart(struct run *run, char *reason)
{
    if (run->ending != RUN_GOES_ON || run->lead.stopped_by != 0)
        return refuse(reason, FSDP_EXIT_PEER, "the job is ending");
    if (run->coordinator == NULL)
        return refuse(reason, FSDP_EXIT_PEER,
                      "another node coordinates the job: it is restarted there, or none has begun yet");
    return coordinator_restart(run->coordinator)
               ? 0
               : refuse(reason, FSDP_EXIT_PEER, "no generation runs now: it is starting, or ending");
}

static int on_order(void *arg, enum desk_word word, char *reason)
{
    struct run *run = arg;

    if (word == DESK_RESTART)
        return restart(run, reason);
    if (word == DESK_SAVE && run->config->job_json == NULL)
        return refuse(reason, FSDP_EXIT_CONFIG, "a program cannot be asked to save: only a job can");
    run_end_by(run, SIGTERM, word == DESK_SAVE);
    return 0;
}

/* The entry */

static void make_entry(struct disk_job *job)
{
    struct run_desk *desk = (struct run_desk *)job;

    (void)registry_enter(&desk->entry, &desk->about, &desk->listen_fd, &desk->err);
}

static void on_entry(struct disk_job *job)
{
    struct run_desk *desk = (struct run_desk *)job;
    struct run *run = (struct run *)((char *)desk - offsetof(struct run, desk));
    const struct desk_handlers handlers = { .arg = run, .show = on_show, .order = on_order };

    if (desk->entry != NULL)
        (void)desk_open(&desk->desk, run->loop, desk->listen_fd, &handlers, &desk->err);
    /* not a line about a missing /proc: it would be the first line of every run on such a machine */
    if (desk->err.status != FSDP_OK && desk->err.status != FSDP_ERR_UNSUPPORTED && !run->config->quiet)
        run_say(run, "`fsdprun ps` does not show this run: %s", desk->err.message);
    if (run->config->observer.listed != NULL)
        run->config->observer.listed(run->config->observer.arg);
}

void run_desk_open(struct run *run)
{
    const struct agent_config *config = run->config;
    struct run_desk *desk = &run->desk;

    desk->listen_fd = -1;
    if (config->list_name == NULL || run->ending != RUN_GOES_ON || run->refused)
        return;
    desk->about.pid = getppid();
    snprintf(desk->about.id, sizeof desk->about.id, "%d", (int)desk->about.pid);
    snprintf(desk->about.name, sizeof desk->about.name, "%s", config->list_name);
    snprintf(desk->about.run_dir, sizeof desk->about.run_dir, "%s",
             config->run_dir != NULL ? config->run_dir : "");
    desk->job = (struct disk_job){ .work = make_entry, .done = on_entry };
    if (config->entry == NULL) {
        disk_submit(run->disk, &desk->job);
        return;
    }
    desk->entry = config->entry; /* a copy of the entry: the guard has another one, and the lock */
    desk->listen_fd = config->entry_fd;
    on_entry(&desk->job);
}

void run_desk_close(struct run *run)
{
    desk_close(run->desk.desk, run->status, run->line);
    registry_leave(run->desk.entry);
    run->desk.desk = NULL;
    run->desk.entry = NULL;
}
