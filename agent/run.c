#include "agent/run.h"

#include <cjson/cJSON.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/console.h"
#include "agent/coordinator.h"
#include "agent/error_file.h"
#include "agent/errors.h"
#include "agent/events.h"
#include "agent/logs.h"
#include "agent/nodes.h"
#include "agent/rundir.h"
#include "agent/uplink.h"
#include "agent/worker_env.h"
#include "agent/world.h"

enum { DISK_WAIT_MS = 5000, DISK_LOOK_MS = 20, LINE_BYTES = 1024, ACCOUNT_BYTES = 16384 };

struct run {
    uv_loop_t *loop;
    const struct agent_config *config;
    void (*done)(void *arg, int status, bool stuck);
    void *done_arg;

    struct rundir *rundir;
    struct events *events;
    struct console *console;
    struct logs *logs;
    const struct os_baseline *baseline;
    struct uplink *uplink; /* of several nodes: we meet, or are a member; NULL: we are the coordinator */
    struct coordinator *coordinator; /* NULL unless we are */
    struct nodes *nodes;             /* the other nodes, on the coordinator's; NULL where there are none */
    struct world *world;             /* NULL while it is open who coordinates */
    uv_signal_t children;
    uv_timer_t disk;
    int n_handles;
    int disk_waited_ms;
    bool job_written, stuck, captured, closing;
    int n_interrupts;
    int node_rank; /* of this node in the last generation; -1: it was in none */
    int status;
    char line[LINE_BYTES];
    char account[ACCOUNT_BYTES]; /* what is shown above the line */
};

int run_start_status(enum fsdp_status status)
{
    switch (status) {
    case FSDP_OK:
        return 0;
    case FSDP_ERR_BUSY:
    case FSDP_ERR_CONFIG:
    case FSDP_ERR_UNSUPPORTED:
        return FSDP_EXIT_CONFIG;
    case FSDP_ERR_IO:
    case FSDP_ERR_NOMEM:
        return FSDP_EXIT_IO;
    default:
        return FSDP_EXIT_BUG;
    }
}

/* --- job.json ----------------------------------------------------------------------------------------------------- */

/* What a program's run was, for whoever finds its directory. */
static char *describe_program(const struct agent_config *config)
{
    cJSON *root = cJSON_CreateObject(), *program = cJSON_AddObjectToObject(root, "program"),
          *argv = cJSON_AddArrayToObject(program, "argv"), *launch = cJSON_AddObjectToObject(root, "launch");
    char *text;

    for (char *const *arg = config->argv; *arg != NULL; arg++)
        cJSON_AddItemToArray(argv, cJSON_CreateString(*arg));
    cJSON_AddStringToObject(launch, "run_id", config->run_id);
    cJSON_AddNumberToObject(launch, "nproc_per_node", config->n_workers);
    cJSON_AddNumberToObject(launch, "nnodes", config->n_nodes);
    cJSON_AddNumberToObject(launch, "max_restarts", config->max_restarts);
    text = cJSON_Print(root);
    cJSON_Delete(root);
    return text;
}

/* With the first generation, and not before: a run that is refused leaves the directory as it was. */
static void write_job(struct run *run)
{
    struct fsdp_err err = { 0 };
    char *text = NULL;
    const char *job = run->config->job_json;

    if (run->job_written || run->rundir == NULL || run->coordinator == NULL)
        return;
    run->job_written = true;
    if (job == NULL)
        job = text = describe_program(run->config);
    if (job != NULL && rundir_write(run->rundir, "job.json", job, strlen(job), &err) != FSDP_OK)
        console_say(run->console, "fsdprun: %s", err.message);
    free(text);
}

/* --- the coordinator's member on this node ------------------------------------------------------------------------ */

static enum fsdp_status open_as_member(struct run *run, struct fsdp_err *err);
static void on_world_ended(void *arg);

/* What is needed to run anything cannot be had here: the first rank fails, for everybody to hear. */
static void report_unfit(struct run *run, const struct world_plan *plan, enum fsdp_status status,
                         const char *words)
{
    struct death death = { .kind = DEATH_SPAWN,
                           .rank = plan->first_rank,
                           .local_rank = 0,
                           .code = run_start_status(status),
                           .step = -1,
                           .phase = -1 };

    gethostname(death.host, sizeof death.host - 1);
    snprintf(death.words, sizeof death.words, "%.200s", words);
    uplink_exited(run->uplink, plan->generation, &death, NULL);
    uplink_stopped(run->uplink, plan->generation);
}

static void member_form(void *member, const struct world_plan *plan)
{
    struct run *run = member;
    struct fsdp_err err = { 0 };
    enum fsdp_status status = run->world != NULL ? FSDP_OK : open_as_member(run, &err);

    if (status != FSDP_OK) {
        report_unfit(run, plan, status, err.message);
        return;
    }
    run->node_rank = plan->node_rank;
    world_form(run->world, plan);
    write_job(run); /* after the start: it waits for the disk */
}

static void member_stop(void *member, int signal, bool now)
{
    struct run *run = member;

    world_stop(run->world, signal, now);
}

static void member_forward(void *member, int signal)
{
    struct run *run = member;

    world_forward(run->world, signal);
}

static void member_notify(void *member, const struct fsdp_link_notice *notice)
{
    struct run *run = member;

    world_notify(run->world, notice);
}

static void member_publish(void *member, const struct fsdp_link_published *published)
{
    struct run *run = member;

    world_publish(run->world, published);
}

static void member_put(void *member, int generation, const char *key, const void *value, size_t size_bytes)
{
    struct run *run = member;

    world_put(run->world, generation, key, value, size_bytes);
}

/* Whoever started us as a worker of theirs is told in their error file what ended us, as torchrun does. */
static void pass_error_on(const struct run *run, const struct coordinator_end *end)
{
    const struct agent_config *config = run->config;
    const char *to = config->environment != NULL
                         ? worker_env_find(config->environment, "TORCHELASTIC_ERROR_FILE")
                         : getenv("TORCHELASTIC_ERROR_FILE");
    const char *from = end->node == run->node_rank && end->detail != NULL ? end->detail->error_file : NULL;
    struct fsdp_err err = { 0 };

    if (to == NULL || to[0] == '\0' || end->detail == NULL || end->detail->error_file[0] == '\0')
        return; /* nobody asked, or there is no error file */
    if (error_file_pass_on(from, to, end->detail, end->code, &err) != FSDP_OK)
        console_say(run->console, "fsdprun: TORCHELASTIC_ERROR_FILE: %s", err.message);
}

static void member_finish(void *member, const struct coordinator_end *end)
{
    struct run *run = member;

    run->status = end->status;
    snprintf(run->line, sizeof run->line, "%s", end->line);
    errors_account(end->detail, run->account, sizeof run->account);
    pass_error_on(run, end);
    if (run->world != NULL)
        world_end(run->world);
    else
        on_world_ended(run);
}

static const struct coordinator_member local_member = {
    .form = member_form,
    .stop = member_stop,
    .forward = member_forward,
    .notify = member_notify,
    .publish = member_publish,
    .put = member_put,
    .finish = member_finish,
};

/* --- the world's listener ----------------------------------------------------------------------------------------- */

static void on_exited(void *arg, int generation, const struct death *death,
                      const struct errors_detail *detail)
{
    struct run *run = arg;

    if (run->uplink != NULL)
        uplink_exited(run->uplink, generation, death, detail);
    else
        coordinator_exited(run->coordinator, COORDINATOR_SELF, generation, death, detail);
}

static void on_stopped(void *arg, int generation)
{
    struct run *run = arg;

    if (run->uplink != NULL)
        uplink_stopped(run->uplink, generation);
    else
        coordinator_stopped(run->coordinator, COORDINATOR_SELF, generation);
}

static void on_event(void *arg, int generation, int rank, const char *json, size_t length)
{
    struct run *run = arg;

    if (run->uplink != NULL)
        uplink_event(run->uplink, generation, rank, json, length);
    else
        coordinator_event(run->coordinator, COORDINATOR_SELF, generation, rank, json, length);
}

static void on_saved(void *arg, int generation, int rank, const struct fsdp_link_saved *saved,
                     int manifest_fd)
{
    struct run *run = arg;

    if (run->uplink == NULL) {
        coordinator_saved(run->coordinator, COORDINATOR_SELF, generation, rank, saved, manifest_fd);
        return;
    }
    if (manifest_fd >= 0)
        close(manifest_fd); /* the head is rank 0's, and rank 0 lives with the coordinator */
    uplink_saved(run->uplink, generation, rank, saved);
}

static void on_put(void *arg, int generation, const char *key, const void *value, size_t size_bytes)
{
    struct run *run = arg;

    if (run->uplink != NULL)
        uplink_put(run->uplink, generation, key, value, size_bytes);
    else
        coordinator_put(run->coordinator, COORDINATOR_SELF, generation, key, value, size_bytes);
}

static void on_record(void *arg, int generation, const char *event, const struct events_field *fields)
{
    struct run *run = arg;

    if (run->uplink != NULL)
        uplink_record(run->uplink, generation, event, fields);
    else
        coordinator_record(run->coordinator, COORDINATOR_SELF, generation, event, fields);
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* The first cause is the last line, so that it is what stands above the prompt. */
static void say_last(const struct run *run)
{
    if (run->line[0] == '\0' || (run->config->quiet && run->status == FSDP_EXIT_NOTICE))
        return;
    dprintf(run->config->stdio[2], "%s", run->account);
    dprintf(run->config->stdio[2], "fsdprun: %s\n", run->line);
}

/* One that was made for this run, which never began: it goes as it came. */
static void discard_directory(struct run *run)
{
    const struct rundir_spec spec = { .kind = RUNDIR_PROGRAM,
                                      .path = run->config->run_dir,
                                      .temporary = true };

    if (run->config->run_dir == NULL || !run->config->run_dir_temporary ||
        rundir_open(&run->rundir, &spec, NULL) != FSDP_OK)
        return;
    rundir_close(run->rundir, true);
    run->rundir = NULL;
}

static void finish(struct run *run)
{
    void (*done)(void *, int, bool) = run->done;
    void *arg = run->done_arg;
    const int status = run->status;
    const bool stuck = run->stuck;

    say_last(run);
    events_close(run->events);
    if (run->rundir == NULL)
        discard_directory(run);
    rundir_close(run->rundir, !run->captured && status == 0);
    free(run);
    done(arg, status, stuck);
}

static void on_closed(uv_handle_t *handle)
{
    struct run *run = handle->data;

    if (--run->n_handles == 0)
        finish(run);
}

static void close_all(struct run *run)
{
    run->closing = true;
    uplink_destroy(run->uplink);
    nodes_destroy(run->nodes);
    world_destroy(run->world);
    run->world = NULL;
    logs_destroy(run->logs);
    console_destroy(run->console);
    uv_close((uv_handle_t *)&run->children, on_closed);
    uv_close((uv_handle_t *)&run->disk, on_closed);
}

/* A publication or a look at the checkpoints may be under way; a disk that hangs must not hold the end up. */
static void on_disk(uv_timer_t *timer)
{
    struct run *run = timer->data;

    run->disk_waited_ms += DISK_LOOK_MS;
    if (!coordinator_destroy(run->coordinator)) {
        if (run->disk_waited_ms < DISK_WAIT_MS)
            return;
        console_say(run->console, "fsdprun: the disk does not answer; leaving without it");
        run->stuck = true; /* the coordinator stays for the thread that may still come back */
    }
    run->coordinator = NULL;
    uv_timer_stop(&run->disk);
    close_all(run);
}

static void on_drained(void *arg)
{
    struct run *run = arg;

    uv_timer_start(&run->disk, on_disk, 0, DISK_LOOK_MS);
}

static void on_world_ended(void *arg)
{
    struct run *run = arg;

    if (run->logs != NULL)
        logs_drain(run->logs, on_drained, run);
    else
        on_drained(run);
}

/* --- from outside ------------------------------------------------------------------------------------------------- */

static void stop(struct run *run, int signal, bool now)
{
    if (run->uplink != NULL)
        uplink_stop(run->uplink, signal, now);
    else
        coordinator_stop(run->coordinator, signal, now);
}

static void save_and_stop(struct run *run, int signal)
{
    if (run->uplink != NULL)
        uplink_notice(run->uplink, signal);
    else
        coordinator_notice(run->coordinator, signal);
}

static void forward(struct run *run, int signal)
{
    if (run->uplink != NULL)
        uplink_forward(run->uplink, signal);
    else
        coordinator_forward(run->coordinator, signal);
}

void run_signal(struct run *run, int signal)
{
    const unsigned save = run->config->save_on_signal;

    if (run->closing || (run->uplink == NULL && run->coordinator == NULL))
        return; /* the end has begun; or this node was to host and could not, and is about to end */
    if ((signal == SIGTERM && (save & AGENT_SAVE_TERM) != 0) ||
        (signal == SIGUSR1 && (save & AGENT_SAVE_USR1) != 0))
        save_and_stop(run, signal);
    else if ((run->config->stop_signals >> signal & 1) != 0)
        stop(run, signal, signal == SIGINT && ++run->n_interrupts > 1);
    else if ((run->config->forward_signals >> signal & 1) != 0)
        forward(run, signal);
}

void run_suspended(struct run *run, int64_t slept_ns)
{
    if (run->world != NULL)
        world_suspended(run->world, slept_ns);
}

static void on_child(uv_signal_t *handle, int signal)
{
    struct run *run = handle->data;

    (void)signal;
    if (run->world != NULL)
        world_reap(run->world);
}

static bool is_captured(const struct agent_config *config)
{
    for (int i = 0; i < config->n_workers; i++)
        for (unsigned stream = AGENT_STDOUT; stream <= AGENT_STDERR; stream++) {
            const enum logs_mode mode = worker_log_mode(config, i, stream);

            if (mode == LOGS_FILE || mode == LOGS_TEE)
                return true;
        }
    return false;
}

/* --- opening -------------------------------------------------------------------------------------------------------- */

static enum fsdp_status open_directory(struct run *run, bool coordinates, struct fsdp_err *err)
{
    const struct rundir_spec spec = { .kind = run->config->job_json != NULL ? RUNDIR_JOB : RUNDIR_PROGRAM,
                                      .path = run->config->run_dir,
                                      .lock = coordinates,
                                      .temporary = run->config->run_dir_temporary };
    enum fsdp_status status;

    if (run->config->run_dir == NULL)
        return FSDP_OK;
    status = rundir_open(&run->rundir, &spec, err);
    return status != FSDP_OK || !coordinates
               ? status
               : events_open(&run->events, rundir_fd(run->rundir), "events.jsonl", err);
}

static enum fsdp_status open_output(struct run *run, struct fsdp_err *err)
{
    const struct agent_config *config = run->config;
    const struct logs_rotation rotation = { config->output.file_limit_bytes, config->output.n_rotated };
    enum fsdp_status status;

    run->captured = is_captured(config);
    if (config->output.no_files &&
        (config->output.stdout_filters != NULL || config->output.stderr_filters != NULL))
        return fsdp_fail(err, FSDP_ERR_CONFIG,
                         "lines cannot be kept a second time (--duplicate-stdout-filters, "
                         "--duplicate-stderr-filters) where no log is kept");
    if (!run->captured && config->job_json == NULL)
        return FSDP_OK; /* everything is inherited: nothing stands between the workers and the terminal */
    status = run->console != NULL
                 ? FSDP_OK
                 : console_create(&run->console, run->loop, config->stdio[1], config->stdio[2], err);
    if (status != FSDP_OK || run->logs != NULL)
        return status;
    return logs_create(&run->logs, run->loop, config->output.no_files ? NULL : run->rundir, run->console,
                       &rotation, err);
}

static enum fsdp_status open_coordinator(struct run *run, struct fsdp_err *err)
{
    const struct coordinator_services services = { .loop = run->loop,
                                                   .os = &agent_os_linux,
                                                   .io = &io_posix,
                                                   .rundir = run->rundir,
                                                   .events = run->events,
                                                   .console = run->console };

    return coordinator_create(&run->coordinator, run->config, &services, err);
}

static enum fsdp_status open_world(struct run *run, struct fsdp_err *err)
{
    const struct world_services services = { .loop = run->loop,
                                             .os = &agent_os_linux,
                                             .baseline = run->baseline,
                                             .rundir = run->rundir,
                                             .logs = run->logs,
                                             .console = run->console };
    const struct world_listener listener = { .arg = run,
                                             .exited = on_exited,
                                             .stopped = on_stopped,
                                             .event = on_event,
                                             .saved = on_saved,
                                             .record = on_record,
                                             .put = run->config->n_nodes > 1 ? on_put : NULL,
                                             .ended = on_world_ended };

    return world_create(&run->world, run->config, &services, &listener, err);
}

/* For each generation until it succeeds: what an earlier try opened is kept. */
static enum fsdp_status open_as_member(struct run *run, struct fsdp_err *err)
{
    enum fsdp_status status = run->rundir != NULL ? FSDP_OK : open_directory(run, false, err);

    if (status == FSDP_OK)
        status = open_output(run, err);
    return status != FSDP_OK ? status : open_world(run, err);
}

/* The world last: it alone has to be ended before it may be destroyed. */
static enum fsdp_status open_as_coordinator(struct run *run, struct rendezvous *rendezvous,
                                            struct fsdp_err *err)
{
    enum fsdp_status status = open_directory(run, true, err);

    if (status == FSDP_OK)
        status = open_output(run, err);
    if (status == FSDP_OK)
        status = open_coordinator(run, err);
    if (status == FSDP_OK && rendezvous != NULL) {
        status = nodes_create(&run->nodes, run->config, rendezvous, run->coordinator, run->console, err);
        rendezvous = NULL;
    }
    rendezvous_destroy(rendezvous);
    return status != FSDP_OK ? status : open_world(run, err);
}

/* --- several nodes -------------------------------------------------------------------------------------------------- */

static void on_note(void *member, const char *words)
{
    const struct run *run = member;

    if (run->console != NULL)
        console_say(run->console, "fsdprun: %s", words);
    else
        dprintf(run->config->stdio[2], "fsdprun: %s\n", words);
}

static void on_hosts(void *member, struct rendezvous *rendezvous, const char *where)
{
    struct run *run = member;
    struct fsdp_err err = { 0 };
    char words[ENDPOINT_TEXT_BYTES + 64];
    enum fsdp_status status;

    uplink_destroy(run->uplink);
    run->uplink = NULL;
    status = open_as_coordinator(run, rendezvous, &err);
    if (status != FSDP_OK) {
        run->status = run_start_status(status);
        snprintf(run->line, sizeof run->line, "%s", err.message);
        on_world_ended(run);
        return;
    }
    if (!run->config->quiet) {
        snprintf(words, sizeof words, "this node hosts, at %s; waiting for the others", where);
        on_note(run, words);
    }
    coordinator_attach(run->coordinator, COORDINATOR_SELF, &local_member, run);
}

enum fsdp_status run_start(struct run **out, uv_loop_t *loop, const struct agent_config *config,
                           const struct os_baseline *baseline,
                           void (*done)(void *arg, int status, bool stuck), void *arg, struct fsdp_err *err)
{
    static const struct uplink_handlers handlers = { on_hosts, on_note };
    struct run *run = calloc(1, sizeof *run);
    enum fsdp_status status;

    *out = NULL;
    if (run == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    run->loop = loop;
    run->config = config;
    run->baseline = baseline;
    run->node_rank = -1;
    run->done = done;
    run->done_arg = arg;
    if (config->n_nodes > 1)
        status = uplink_create(&run->uplink, loop, config, &local_member, &handlers, run, err);
    else
        status = open_as_coordinator(run, NULL, err);
    if (status != FSDP_OK) {
        coordinator_destroy(run->coordinator);
        logs_destroy(run->logs);
        console_destroy(run->console);
        events_close(run->events);
        if (run->rundir == NULL)
            discard_directory(run);
        rundir_close(run->rundir, true);
        free(run);
        return status;
    }
    uv_signal_init(loop, &run->children);
    uv_timer_init(loop, &run->disk);
    run->children.data = run->disk.data = run;
    run->n_handles = 2;
    uv_signal_start(&run->children, on_child, SIGCHLD);
    *out = run;
    if (run->coordinator != NULL)
        coordinator_attach(run->coordinator, COORDINATOR_SELF, &local_member, run);
    return FSDP_OK;
}
