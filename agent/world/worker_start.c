/* The start of a worker, in the steps of worker.h. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/link/link_gate.h"
#include "agent/output/log_index.h"
#include "agent/watch/python_stacks.h"
#include "agent/world/worker.h"
#include "agent/world/worker_env.h"

static void spawn_failed(struct death *death, const struct agent_config *config,
                         const struct os_spawn_failure *failure)
{
    if (failure->exec)
        worker_cannot_start(death, config->argv[0], failure->error, true);
    else
        worker_system_refused(death, failure->call, strerror(failure->error));
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
        .memory_step = plan->memory_step,
        .has_snapshot = context->has_snapshots,
        .memory_is_peer = plan->memory_is_peer,
        .has_copies = context->has_copies,
        .held_bytes = context->held_bytes,
        .lease_ms = plan->lease_ms,
        .term = plan->term,
        .first_step_ns = context->os->now_ns(context->os->arg),
    };
    if (context->rundir != NULL) {
        snprintf(hello->run_dir, sizeof hello->run_dir, "%s", rundir_path(context->rundir));
        rundir_checkpoints(context->rundir, context->config->checkpoint_dir, hello->checkpoint_dir);
    }
    snprintf(hello->node_address, sizeof hello->node_address, "%s", plan->node_address);
    memcpy(hello->token, plan->token, sizeof hello->token);
    hello->kept_bytes = context->kept->n_bytes;
    memcpy(hello->kept, context->kept->bytes, sizeof hello->kept);
}

/*
 * Opens both streams of a worker. If both are inherited and go to the same place, both elements of fds[] are
 * one channel.
 */
static bool open_streams(const struct worker_context *context, int local_rank, struct worker_files *files,
                         int fds[2], struct fsdp_err *err)
{
    enum output_mode modes[2];
    char prefix[256];

    if (context->output == NULL)
        return true;
    for (enum rundir_stream which = RUNDIR_STDOUT; which <= RUNDIR_STDERR; which++) {
        const struct stream_spec spec = worker_stream_spec(context, local_rank, which, prefix);

        modes[which] = spec.mode;
        if (output_open(context->output, &spec, &files->streams[which], &fds[which], err) != FSDP_OK)
            return false;
    }
    if (modes[0] == OUTPUT_INHERIT && modes[1] == OUTPUT_INHERIT && fds[1] >= 0 &&
        output_joins(context->output))
        fds[0] = fcntl(fds[1], F_DUPFD_CLOEXEC, 3);
    return true;
}

/*
 * Signals that a worker of a job ignores. A scheduler or service manager may signal every process of the run,
 * but only the agent decides what the signal means. The agent asks such a worker over its link to save and
 * stop, and ends it by KILL.
 */
static const uint64_t job_ignores = UINT64_C(1) << SIGTERM | UINT64_C(1) << SIGINT | UINT64_C(1) << SIGHUP |
                                    UINT64_C(1) << SIGUSR1 | UINT64_C(1) << SIGUSR2;

static struct worker_identity identity_of(const struct worker *worker, const struct worker_context *context,
                                          int link_fd, int heart_fd)
{
    return (struct worker_identity){
        .config = context->config,
        .plan = context->plan,
        .local_rank = worker->local_rank,
        .threads = context->placement->threads,
        .run_dir = context->rundir == NULL ? NULL : rundir_path(context->rundir),
        .timer_file = context->timer_file,
        .snapshots = context->snapshots,
        .link_fd = link_fd,
        .heart_fd = heart_fd,
        .stacks_fd = worker->stacks_fd,
        .archive_fd = context->archive_fd,
    };
}

/*
 * Make the pipe of a worker's heartbeat and its place for stacks, if the program is watched. The worker's end
 * of the pipe blocks, so that a write never fails. Returns that end, which the caller closes; 0: there is
 * none.
 */
static int open_heart(struct worker *worker, const struct worker_context *context)
{
    int ends[2];

    if (!context->config->watched || context->config->job_json != NULL || pipe2(ends, O_CLOEXEC) < 0)
        return 0;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    worker->heart_fd = ends[0];
    worker->stacks_fd = python_stacks_open();
    if (worker->stacks_fd < 0)
        worker->stacks_fd = 0;
    return ends[1];
}

/* Executes `words` in a new process. With a disk, returns before the exec is done. */
static bool spawn(struct worker *worker, const struct worker_context *context, char *const *words,
                  int link_fd, bool has_error_folder, const int streams[2])
{
    const struct agent_config *config = context->config;
    char error_file[RUNDIR_PATH_BYTES];
    const int heart_fd = open_heart(worker, context);
    struct worker_identity identity = identity_of(worker, context, link_fd, heart_fd);
    struct os_spawn request = {
        .path = context->program,
        .keep_fds = { link_fd, heart_fd > 0 ? heart_fd : -1, worker->stacks_fd > 0 ? worker->stacks_fd : -1,
                      context->archive_fd > 0 ? context->archive_fd : -1 },
        .lock_fd = context->rundir != NULL ? rundir_lock_fd(context->rundir) : 0,
        .cpus = context->placement->cpus == NULL ? NULL : &context->placement->cpus[worker->local_rank],
        .baseline = context->baseline,
        .ignored = config->job_json != NULL ? job_ignores : 0,
        .exec_fd = context->disk != NULL ? &worker->exec_fd : NULL,
        .lease = context->lease
    };
    struct os_spawn_failure failure;
    char **environment, **argv;
    bool started = false;

    if (has_error_folder && worker_error_file(config, context->rundir, context->plan->generation, worker,
                                              error_file, sizeof error_file))
        identity.error_file = error_file;
    environment = worker_env_build(environ, &identity);
    argv = worker_env_args(words, worker->local_rank);
    if (environment == NULL || argv == NULL) {
        worker_system_refused(&worker->death, "environment", "out of memory");
    } else {
        request.argv = argv;
        request.envp = environment;
        request.stdio[1] = streams[0] >= 0 ? streams[0] : STDOUT_FILENO;
        request.stdio[2] = streams[1] >= 0 ? streams[1] : STDERR_FILENO;
        started = context->os->spawn(context->os->arg, &request, &worker->child, &failure);
        if (!started)
            spawn_failed(&worker->death, config, &failure);
    }
    free(environment);
    free(argv);
    if (heart_fd > 0)
        close(heart_fd);
    if (!started)
        worker_close_watch(worker);
    return started;
}

static bool keeps_file(const struct agent_config *config, const struct worker *worker, unsigned stream)
{
    const enum output_mode mode = worker_output_mode(config, worker->local_rank, stream);

    return mode == OUTPUT_FILE || mode == OUTPUT_TEE;
}

/* A line of index.jsonl on its way to the disk. */
struct index_line {
    struct disk_job job;
    struct rundir *rundir;
    struct log_index_entry entry;
    char host[DEATH_HOST_BYTES];
};

/* An index that cannot be written must not end the run. */
static void write_index_line(struct disk_job *job)
{
    struct index_line *line = (struct index_line *)job;

    log_index_add(line->rundir, &line->entry, NULL);
}

static void on_index_line(struct disk_job *job)
{
    free(job);
}

/* Add the worker to index.jsonl, for readers of the logs. A run that keeps no files has no index. */
static void add_to_index(const struct worker_context *context, const struct worker *worker)
{
    const struct agent_config *config = context->config;
    const bool kept = context->output != NULL && output_keeps_files(context->output);
    struct index_line *line;

    if (context->rundir == NULL || (!kept && config->run_dir_temporary))
        return;
    line = calloc(1, sizeof *line);
    if (line == NULL)
        return;
    snprintf(line->host, sizeof line->host, "%s", context->host);
    line->job = (struct disk_job){ .work = write_index_line, .done = on_index_line };
    line->rundir = context->rundir;
    line->entry = (struct log_index_entry){ .of_job = config->job_json != NULL,
                                            .shared = config->run_dir_named,
                                            .generation = context->plan->generation,
                                            .node_rank = context->plan->node_rank,
                                            .rank = worker->rank,
                                            .local_rank = worker->local_rank,
                                            .pid = (int)worker->child.pid,
                                            .host = line->host,
                                            .has_stdout = kept && keeps_file(config, worker, AGENT_STDOUT),
                                            .has_stderr = kept && keeps_file(config, worker, AGENT_STDERR) };
    disk_submit(context->disk, &line->job);
}

/*
 * Makes a process on standby the worker. Returns false if there is none, or if it cannot be used: then it is
 * killed, and reaped as an orphan.
 */
static bool use_standby(struct worker *worker, const struct worker_context *context,
                        const struct fsdp_link_hello *hello, const int streams[2])
{
    const struct worker_identity identity = identity_of(worker, context, -1, 0);
    const int of_gate[2] = { streams[0] >= 0 ? streams[0] : STDOUT_FILENO,
                             streams[1] >= 0 ? streams[1] : STDERR_FILENO };
    struct standby_process process;
    size_t n_bytes = 0;
    char *own;

    if (!standby_take(context->standby, worker->local_rank, &process))
        return false;
    own = worker_env_own(environ, &identity, &n_bytes);
    worker->was_standby = own != NULL && link_gate_open(process.socket, own, n_bytes, of_gate) &&
                          link_server_take(context->links, worker->local_rank, hello,
                                           context->config->job_json, process.socket, NULL) == FSDP_OK;
    free(own);
    if (worker->was_standby) {
        worker->child = process.child;
        worker->exec_fd = process.exec_fd;
        return true;
    }
    context->os->kill_group(context->os->arg, &process.child, SIGKILL);
    close(process.child.pidfd);
    close(process.socket);
    if (process.exec_fd >= 0)
        close(process.exec_fd);
    return false;
}

void worker_begin(struct worker *worker, const struct worker_context *context, int local_rank)
{
    *worker = (struct worker){ .rank = context->plan->first_rank + local_rank,
                               .local_rank = local_rank,
                               .child = { .pidfd = -1 },
                               .exec_fd = -1,
                               .first_step = -1,
                               .step = -1 };
    heartbeat_init(&worker->heart);
    worker->death = (struct death){ .rank = worker->rank,
                                    .local_rank = local_rank,
                                    .node_rank = context->plan->node_rank,
                                    .step = -1,
                                    .phase = -1 };
    snprintf(worker->death.host, sizeof worker->death.host, "%s", context->host);
    worker->changed_ns = context->os->now_ns(context->os->arg);
}

bool worker_start_standby(const struct worker_context *context, int local_rank,
                          struct standby_process *process, struct death *death)
{
    char *const words[] = { context->config->argv[0], (char *)(uintptr_t) "--gate", NULL };
    const int streams[2] = { -1, -1 };
    struct worker worker;
    int ends[2];
    bool started;

    worker_begin(&worker, context, local_rank);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
        worker_system_refused(death, "socketpair", strerror(errno));
        return false;
    }
    started = spawn(&worker, context, words, ends[1], false, streams);
    close(ends[1]);
    if (!started)
        close(ends[0]);
    *process = (struct standby_process){ worker.child, ends[0], worker.exec_fd };
    *death = worker.death;
    return started;
}

bool worker_start(struct worker *worker, const struct worker_context *context, struct worker_files *files)
{
    const int local_rank = worker->local_rank;
    struct fsdp_link_hello hello;
    struct fsdp_err err = { 0 };
    int link_fd = -1, streams[2] = { -1, -1 };

    fill_hello(&hello, context, worker);
    if (!open_streams(context, local_rank, files, streams, &err))
        worker_system_refused(&worker->death, "output", err.message);
    else if (use_standby(worker, context, &hello, streams))
        worker->live = true;
    else if (link_server_add(context->links, local_rank, &hello, context->config->job_json, &link_fd, &err) !=
             FSDP_OK)
        worker_system_refused(&worker->death, "link", err.message);
    else
        worker->live =
            spawn(worker, context, context->config->argv, link_fd, files->has_error_folder, streams);
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

bool worker_executed(struct worker *worker, const struct agent_os *os, const struct agent_config *config)
{
    struct os_spawn_failure failure;
    enum os_exec exec;

    if (worker->exec_fd < 0)
        return true;
    exec = os->executed(os->arg, worker->exec_fd, &failure);
    if (exec == OS_EXEC_PENDING)
        return false;
    close(worker->exec_fd);
    worker->exec_fd = -1;
    worker->refused = exec == OS_EXEC_FAILED;
    if (worker->refused)
        spawn_failed(&worker->death, config, &failure);
    return true;
}
