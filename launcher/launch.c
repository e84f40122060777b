#include "launcher/launch.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/placement/placement.h"
#include "launcher/launch_impl.h"
#include "launcher/scheduler.h"
#include "shard_runtime/core/exit_status.h"
#include "shard_runtime/shardfile/io_s3.h"

enum { SLURM_KILL_WAIT_S = 30 }; /* Slurm's default of KillWait */

const char *launch_env(const struct surroundings *around, const char *name)
{
    const char *text = around->get_env(around->arg, name);

    return text == NULL || *text == '\0' ? NULL : text;
}

int launch_bad_usage(struct fsdp_err *err, const char *format, ...)
{
    char words[FSDP_ERR_MESSAGE_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    fsdp_fail(err, FSDP_ERR_CONFIG, "%s", words);
    return FSDP_EXIT_USAGE;
}

static enum agent_numa numa_named(const char *name)
{
    for (int i = AGENT_NUMA_NODE; name != NULL && i <= AGENT_NUMA_CORE_COMPLEX; i++)
        if (strcmp(placement_binding((enum agent_numa)i), name) == 0)
            return (enum agent_numa)i;
    return AGENT_NUMA_NONE;
}

/*
 * A signal has only one meaning. By default, a signal that is forwarded does not end the run. If the user
 * asks for both, this function refuses.
 */
int launch_set_signals(struct agent_config *config, const struct options *options, struct fsdp_err *err)
{
    const struct option_value *stop = &options->of[OPT_SIGNALS_TO_HANDLE];
    const char *forward = options->of[OPT_FORWARD_SIGNALS].text;

    if (options_has(options, OPT_SAVE_ON_SIGNAL))
        config->save_on_signal = AGENT_SAVE_TERM | AGENT_SAVE_USR1;
    if (stop->text != NULL) {
        (void)options_signals(stop->text, &config->stop_signals, NULL); /* parsed before, so it cannot fail */
        config->stop_signals_text = stop->text;
    }
    if (forward != NULL)
        (void)options_signals(forward, &config->forward_signals, NULL);
    if (stop->text != NULL && (config->stop_signals & config->forward_signals) != 0)
        return launch_bad_usage(err, "a signal is either handled (--signals-to-handle) or forwarded "
                                     "(--forward-signals), not both");
    if (config->save_on_signal != 0 &&
        (config->forward_signals & (UINT64_C(1) << SIGTERM | UINT64_C(1) << SIGUSR1)) != 0)
        return launch_bad_usage(
            err, "with --save-on-signal, TERM and USR1 ask for a checkpoint: they cannot be forwarded");
    config->stop_signals &= ~config->forward_signals;
    return 0;
}

/* Fills in what jobs and programs have in common. `world` is from the job file if there is one. */
static int set_world(struct launch *launch, const struct options *options, const struct surroundings *around,
                     const struct launch_world *world, struct fsdp_err *err)
{
    struct agent_config *config = &launch->config;
    int status;

    config->n_workers = world->n_workers;
    config->max_restarts = world->max_restarts;
    config->restart_window_ms = world->restart_window_s * 1000;
    config->grace_ms = options_number(options, OPT_SHUTDOWN_TIMEOUT, config->grace_ms / 1000) * 1000;
    config->quiet = options_has(options, OPT_QUIET);
    config->snapshot_bytes = options_number(options, OPT_SNAPSHOT_MEMORY, config->snapshot_bytes);
    config->virtual_local_rank = options_has(options, OPT_VIRTUAL_LOCAL_RANK);
    config->numa = numa_named(options->of[OPT_NUMA_BINDING].text);
    if (options->of[OPT_RDZV_ID].text != NULL)
        config->run_id = options->of[OPT_RDZV_ID].text;
    if (options->of[OPT_ROLE].text != NULL)
        config->role = options->of[OPT_ROLE].text;
    if (options->of[OPT_RUN_DIR].text != NULL && options->of[OPT_LOG_DIR].text != NULL)
        return launch_bad_usage(err, "%s names the run directory itself: there is no place in it for %s",
                                options->of[OPT_RUN_DIR].origin, options->of[OPT_LOG_DIR].origin);
    if (options_has(options, OPT_SNAPSHOT_PERSIST)) {
        const enum fsdp_status failed =
            rundir_named_path(launch->snapshot_persist, options->of[OPT_SNAPSHOT_PERSIST].text, err);

        if (failed != FSDP_OK)
            return exit_status_of(failed);
        config->snapshot_persist = launch->snapshot_persist;
        if (config->snapshot_bytes == 0)
            return launch_bad_usage(err,
                                    "--snapshot-persist: there are no snapshots with --snapshot-memory 0");
    }
    status = launch_set_signals(config, options, err);
    if (status == 0)
        status = launch_set_nodes(launch, options, world, around, err);
    return status != 0 ? status : launch_set_output(launch, options, around, err);
}

bool launch_trainer_path(const char *own_path, char *out, size_t size)
{
    const char *slash = strrchr(own_path, '/');
    const int folder = slash == NULL ? 0 : (int)(slash - own_path) + 1;

    return (size_t)snprintf(out, size, "%.*sfsdp-train", folder, own_path) < size;
}

static int set_trainer(struct launch *launch, const struct surroundings *around, struct fsdp_err *err)
{
    if (!launch_trainer_path(around->own_path, launch->trainer, sizeof launch->trainer))
        return exit_status_of(fsdp_fail(err, FSDP_ERR_IO, "the path of fsdprun is too long"));
    launch->argv = calloc(2, sizeof *launch->argv);
    if (launch->argv == NULL)
        return exit_status_of(fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the worker's arguments"));
    launch->argv[0] = launch->trainer;
    launch->config.argv = launch->argv;
    return 0;
}

/*
 * Returns the smallest number of nodes that a job runs with. A job file has only one number. MIN:MAX comes
 * from the command line or the environment. If the number comes from a Slurm step, a job with
 * train.global_batch may go on with fewer nodes: its steps do not depend on their number.
 */
static int job_min_nodes(const struct job *job, const struct options *options)
{
    const struct option_value *nodes = &options->of[OPT_NNODES];

    if (nodes->is_weak && (uint64_t)nodes->number == job->launch.nnodes && job->train.global_batch > 0)
        return 1;
    if (nodes->text != NULL && (uint64_t)nodes->number == job->launch.nnodes)
        return (int)nodes->least;
    return (int)job->launch.nnodes;
}

/*
 * Returns how long a save after TERM may take under Slurm, which sends KILL KillWait seconds after TERM.
 * KillWait is read from slurm.conf, whose path slurmd gives to every job. No command of Slurm is run for it:
 * every node would ask the controller, and could hang.
 */
static int64_t slurm_save_ms(const struct surroundings *around)
{
    const char *path = launch_env(around, "SLURM_CONF");
    FILE *file = fopen(path != NULL ? path : "/etc/slurm/slurm.conf", "re");
    int kill_wait_s = SLURM_KILL_WAIT_S;
    char line[4096];

    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (scheduler_kill_wait(line) >= 0)
            kill_wait_s = scheduler_kill_wait(line);
    if (file != NULL)
        fclose(file);
    return (int64_t)scheduler_save_time(kill_wait_s) * 1000;
}

/*
 * Sets the name under which the run is entered into the registry. If `name` is a path, it is its last part.
 */
static void set_list_name(struct launch *launch, const char *name, const struct surroundings *around)
{
    const char *slash = strrchr(name, '/');

    snprintf(launch->list_name, sizeof launch->list_name, "%s", slash != NULL ? slash + 1 : name);
    launch->config.list_name = launch->list_name;
    launch->config.command = around->command;
}

/*
 * Sets the directory of checkpoints: an absolute path, or a place in an object store. It has no slash at its
 * end, because ranks and agents compare it as text.
 */
static enum fsdp_status set_checkpoint_dir(struct launch *launch, const char *named, struct fsdp_err *err)
{
    size_t length = strlen(named);
    enum fsdp_status status;

    if (!io_is_remote(named))
        return rundir_named_path(launch->checkpoint_dir, named, err);
    while (length > 0 && named[length - 1] == '/')
        length--;
    if (length >= sizeof launch->checkpoint_dir)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "checkpoint.dir is longer than %zu bytes",
                         sizeof launch->checkpoint_dir - 1);
    memcpy(launch->checkpoint_dir, named, length);
    launch->checkpoint_dir[length] = '\0';
    status = io_s3_check(launch->checkpoint_dir, err);
    if (status != FSDP_OK)
        fsdp_wrap(err, "checkpoint.dir");
    return status;
}

int launch_job(struct launch *launch, const struct options *options, const struct job *job,
               const struct surroundings *around, struct fsdp_err *err)
{
    const char *log_dir = options->of[OPT_LOG_DIR].text, *run_dir = options->of[OPT_RUN_DIR].text;
    const struct launch_world world = { .secret_folder = run_dir != NULL   ? run_dir
                                                         : log_dir != NULL ? log_dir
                                                                           : job->run.dir,
                                        .job_name = job->run.name,
                                        .n_workers = (int)job->launch.nproc_per_node,
                                        .n_nodes = (int)job->launch.nnodes,
                                        .min_nodes = job_min_nodes(job, options),
                                        .max_restarts = (int)job->launch.max_restarts,
                                        .restart_window_s = (int64_t)job->launch.restart_window_s };
    struct agent_config *config = &launch->config;
    enum fsdp_status failed;
    int status;

    memset(launch, 0, sizeof *launch);
    agent_config_init(config);
    config->run_id = job->run.name;
    config->total_steps = job->train.steps;
    config->resume_never = job->checkpoint.resume == JOB_RESUME_NEVER;
    config->replicas = job->checkpoint.replicas > 0;
    config->exports = job->checkpoint.exports != JOB_EXPORT_NONE;
    config->threads = (int)job->launch.threads;
    config->standby =
        (int)options_number(options, OPT_STANDBY, job->checkpoint.snapshot_every > 0 ? world.n_workers : 0);
    config->straggler_restart =
        options_has(options, OPT_STRAGGLER) && strcmp(options->of[OPT_STRAGGLER].text, "restart") == 0;
    config->hang_timeout_ms = (int64_t)(job->launch.hang_timeout_s * 1000);
    if (launch_env(around, "SLURM_JOB_ID") != NULL)
        config->grace_ms = slurm_save_ms(around);
    config->output.bar = around->err_is_terminal && !options_has(options, OPT_QUIET);
    if (options_has(options, OPT_DIRECT_OUTPUT))
        return launch_bad_usage(err, "--direct-output is for programs: a job's output is kept in its logs");
    if (options_has(options, OPT_PYTHON_STACKS))
        return launch_bad_usage(err, "--python-stacks is for programs: a job runs no Python");
    if (options_number(options, OPT_STANDBY, 0) > world.n_workers)
        return launch_bad_usage(err, "--standby: more workers than this node has ranks serve for nothing");
    if (world.restart_window_s > 0 && world.max_restarts > AGENT_RESTARTS_IN_WINDOW) {
        fsdp_fail(err, FSDP_ERR_CONFIG,
                  "launch.max_restarts: with launch.restart_window_s it must be at most %d, not %d",
                  AGENT_RESTARTS_IN_WINDOW, world.max_restarts);
        return FSDP_EXIT_CONFIG;
    }
    status = set_world(launch, options, around, &world, err);
    if (status == 0)
        status = launch_check_devices(launch, job, around, err);
    if (status == 0)
        status = set_trainer(launch, around, err);
    if (status != 0)
        return status;
    failed = run_dir != NULL ? rundir_named_path(launch->run_dir, run_dir, err)
                             : rundir_job_path(launch->run_dir, log_dir != NULL ? log_dir : job->run.dir,
                                               job->run.name, err);
    if (failed == FSDP_OK && job->checkpoint.dir != NULL && job->checkpoint.dir[0] != '\0') {
        failed = set_checkpoint_dir(launch, job->checkpoint.dir, err);
        config->checkpoint_dir = launch->checkpoint_dir;
    }
    if (failed == FSDP_OK)
        failed = job_to_json(job, &launch->job_json, err);
    if (failed == FSDP_OK)
        failed = job_defaults_json(true, &launch->deciding_json, err);
    set_list_name(launch, job->run.name, around);
    config->run_dir = launch->run_dir;
    config->job_json = launch->job_json;
    config->deciding_json = launch->deciding_json;
    return exit_status_of(failed);
}

static const char *find_python(const struct surroundings *around)
{
    const char *named = launch_env(around, "PYTHON_EXEC");

    if (named != NULL || around->python_beside != NULL)
        return named != NULL ? named : around->python_beside;
    if (around->files->on_path(around->files->arg, "python3"))
        return "python3";
    return around->files->on_path(around->files->arg, "python") ? "python" : NULL;
}

/*
 * A Python program that runs a file as torchrun does with --run-path: as __main__, its arguments in sys.argv.
 */
static const char run_path_program[] =
    "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')";

/*
 * Makes the argv of a program's workers. Returns an array that ends with NULL, in one block that the caller
 * frees. Most of its words are borrowed from `options`. NULL on failure:
 *   FSDP_ERR_NOT_FOUND  the program needs Python, and there is none
 *   FSDP_ERR_NOMEM      no memory
 */
static char **program_argv(const struct options *options, enum what_kind kind,
                           const struct surroundings *around, struct fsdp_err *err)
{
    bool python = kind == WHAT_SCRIPT || kind == WHAT_MODULE || kind == WHAT_PYTHON || kind == WHAT_RUN_PATH;
    bool here = kind == WHAT_FILE && strchr(options->rest[0], '/') == NULL;
    const char *interpreter = python ? find_python(around) : NULL;
    size_t n = 0, room = (size_t)options->n_rest + 5;
    char **argv;

    if (python && interpreter == NULL) {
        fsdp_fail(err, FSDP_ERR_NOT_FOUND,
                  "neither python3 nor python is on PATH to run %.200s (PYTHON_EXEC names another)",
                  options->rest[0]);
        return NULL;
    }
    /* A program in the working directory is called as "./NAME": a bare name would be searched on PATH. */
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
    if (kind == WHAT_RUN_PATH) {
        argv[n++] = (char *)(uintptr_t) "-c";
        argv[n++] = (char *)(uintptr_t)run_path_program;
    }
    for (int i = 0; i < options->n_rest; i++)
        argv[n++] = options->rest[i];
    if (here) {
        argv[0] = (char *)(argv + room);
        sprintf(argv[0], "./%s", options->rest[0]);
    }
    return argv;
}

/*
 * Returns the index, in the argv of program_argv(), of the file that Python runs; 0: there is none. A first
 * word with a dash is an option of Python ("-" is its standard input). With --run-path the first word is
 * always a file.
 */
static int place_of_script(const struct options *options, enum what_kind kind)
{
    if (kind == WHAT_RUN_PATH)
        return 4;
    return (kind == WHAT_SCRIPT || kind == WHAT_PYTHON) && options->rest[0][0] != '-' ? 2 : 0;
}

/*
 * Returns the template for the prefix of teed lines. It is the user's, or with --prefix ours (NULL), or else
 * torchrun's.
 */
static const char *prefix_template(const struct options *options)
{
    const char *named = options->of[OPT_LOG_LINE_PREFIX_TEMPLATE].text;

    if (named != NULL || options_has(options, OPT_PREFIX))
        return named;
    return "[${role_name}${local_rank}]:";
}

/*
 * Chooses and makes the run directory of a program. It is the one that --run-dir names, otherwise a new one
 * below --log-dir, otherwise a new temporary one, as in torchrun. If no temporary one can be made, a program
 * whose output is not captured runs without a run directory.
 */
static int set_program_dir(struct launch *launch, const struct options *options, struct fsdp_err *err)
{
    const char *log_dir = options->of[OPT_LOG_DIR].text, *run_dir = options->of[OPT_RUN_DIR].text;
    struct agent_config *config = &launch->config;
    bool captured = config->output.prefix || launch->redirects != NULL || launch->tees != NULL;
    enum fsdp_status status;

    if (log_dir != NULL && strcmp(log_dir, "/dev/null") == 0) {
        config->output.no_files = true;
        return options_has(options, OPT_DETACH)
                   ? launch_bad_usage(err, "--detach: what the program writes must go to files: "
                                           "give --log-dir or --run-dir")
                   : 0;
    }
    if (run_dir != NULL) { /* only the name is resolved here; the agent makes this directory and locks it */
        config->run_dir = launch->run_dir;
        config->run_dir_named = true;
        return exit_status_of(rundir_named_path(launch->run_dir, run_dir, err));
    }
    status = rundir_program_path(launch->run_dir, log_dir, config->run_id, err);
    if (status == FSDP_OK) {
        config->run_dir = launch->run_dir;
        config->run_dir_temporary = log_dir == NULL;
        return 0;
    }
    if (log_dir != NULL) {
        fsdp_wrap(err, "%s", options->of[OPT_LOG_DIR].origin);
        return exit_status_of_request(status);
    }
    if (captured)
        return exit_status_of(status);
    fsdp_err_clear(err);
    return 0;
}

/* Checks that --log-dir can be used, without making anything. Returns 0, or the exit status. */
static int check_log_dir(const struct options *options, const struct surroundings *around,
                         struct fsdp_err *err)
{
    const struct option_value *value = &options->of[OPT_LOG_DIR];

    if (value->text == NULL || strcmp(value->text, "/dev/null") == 0 ||
        !around->files->is_file(around->files->arg, value->text))
        return 0;
    return launch_bad_usage(err, "%s: %.200s is no directory", value->origin, value->text);
}

/*
 * Prints a note if the user asks for torchrun's health check server. fsdprun has none, and neither has
 * PyTorch's public build, which prints such a note too. Like PyTorch, this ignores a value that is no number.
 */
static void note_health_check(struct launch *launch, const struct surroundings *around)
{
    const char *port = launch_env(around, "TORCHELASTIC_HEALTH_CHECK_PORT");

    if (port != NULL && port[strspn(port, "0123456789")] == '\0')
        launch_note(launch, "no health check server is started at TORCHELASTIC_HEALTH_CHECK_PORT=%.20s",
                    port);
}

int launch_program(struct launch *launch, const struct options *options, enum what_kind kind,
                   const struct surroundings *around, struct fsdp_err *err)
{
    const char *run_dir = options->of[OPT_RUN_DIR].text;
    const struct launch_world world = { .secret_folder = run_dir != NULL ? run_dir : ".",
                                        .n_workers = (int)options_number(options, OPT_NPROC_PER_NODE, 1),
                                        .n_nodes = (int)options_number(options, OPT_NNODES, 1),
                                        .min_nodes = options->of[OPT_NNODES].text == NULL
                                                         ? 1
                                                         : (int)options->of[OPT_NNODES].least,
                                        .max_restarts = (int)options_number(options, OPT_MAX_RESTARTS, 0),
                                        .restart_window_s = options->of[OPT_MAX_RESTARTS].window_s };
    struct agent_config *config = &launch->config;
    int status;

    memset(launch, 0, sizeof *launch);
    agent_config_init(config);
    config->python_stacks = options_has(options, OPT_PYTHON_STACKS);
    config->watched = options_number(options, OPT_HANG_TIMEOUT, 0) > 0;
    if (options->of[OPT_HANG_TIMEOUT].text != NULL)
        config->hang_timeout_ms = options_number(options, OPT_HANG_TIMEOUT, 0) * 1000;
    config->output.prefix = options_has(options, OPT_PREFIX);
    config->output.direct = options_has(options, OPT_DIRECT_OUTPUT);
    config->output.prefix_template = prefix_template(options);
    status = set_world(launch, options, around, &world, err);
    if (status == 0)
        status = launch_set_run_id(launch, options, err);
    if (status != 0)
        return status;
    if (config->save_on_signal != 0)
        return launch_bad_usage(err, "--save-on-signal is for job files: a program gets the signal itself");
    if (options_number(options, OPT_STANDBY, 0) > 0)
        return launch_bad_usage(err, "--standby is for job files: a program takes its environment from exec");
    if (options_has(options, OPT_STRAGGLER))
        return launch_bad_usage(err, "--straggler is for job files: a program does not show its steps");
    if (options->of[OPT_ARBITER].text != NULL && strcmp(options->of[OPT_ARBITER].text, "directory") == 0 &&
        options->of[OPT_RUN_DIR].text == NULL)
        return launch_bad_usage(err, "--arbiter directory needs --run-dir: it is where the record is kept");
    if (config->arbiter == AGENT_ARBITER_ETCD && strcmp(config->run_id, "none") == 0)
        return launch_bad_usage(err, "an etcd needs --rdzv-id: it names the run there");
    if (options_has(options, OPT_PYTHON_STACKS) && !config->watched)
        return launch_bad_usage(err, "--python-stacks needs --hang-timeout");
    launch->argv = program_argv(options, kind, around, err);
    if (launch->argv == NULL)
        return err->status == FSDP_ERR_NOT_FOUND ? 127 : exit_status_of(err->status);
    config->argv = launch->argv;
    config->script = place_of_script(options, kind);
    set_list_name(launch, options_has(options, OPT_RDZV_ID) ? config->run_id : options->rest[0], around);
    launch_note_few_devices(launch, around);
    note_health_check(launch, around);
    if (options_has(options, OPT_DRY_RUN))
        return check_log_dir(options, around, err);
    return set_program_dir(launch, options, err);
}

void launch_fini(struct launch *launch)
{
    secret_clear(&launch->secret);
    if (launch->has_made_secret)
        (void)unlink(launch->secret_file);
    free(launch->redirects);
    free(launch->tees);
    free(launch->shown);
    free(launch->stdout_filters);
    free(launch->stderr_filters);
    free(launch->argv);
    free(launch->job_json);
    free(launch->deciding_json);
    memset(launch, 0, sizeof *launch);
}
