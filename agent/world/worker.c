#include "agent/world/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/output/log_index.h"
#include "agent/world/worker_env.h"

enum { STATUS_NOT_EXECUTABLE = 126, STATUS_NOT_FOUND = 127 };

enum logs_mode worker_log_mode(const struct agent_config *config, int local_rank, unsigned stream)
{
    const struct agent_output *output = &config->output;
    const bool shown = output->shown == NULL || output->shown[local_rank];

    if (output->redirects != NULL && (output->redirects[local_rank] & stream) != 0 &&
        (output->tees == NULL || (output->tees[local_rank] & stream) == 0))
        return LOGS_FILE;
    if (config->job_json != NULL || output->prefix ||
        (output->tees != NULL && (output->tees[local_rank] & stream) != 0))
        return shown ? LOGS_TEE : LOGS_FILE;
    return shown ? LOGS_INHERIT : LOGS_NULL;
}

/* Which lines are kept a second time: of streams that are teed, whether their rank is shown or not. */
static char *const *filters_of(const struct agent_config *config, int local_rank, enum rundir_stream stream)
{
    const struct agent_output *output = &config->output;
    const unsigned bit = stream == RUNDIR_STDOUT ? AGENT_STDOUT : AGENT_STDERR;
    const bool redirected = output->redirects != NULL && (output->redirects[local_rank] & bit) != 0,
               teed = output->tees != NULL && (output->tees[local_rank] & bit) != 0;

    if (!teed && (redirected || (config->job_json == NULL && !output->prefix)))
        return NULL;
    return stream == RUNDIR_STDOUT ? output->stdout_filters : output->stderr_filters;
}

void worker_cannot_start(struct death *death, const char *program, int error, bool found)
{
    death->kind = DEATH_SPAWN;
    /* Found, and yet there is no such file: that is what its first line names. */
    death->code = error == ENOENT && !found ? STATUS_NOT_FOUND : STATUS_NOT_EXECUTABLE;
    snprintf(death->words, sizeof death->words, "cannot start %.160s: %s", program,
             error == ENOENT && found ? "its interpreter is not there" : strerror(error));
}

static void system_refused(struct death *death, const char *what, const char *why)
{
    death->kind = DEATH_SPAWN;
    death->code = FSDP_EXIT_PEER; /* as for a world that cannot be formed; another try may help */
    snprintf(death->words, sizeof death->words, "cannot start a worker: %.60s: %.150s", what, why);
}

static void fill_hello(struct fsdp_link_hello *hello, const struct worker_context *context,
                       const struct worker *worker)
{
    const struct world_plan *plan = context->plan;

    *hello = (struct fsdp_link_hello){
        .rank = (uint32_t)worker->rank,
        .world_size = (uint32_t)plan->world_size,
        .local_rank = (uint32_t)worker->local_rank,
        .local_world_size = (uint32_t)context->config->n_workers,
        .node_rank = (uint32_t)plan->node_rank,
        .n_nodes = (uint32_t)plan->n_nodes,
        .generation = (uint32_t)plan->generation,
        .threads = (uint32_t)context->placement->threads,
        .resume_step = plan->resume_step,
        .first_step_ns = context->os->now_ns(context->os->arg),
    };
    if (context->rundir != NULL)
        snprintf(hello->run_dir, sizeof hello->run_dir, "%s", rundir_path(context->rundir));
    snprintf(hello->node_address, sizeof hello->node_address, "%s", plan->node_address);
    memcpy(hello->token, plan->token, sizeof hello->token);
    hello->kept_bytes = context->kept->n_bytes;
    memcpy(hello->kept, context->kept->bytes, sizeof hello->kept);
}

static bool open_stream(const struct worker_context *context, const struct worker *worker,
                        enum rundir_stream stream, int *fd, struct fsdp_err *err)
{
    const struct agent_config *config = context->config;
    struct logs_names names = { .rank = worker->rank,
                                .local_rank = worker->local_rank,
                                .generation = context->plan->generation,
                                .role_name = config->role,
                                .host = context->host,
                                .stream = stream };
    struct logs_spec spec = { .generation = context->plan->generation,
                              .rank = worker->rank,
                              .local_rank = worker->local_rank,
                              .stream = stream };
    char prefix[256];

    *fd = -1;
    spec.mode =
        worker_log_mode(config, worker->local_rank, stream == RUNDIR_STDOUT ? AGENT_STDOUT : AGENT_STDERR);
    if (spec.mode == LOGS_NULL) {
        *fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
        return *fd >= 0 || fsdp_fail(err, FSDP_ERR_IO, "open /dev/null: %s", strerror(errno)) == FSDP_OK;
    }
    if (spec.mode == LOGS_INHERIT || context->logs == NULL)
        return true;
    spec.filters = filters_of(config, worker->local_rank, stream);
    spec.prefix = logs_prefix(prefix, sizeof prefix, config->output.prefix_template, &names);
    return logs_open(context->logs, &spec, fd, err) == FSDP_OK;
}

/* What it inherits goes by the relay: stderr, and stdout with it where both come out at one place. */
static bool open_relayed(const struct worker_context *context, const struct worker *worker, int streams[2],
                         struct fsdp_err *err)
{
    const struct agent_config *config = context->config;
    const enum logs_mode out = worker_log_mode(config, worker->local_rank, AGENT_STDOUT),
                         mode = worker_log_mode(config, worker->local_rank, AGENT_STDERR);

    if (context->relay == NULL || (mode != LOGS_INHERIT && mode != LOGS_NULL))
        return true;
    if (streams[1] >= 0)
        close(streams[1]); /* of LOGS_NULL: not shown, and yet kept for its last words */
    if (relay_open(context->relay, context->plan->generation, worker->rank, mode == LOGS_INHERIT, &streams[1],
                   err) != FSDP_OK)
        return false;
    if (streams[1] < 0 && mode == LOGS_NULL)
        streams[1] = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (streams[1] >= 0 && out == LOGS_INHERIT && mode == LOGS_INHERIT && relay_joins(context->relay))
        streams[0] = fcntl(streams[1], F_DUPFD_CLOEXEC, 3);
    return true;
}

bool worker_error_file(const struct agent_config *config, struct rundir *rundir, int generation,
                       const struct worker *worker, char *out, size_t size)
{
    char folder[RUNDIR_PATH_BYTES];

    return rundir != NULL && config->job_json == NULL &&
           rundir_rank_folder(rundir, generation, worker->rank, worker->local_rank, folder, NULL) ==
               FSDP_OK &&
           (size_t)snprintf(out, size, "%s/error.json", folder) < size;
}

/*
 * A scheduler or service manager may signal every process of the run, and the agent alone decides what that means: a
 * worker of ours hears over its link that it is to save and stop, and is ended by KILL.
 */
static const uint64_t job_ignores = UINT64_C(1) << SIGTERM | UINT64_C(1) << SIGINT | UINT64_C(1) << SIGHUP |
                                    UINT64_C(1) << SIGUSR1 | UINT64_C(1) << SIGUSR2;

static bool spawn(struct worker *worker, const struct worker_context *context, int link_fd,
                  const int streams[2])
{
    const struct agent_config *config = context->config;
    const struct world_plan *plan = context->plan;
    char error_file[RUNDIR_PATH_BYTES];
    struct worker_identity identity = {
        .rank = worker->rank,
        .world_size = plan->world_size,
        .local_rank = worker->local_rank,
        .local_world_size = config->n_workers,
        .node_rank = plan->node_rank,
        .n_nodes = plan->n_nodes,
        .role_rank = plan->role_rank + worker->local_rank,
        .role_world_size = plan->role_world_size,
        .virtual_local_rank = config->virtual_local_rank,
        .role = config->role,
        .run_id = config->run_id,
        .master_address = plan->master_address,
        .master_port = plan->master_port,
        .agent_store = config->job_json == NULL && !config->no_store,
        .restart_count = plan->restart_count,
        .max_restarts = config->max_restarts,
        .stop_signals = config->stop_signals_text,
        .timer_file = context->timer_file,
        .threads = context->placement->threads,
        .link_fd = link_fd,
        .run_dir = context->rundir == NULL ? NULL : rundir_path(context->rundir),
    };
    struct os_spawn request = { .path = context->program,
                                .directory = config->directory,
                                .keep_fds = { link_fd, -1 },
                                .cpus = context->placement->cpus == NULL
                                            ? NULL
                                            : &context->placement->cpus[worker->local_rank],
                                .baseline = context->baseline,
                                .ignored = config->job_json != NULL ? job_ignores : 0 };
    struct os_spawn_failure failure;
    char **environment, **argv;
    bool started = false;
    int error = 0;

    if (worker_error_file(config, context->rundir, plan->generation, worker, error_file, sizeof error_file))
        identity.error_file = error_file;
    environment = worker_env_build(context->environment, &identity);
    argv = worker_env_args(config->argv, worker->local_rank);
    if (argv != NULL && config->script > 0)
        error = os_check_script(argv[config->script], config->directory);
    if (environment == NULL || argv == NULL) {
        system_refused(&worker->death, "environment", "out of memory");
    } else if (error != 0) {
        worker_cannot_start(&worker->death, argv[config->script], error, false);
    } else {
        request.argv = argv;
        request.envp = environment;
        request.stdio[0] = config->stdio[0];
        request.stdio[1] = streams[0] >= 0 ? streams[0] : config->stdio[1];
        request.stdio[2] = streams[1] >= 0 ? streams[1] : config->stdio[2];
        started = context->os->spawn(context->os->arg, &request, &worker->child, &failure);
        if (!started && (failure.exec || strcmp(failure.call, "chdir") == 0))
            worker_cannot_start(&worker->death, config->argv[0], failure.error, true);
        else if (!started)
            system_refused(&worker->death, failure.call, strerror(failure.error));
    }
    free(environment);
    free(argv);
    return started;
}

static bool keeps_file(const struct agent_config *config, const struct worker *worker, unsigned stream)
{
    const enum logs_mode mode = worker_log_mode(config, worker->local_rank, stream);

    return mode == LOGS_FILE || mode == LOGS_TEE;
}

/* Who wrote where, for whoever reads the logs; a run that keeps nothing has no index either. */
static void add_to_index(const struct worker_context *context, const struct worker *worker)
{
    const struct agent_config *config = context->config;
    const bool kept = context->logs != NULL && !config->output.no_files;
    const struct log_index_entry entry = { .of_job = config->job_json != NULL,
                                           .shared = config->run_dir_named,
                                           .generation = context->plan->generation,
                                           .node_rank = context->plan->node_rank,
                                           .rank = worker->rank,
                                           .local_rank = worker->local_rank,
                                           .pid = (int)worker->child.pid,
                                           .host = context->host,
                                           .has_stdout = kept && keeps_file(config, worker, AGENT_STDOUT),
                                           .has_stderr = kept && keeps_file(config, worker, AGENT_STDERR) };

    if (context->rundir == NULL || (!kept && config->run_dir_temporary))
        return;
    log_index_add(context->rundir, &entry, NULL); /* it helps a reader; a full disk ends no run */
}

bool worker_start(struct worker *worker, const struct worker_context *context, int local_rank)
{
    struct fsdp_link_hello hello;
    struct fsdp_err err = { 0 };
    int link_fd = -1, streams[2] = { -1, -1 };

    *worker = (struct worker){ .rank = context->plan->first_rank + local_rank,
                               .local_rank = local_rank,
                               .child = { .pidfd = -1 } };
    worker->death = (struct death){ .rank = worker->rank,
                                    .local_rank = local_rank,
                                    .node_rank = context->plan->node_rank,
                                    .step = -1,
                                    .phase = -1 };
    snprintf(worker->death.host, sizeof worker->death.host, "%s", context->host);
    fill_hello(&hello, context, worker);
    if (link_server_add(context->links, local_rank, &hello, context->config->job_json, &link_fd, &err) !=
        FSDP_OK)
        system_refused(&worker->death, "link", err.message);
    else if (!open_stream(context, worker, RUNDIR_STDOUT, &streams[0], &err) ||
             !open_stream(context, worker, RUNDIR_STDERR, &streams[1], &err) ||
             !open_relayed(context, worker, streams, &err))
        system_refused(&worker->death, "output", err.message);
    else
        worker->live = spawn(worker, context, link_fd, streams);
    if (link_fd >= 0)
        close(link_fd);
    for (int i = 0; i < 2; i++)
        if (streams[i] >= 0)
            close(streams[i]);
    worker->death.pid = worker->live ? (int)worker->child.pid : 0;
    if (worker->live)
        add_to_index(context, worker);
    worker->changed_ns = worker->death.when_ns = context->os->now_ns(context->os->arg);
    return worker->live;
}

void worker_read_place(struct death *death, const struct fsdp_progress *page)
{
    int64_t step;

    if (page == NULL || atomic_load_explicit(&page->beat_ns, memory_order_relaxed) == 0)
        return; /* a program that does not use our library, or a worker that has not opened its link */
    step = (int64_t)atomic_load_explicit(&page->step, memory_order_relaxed);
    death->phase = (int)atomic_load_explicit(&page->phase, memory_order_relaxed);
    if (step > 0 || (death->phase != FSDP_PHASE_START && death->phase != FSDP_PHASE_LOAD &&
                     death->phase != FSDP_PHASE_WAIT))
        death->step = step;
}

void worker_ended(struct worker *worker, const siginfo_t *info, bool noticed,
                  const struct fsdp_progress *page, int64_t now_ns)
{
    struct death *death = &worker->death;

    worker->live = false;
    death->when_ns = now_ns;
    death->sent_signal = worker->sent_signal;
    death->killed = worker->killed;
    death->code = info->si_status;
    if (info->si_code == CLD_EXITED)
        death->kind = info->si_status == 0 || (noticed && info->si_status == FSDP_EXIT_NOTICE) ? DEATH_NONE
                                                                                               : DEATH_EXIT;
    else
        death->kind = DEATH_SIGNAL;
    /* Whether a program has met the others is the coordinator's to say: its store is there. */
    death->phase = worker->sent_signal != 0 || worker->killed ? PROGRAM_STOPPING : PROGRAM_STARTING;
    worker_read_place(death, page);
}

void worker_end(struct worker *worker, const struct agent_os *os, int signal)
{
    if (!worker->live || (signal != SIGKILL && worker->sent_signal != 0))
        return;
    if (signal == SIGKILL)
        worker->killed = true;
    else
        worker->sent_signal = signal;
    if (worker->asked_us == 0)
        worker->asked_us = os_epoch_us();
    os->kill_group(os->arg, &worker->child, signal);
    if (signal != SIGKILL)
        os->kill_group(os->arg, &worker->child, SIGCONT); /* one that is stopped acts only when it goes on */
}
