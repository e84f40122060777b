#include "launcher/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/exit_status.h"

static const char *find_env(const struct surroundings *around, const char *name)
{
    const char *text = around->get_env(around->arg, name);

    return text == NULL || *text == '\0' ? NULL : text;
}

/* What every world needs. */

static int bad_usage(struct fsdp_err *err, const char *words)
{
    fsdp_fail(err, FSDP_ERR_CONFIG, "%s", words);
    return FSDP_EXIT_USAGE;
}

/* Where nodes meet: --rdzv-endpoint, else --master-addr and --master-port. */
static int set_endpoint(struct launch *launch, const struct options *options, struct fsdp_err *err)
{
    const char *endpoint = options->of[OPT_RDZV_ENDPOINT].text, *address = options->of[OPT_MASTER_ADDR].text;
    int port = (int)options_number(options, OPT_MASTER_PORT, LAUNCH_DEFAULT_PORT);

    if (endpoint == NULL && address == NULL)
        return bad_usage(err, "more than one node needs --rdzv-endpoint HOST:PORT");
    if (options_endpoint(endpoint != NULL ? endpoint : address, launch->endpoint_host,
                         sizeof launch->endpoint_host, endpoint != NULL ? LAUNCH_DEFAULT_PORT : port, &port,
                         err) != FSDP_OK) {
        fsdp_wrap(err, "%s", options->of[endpoint != NULL ? OPT_RDZV_ENDPOINT : OPT_MASTER_ADDR].origin);
        return FSDP_EXIT_USAGE;
    }
    if (port == 0)
        return bad_usage(err, "the nodes need one port to meet at: --rdzv-endpoint HOST:PORT");
    launch->config.rendezvous_host = launch->endpoint_host;
    launch->config.rendezvous_port = port;
    return 0;
}

static int set_secret(struct launch *launch, const struct options *options, struct fsdp_err *err)
{
    enum fsdp_status status = secret_load(&launch->secret, options->of[OPT_SECRET_FILE].text, err);

    if (status != FSDP_OK)
        return exit_status_of(status);
    if (launch->secret.n_bytes == 0 && !options_has(options, OPT_INSECURE))
        return bad_usage(
            err, "more than one node needs --secret-file FILE (or --insecure, on a network you trust)");
    if (launch->secret.n_bytes > 0) {
        launch->config.secret = launch->secret.bytes;
        launch->config.secret_bytes = launch->secret.n_bytes;
    }
    return 0;
}

/* MASTER_ADDR and MASTER_PORT of one node, where the user names them. */
static int set_master(struct launch *launch, const struct options *options, struct fsdp_err *err)
{
    const char *endpoint = options->of[OPT_RDZV_ENDPOINT].text;

    launch->config.master_address = options->of[OPT_MASTER_ADDR].text;
    launch->config.master_port = (int)options_number(options, OPT_MASTER_PORT, 0);
    if (endpoint == NULL)
        return 0;
    if (options_endpoint(endpoint, launch->endpoint_host, sizeof launch->endpoint_host, 0,
                         &launch->config.master_port, err) != FSDP_OK) {
        fsdp_wrap(err, "%s", options->of[OPT_RDZV_ENDPOINT].origin);
        return FSDP_EXIT_USAGE;
    }
    launch->config.master_address = launch->endpoint_host;
    return 0;
}

static int set_nodes(struct launch *launch, const struct options *options, int n_nodes, struct fsdp_err *err)
{
    int node_rank = (int)options_number(options, OPT_NODE_RANK, 0), status;

    launch->config.n_nodes = n_nodes;
    launch->config.min_nodes = n_nodes;
    launch->config.node_rank = node_rank;
    if (node_rank >= n_nodes) {
        fsdp_fail(err, FSDP_ERR_CONFIG, "%s: there is no node %d of %d (the first is 0)",
                  options->of[OPT_NODE_RANK].origin, node_rank, n_nodes);
        return FSDP_EXIT_USAGE;
    }
    if (n_nodes == 1)
        return set_master(launch, options, err);
    status = set_endpoint(launch, options, err);
    return status != 0 ? status : set_secret(launch, options, err);
}

static int set_streams(const struct options *options, enum option_id id, int n_workers, unsigned char **out,
                       struct fsdp_err *err)
{
    const char *text = options->of[id].text;

    if (text == NULL)
        return 0;
    *out = calloc((size_t)n_workers, 1);
    if (*out == NULL)
        return exit_status_of(fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for %d workers", n_workers));
    if (options_streams(text, n_workers, *out, err) != FSDP_OK) {
        fsdp_wrap(err, "%s", options->of[id].origin);
        return FSDP_EXIT_USAGE;
    }
    return 0;
}

static bool wants_color(const struct options *options, const struct surroundings *around)
{
    const char *terminal = find_env(around, "TERM");

    if (options_has(options, OPT_COLOR))
        return true;
    if (options_has(options, OPT_NO_COLOR) || find_env(around, "NO_COLOR") != NULL)
        return false;
    return around->err_is_terminal && terminal != NULL && strcmp(terminal, "dumb") != 0;
}

/* `n_workers`, `n_nodes` and `max_restarts` come from the job where there is one. */
static int set_world(struct launch *launch, const struct options *options, const struct surroundings *around,
                     int n_workers, int n_nodes, int max_restarts, struct fsdp_err *err)
{
    struct agent_config *config = &launch->config;
    int status;

    config->n_workers = n_workers;
    config->max_restarts = max_restarts;
    config->grace_ms = options_number(options, OPT_SHUTDOWN_TIMEOUT, config->grace_ms / 1000) * 1000;
    config->quiet = options_has(options, OPT_QUIET);
    config->output.color = wants_color(options, around);
    if (options_has(options, OPT_SAVE_ON_SIGNAL))
        config->save_on_signal = AGENT_SAVE_TERM | AGENT_SAVE_USR1;
    if (options->of[OPT_RDZV_ID].text != NULL)
        config->run_id = options->of[OPT_RDZV_ID].text;
    status = set_nodes(launch, options, n_nodes, err);
    if (status == 0)
        status = set_streams(options, OPT_REDIRECTS, n_workers, &launch->redirects, err);
    if (status == 0)
        status = set_streams(options, OPT_TEE, n_workers, &launch->tees, err);
    config->output.redirects = launch->redirects;
    config->output.tees = launch->tees;
    return status;
}

/* A job. */

static int set_trainer(struct launch *launch, const struct surroundings *around, struct fsdp_err *err)
{
    const char *slash = strrchr(around->own_path, '/');
    int folder = slash == NULL ? 0 : (int)(slash - around->own_path) + 1;

    if ((size_t)snprintf(launch->trainer, sizeof launch->trainer, "%.*sfsdp-train", folder,
                         around->own_path) >= sizeof launch->trainer)
        return exit_status_of(fsdp_fail(err, FSDP_ERR_IO, "the path of fsdprun is too long"));
    launch->argv = calloc(2, sizeof *launch->argv);
    if (launch->argv == NULL)
        return exit_status_of(fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the worker's arguments"));
    launch->argv[0] = launch->trainer;
    launch->config.argv = launch->argv;
    return 0;
}

int launch_job(struct launch *launch, const struct options *options, const struct job *job,
               const struct surroundings *around, struct fsdp_err *err)
{
    const char *log_dir = options->of[OPT_LOG_DIR].text;
    struct agent_config *config = &launch->config;
    enum fsdp_status failed;
    int status;

    memset(launch, 0, sizeof *launch);
    agent_config_init(config);
    config->run_id = job->run.name;
    config->total_steps = job->train.steps;
    config->resume_never = job->checkpoint.resume == JOB_RESUME_NEVER;
    config->threads = (int)job->launch.threads;
    config->hang_timeout_ms = (int64_t)(job->launch.hang_timeout_s * 1000);
    config->output.bar = around->err_is_terminal && !options_has(options, OPT_QUIET);
    status = set_world(launch, options, around, (int)job->launch.nproc_per_node, (int)job->launch.nnodes,
                       (int)job->launch.max_restarts, err);
    if (status == 0)
        status = set_trainer(launch, around, err);
    if (status != 0)
        return status;
    failed = rundir_job_path(launch->run_dir, log_dir != NULL ? log_dir : job->run.dir, job->run.name, err);
    if (failed == FSDP_OK)
        failed = job_to_json(job, &launch->job_json, err);
    config->run_dir = launch->run_dir;
    config->job_json = launch->job_json;
    return exit_status_of(failed);
}

/* A program. */

static const char *find_python(const struct surroundings *around)
{
    const char *named = find_env(around, "PYTHON_EXEC");

    if (named != NULL)
        return named;
    if (around->files->on_path(around->files->arg, "python3"))
        return "python3";
    return around->files->on_path(around->files->arg, "python") ? "python" : NULL;
}

char **launch_program_argv(const struct options *options, enum what_kind kind,
                           const struct surroundings *around, struct fsdp_err *err)
{
    bool python = kind == WHAT_SCRIPT || kind == WHAT_MODULE || kind == WHAT_PYTHON;
    bool here = kind == WHAT_FILE && strchr(options->rest[0], '/') == NULL;
    const char *interpreter = python ? find_python(around) : NULL;
    size_t n = 0, room = (size_t)options->n_rest + 4;
    char **argv;

    if (python && interpreter == NULL) {
        fsdp_fail(err, FSDP_ERR_NOT_FOUND,
                  "neither python3 nor python is on PATH to run %.200s (PYTHON_EXEC names another)",
                  options->rest[0]);
        return NULL;
    }
    /* The words of a file in the working directory get "./": a bare name would be looked up on PATH. */
    argv = calloc(1, room * sizeof *argv + (here ? strlen(options->rest[0]) + 3 : 0));
    if (argv == NULL) {
        fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the worker's arguments");
        return NULL;
    }
    if (python) {
        argv[n++] = (char *)(uintptr_t)interpreter;
        argv[n++] = (char *)(uintptr_t) "-u";
    }
    if (kind == WHAT_MODULE)
        argv[n++] = (char *)(uintptr_t) "-m";
    for (int i = 0; i < options->n_rest; i++)
        argv[n++] = options->rest[i];
    if (here) {
        argv[0] = (char *)(argv + room);
        sprintf(argv[0], "./%s", options->rest[0]);
    }
    return argv;
}

/* The line prefix of torchrun's --tee, unless ours was asked for. */
static const char *prefix_template(const struct options *options, const struct surroundings *around)
{
    const char *named = find_env(around, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");

    if (named != NULL || options_has(options, OPT_PREFIX))
        return named;
    return "[${role_name}${local_rank}]:";
}

/*
 * As torchrun: below --log-dir, else in a fresh temporary directory. A program that keeps nothing there must
 * run where no directory can be made at all.
 */
static int set_program_dir(struct launch *launch, const struct options *options, struct fsdp_err *err)
{
    const char *log_dir = options->of[OPT_LOG_DIR].text;
    struct agent_config *config = &launch->config;
    bool captured = config->output.prefix || launch->redirects != NULL || launch->tees != NULL;
    enum fsdp_status status;

    if (log_dir != NULL && strcmp(log_dir, "/dev/null") == 0) {
        config->output.no_files = true;
        return 0;
    }
    status = rundir_program_path(launch->run_dir, log_dir, config->run_id, err);
    if (status == FSDP_OK) {
        config->run_dir = launch->run_dir;
        config->run_dir_temporary = log_dir == NULL;
        return 0;
    }
    if (log_dir != NULL) {
        fsdp_wrap(err, "%s", options->of[OPT_LOG_DIR].origin);
        return status == FSDP_ERR_CONFIG ? FSDP_EXIT_USAGE : exit_status_of(status);
    }
    if (captured)
        return exit_status_of(status);
    fsdp_err_clear(err);
    return 0;
}

int launch_program(struct launch *launch, const struct options *options, enum what_kind kind,
                   const struct surroundings *around, struct fsdp_err *err)
{
    struct agent_config *config = &launch->config;
    int status;

    memset(launch, 0, sizeof *launch);
    agent_config_init(config);
    config->output.prefix = options_has(options, OPT_PREFIX);
    config->output.prefix_template = prefix_template(options, around);
    status = set_world(launch, options, around, (int)options_number(options, OPT_NPROC_PER_NODE, 1),
                       (int)options_number(options, OPT_NNODES, 1),
                       (int)options_number(options, OPT_MAX_RESTARTS, 0), err);
    if (status != 0)
        return status;
    if (config->save_on_signal != 0)
        return bad_usage(err, "--save-on-signal is for job files: a program gets the signal itself");
    launch->argv = launch_program_argv(options, kind, around, err);
    if (launch->argv == NULL)
        return err->status == FSDP_ERR_NOT_FOUND ? 127 : exit_status_of(err->status);
    config->argv = launch->argv;
    return set_program_dir(launch, options, err);
}

void launch_fini(struct launch *launch)
{
    secret_clear(&launch->secret);
    free(launch->redirects);
    free(launch->tees);
    free(launch->argv);
    free(launch->job_json);
    memset(launch, 0, sizeof *launch);
}
