#include "launcher/cmd_doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fsdp/link.h>

#include "agent/doctor/doctor.h"
#include "agent/doctor/nodes.h"
#include "agent/os/environment.h"
#include "launcher/cmd_run.h"
#include "launcher/command.h"
#include "launcher/job_input.h"
#include "launcher/json_table.h"
#include "launcher/say.h"
#include "launcher/scheduler.h"
#include "launcher/slurm_defaults.h"
#include "shard_runtime/core/exit_status.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/version.h"

enum { REPORT_BYTES = 64 << 20 };

/* Nodes wait one minute for each other here. In a run they wait ten minutes. */
static const char join_timeout[] = "join_timeout=60";

static const char help[] =
    "fsdprun doctor: is this machine fit for a run? Each line is ok, warn or fail,\n"
    "and says what to do. Nothing is changed.\n\n"
    "  fsdprun doctor [--json] [options of fsdprun] [JOB.yaml]\n\n"
    "  --json   for programs: an array of {\"check\", \"state\", \"value\", \"advice\"}\n\n"
    "With a job file, --log-dir or --run-dir the run directory is looked at, else\n"
    "the working directory. --rdzv-endpoint is looked up; on its host the port must\n"
    "be free.\n\n"
    "With --nnodes N (or a job of several nodes) and --rdzv-endpoint, give the same\n"
    "command on every node; in Slurm, srun fsdprun doctor. The nodes meet within a\n"
    "minute, as for a run. Each pair is measured: bandwidth, round trip, clocks.\n"
    "Version and run directory are compared. The node of rank 0 prints one report\n"
    "of all nodes; the others print nothing on stdout.\n\n"
    "Status: 0 if no check failed, 1 if one did.\n";

/* Stands in the command line where a run has its program: the doctor runs none. */
static char no_program[] = "doctor";

/* The options that only doctor has, to be offered for a misspelled option. */
static const char *const own_names[] = { "json", NULL };

/*
 * The command line of doctor. `rest` is that line without "doctor" and its own options: the command line of a
 * job, or, without a job file, of `no_program`.
 */
struct own {
    bool json, help, has_job;
    char **rest;
    int n_rest;
};

static void split(struct own *own, const struct options_input *input, int place)
{
    static char dashes[] = "--";

    for (int i = 0; i < input->argc; i++) {
        char *word = input->argv[i];

        if (i == place)
            continue;
        if (i > place && strcmp(word, "--json") == 0)
            own->json = true;
        else if (i > place && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0))
            own->help = true;
        else
            own->rest[own->n_rest++] = word;
        own->has_job |= i > place && word[0] != '-' && options_names_job(word);
    }
    if (own->has_job)
        return;
    own->rest[own->n_rest++] = dashes;
    own->rest[own->n_rest++] = no_program;
}

static int complain(int status, const char *words)
{
    say(stderr, "fsdprun doctor: %s", words);
    return status;
}

static int run_command(const char *const argv[], int64_t timeout_ms, char *out, size_t size)
{
    char text[COMMAND_OUT_BYTES];
    int status;
    const enum fsdp_status failed = command_run(argv, NULL, timeout_ms, text, &status, NULL);

    snprintf(out, size, "%s", failed == FSDP_OK ? text : "");
    return failed == FSDP_OK ? status : failed == FSDP_ERR_NOT_FOUND ? DOCTOR_RUN_NOT_FOUND : DOCTOR_RUN_LATE;
}

/* What doctor examines, and the command line and surroundings it was called with. */
struct visit {
    const struct own *own;
    struct options *options;
    struct surroundings *around;
    struct doctor_host host;
    char endpoint[LAUNCH_HOST_BYTES], run_dir[RUNDIR_PATH_BYTES];
    bool named_run_dir; /* the user named the run directory */
    bool meets;         /* the options name the place where several nodes meet */
    int n_idle;         /* nodes of this Slurm job, if doctor runs on one of them without srun; else 0 */
};

static const char *env(const struct surroundings *around, const char *name)
{
    return around->get_env(around->arg, name);
}

/* Is this a node of a Slurm step other than the first? srun merges what all nodes print into one output. */
static bool follows(const struct visit *visit)
{
    return visit->meets && visit->around->slurm != NULL && visit->around->slurm->node > 0;
}

/*
 * Prints the report. A report of several nodes is one document, and only the node of rank 0 prints it to
 * stdout.
 */
static int print(const struct visit *visit, const struct doctor_report *report)
{
    const bool json = visit->own->json;
    char *text = json ? doctor_report_json(report) : NULL;

    if (json && text == NULL)
        return complain(exit_status_of(FSDP_ERR_NOMEM), "out of memory");
    if (nodes_are_elsewhere(report)) {
        if (!follows(visit))
            say(stderr, "fsdprun doctor: %s", report->rows[0].value);
    } else if (follows(visit)) {
        doctor_report_print_trouble(report, visit->around->slurm->here, stderr);
    } else if (json) {
        printf("%s\n", text);
    } else {
        doctor_report_print(report, stdout);
    }
    free(text);
    if (fflush(stdout) != 0 || ferror(stdout))
        return FSDP_EXIT_IO;
    return doctor_report_worst(report) == DOCTOR_FAIL ? 1 : 0;
}

/*
 * Fills in what is to be examined. `job` is NULL if the user gave no job file. Returns 0, or the exit status
 * after a line on stderr.
 */
static int prepare(struct visit *visit, const struct job *job)
{
    const struct options *options = visit->options;
    const char *endpoint = options->of[OPT_RDZV_ENDPOINT].text, *root = env(visit->around, "FSDP_TEST_ROOT"),
               *run_dir = options->of[OPT_RUN_DIR].text, *log_dir = options->of[OPT_LOG_DIR].text;
    struct doctor_host *host = &visit->host;
    struct fsdp_err err = { 0 };
    enum fsdp_status status = FSDP_OK;

    *host = (struct doctor_host){ .root = root != NULL ? root : "",
                                  .nvml = env(visit->around, "FSDP_TEST_NVML"),
                                  .get_env = visit->around->get_env,
                                  .arg = visit->around->arg,
                                  .own_path = visit->around->own_path,
                                  .n_nodes = (int)options_number(options, OPT_NNODES, 1),
                                  .port = LAUNCH_DEFAULT_PORT,
                                  .run_dir = visit->run_dir,
                                  .run = run_command };
    visit->named_run_dir = run_dir != NULL || log_dir != NULL || job != NULL;
    if (job != NULL)
        host->n_nodes = (int)job->launch.nnodes;
    visit->meets = endpoint != NULL || options->of[OPT_MASTER_ADDR].text != NULL;
    if (!visit->meets)
        visit->n_idle = scheduler_idle_nodes(visit->around->get_env, visit->around->arg);
    if (host->n_nodes < visit->n_idle)
        host->n_nodes = visit->n_idle;
    if (options_has(options, OPT_STANDALONE))
        host->n_nodes = 1;
    if (run_dir == NULL && log_dir == NULL && job != NULL)
        status = rundir_job_path(visit->run_dir, job->run.dir, job->run.name, &err);
    else
        snprintf(visit->run_dir, sizeof visit->run_dir, "%s",
                 run_dir != NULL   ? run_dir
                 : log_dir != NULL ? log_dir
                                   : ".");
    if (status == FSDP_OK && endpoint != NULL && strncmp(endpoint, "etcd://", 7) != 0) {
        status = options_endpoint(endpoint, visit->endpoint, sizeof visit->endpoint, LAUNCH_DEFAULT_PORT,
                                  &host->port, &err);
        host->endpoint = visit->endpoint;
    }
    return status == FSDP_OK ? 0 : complain(exit_status_of_request(status), err.message);
}

/* Writes the report into the file, and replaces what was there. Returns false with errno set. */
static bool write_report(int fd, const struct doctor_report *report)
{
    char *text = doctor_report_json(report);
    const bool written = text != NULL && ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0 &&
                         file_write(fd, text, strlen(text));

    free(text);
    return written;
}

/* Replaces `report` by the report in the file. */
static enum fsdp_status read_report(int fd, struct doctor_report *report, struct fsdp_err *err)
{
    size_t length;
    char *text;
    enum fsdp_status status = file_read(fd, REPORT_BYTES, &text, &length);

    if (status != FSDP_OK)
        return fsdp_fail(err, status, "the report cannot be read: %s", strerror(errno));
    doctor_report_fini(report);
    status = doctor_report_read(report, text, length, err);
    free(text);
    return status;
}

int cmd_doctor_node(const char *file, const char *run_dir)
{
    const char *link = environment_get(NULL, FSDP_LINK_FD_ENV);
    const int fd = open(file, O_RDWR | O_CLOEXEC);
    struct doctor_report report = { 0 };
    struct fsdp_err err = { 0 };
    enum fsdp_status status;
    char version[64];

    if (fd < 0 || link == NULL)
        return complain(FSDP_EXIT_USAGE, link == NULL ? "only an agent runs it so" : strerror(errno));
    snprintf(version, sizeof version, "%.30s (%.20s)", version_number(), version_commit());
    status = read_report(fd, &report, &err);
    if (status == FSDP_OK)
        status = nodes_examine(&report, version, run_dir, atoi(link), &err);
    if (status == FSDP_OK && !write_report(fd, &report))
        status = fsdp_fail(&err, FSDP_ERR_IO, "%s: %s", file, strerror(errno));
    doctor_report_fini(&report);
    close(fd);
    return status == FSDP_OK ? 0 : complain(exit_status_of(status), err.message);
}

/*
 * Runs fsdprun on all nodes, with one rank on each. The program of these ranks is fsdprun too, in the mode of
 * cmd_doctor_node(). Of the user's options it passes only those on that say how nodes meet. Returns the exit
 * status.
 */
static int run_on_nodes(const struct visit *visit, const char *file)
{
    static const enum option_id kept[] = { OPT_NNODES,        OPT_NODE_RANK,   OPT_RDZV_BACKEND,
                                           OPT_RDZV_ENDPOINT, OPT_RDZV_ID,     OPT_RDZV_CONF,
                                           OPT_MASTER_ADDR,   OPT_MASTER_PORT, OPT_LOCAL_ADDR,
                                           OPT_SECRET_FILE,   OPT_INSECURE };
    char word[PATH_MAX + sizeof DOCTOR_NODE_WORD], own_path[PATH_MAX], run_dir[RUNDIR_PATH_BYTES], number[16];
    char *rest[] = { own_path, word, visit->named_run_dir ? run_dir : NULL, NULL };
    struct options options = {
        .rest = rest, .n_rest = visit->named_run_dir ? 3 : 2, .dashes = true, .program = "fsdprun doctor"
    };

    snprintf(word, sizeof word, "%s%s", DOCTOR_NODE_WORD, file);
    snprintf(own_path, sizeof own_path, "%s", visit->around->own_path);
    doctor_directory(run_dir, sizeof run_dir, visit->run_dir);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        options.of[kept[i]] = visit->options->of[kept[i]];
    snprintf(number, sizeof number, "%d", visit->host.n_nodes);
    options.of[OPT_NNODES].text = number;
    options.of[OPT_NNODES].least = options.of[OPT_NNODES].number = visit->host.n_nodes;
    if (!options_has(&options, OPT_RDZV_CONF))
        options.of[OPT_RDZV_CONF] = (struct option_value){ .text = join_timeout, .origin = "--rdzv-conf" };
    return cmd_run_program(&options, WHAT_DIRECT, visit->around);
}

/*
 * Runs the examination of all nodes, and replaces the report of this node by the one with all their results.
 */
static int examine_nodes(struct visit *visit, struct doctor_report *report)
{
    const char *temporary = env(visit->around, "TMPDIR");
    struct fsdp_err err = { 0 };
    char file[PATH_MAX], words[DOCTOR_VALUE_BYTES];
    int fd, status;

    snprintf(file, sizeof file, "%s/fsdprun-doctor.XXXXXX", temporary != NULL ? temporary : "/tmp");
    fd = mkostemp(file, O_CLOEXEC);
    if (fd < 0 || !write_report(fd, report)) {
        snprintf(words, sizeof words, "%.200s: %s", file, strerror(errno));
        status = complain(FSDP_EXIT_IO, words);
    } else {
        status = run_on_nodes(visit, file);
        if (status == 0 && read_report(fd, report, &err) != FSDP_OK)
            status = complain(exit_status_of(err.status), err.message);
    }
    if (fd >= 0) {
        (void)unlink(file);
        close(fd);
    }
    return status;
}

/*
 * Adds to the report that the nodes did not meet, or lost one. It examines this node again, now with the
 * port: whether that is free may be the reason.
 */
static bool add_failure(struct visit *visit, struct doctor_report *report, int status, int port)
{
    char words[DOCTOR_VALUE_BYTES];

    snprintf(words, sizeof words, "they did not meet, or one was lost: status %d, and the line above",
             status);
    visit->host.port = port;
    doctor_report_fini(report);
    return doctor_examine(report, &visit->host) &&
           doctor_report_add(
               report, "", "nodes", DOCTOR_FAIL, words,
               "look at the network rows here and on the other nodes: each must run this command");
}

static bool add_alone(const struct visit *visit, struct doctor_report *report)
{
    char words[DOCTOR_VALUE_BYTES];

    snprintf(words, sizeof words, "%d are wanted, and only this one was looked at", visit->host.n_nodes);
    return doctor_report_add(
        report, "", "nodes", DOCTOR_WARN, words,
        visit->n_idle > 0 ? "start it by srun: srun --ntasks-per-node=1 fsdprun doctor"
                          : "give --rdzv-endpoint and --secret-file, and run it on each node: they meet");
}

/* Did the nodes' run end because this process got a signal? */
static bool was_stopped(int status)
{
    return status == 128 + SIGHUP || status == 128 + SIGINT || status == 128 + SIGQUIT ||
           status == 128 + SIGTERM;
}

static int examine(struct visit *visit, const struct job *job)
{
    struct doctor_report report = { 0 };
    const int status = prepare(visit, job), port = visit->host.port;
    const bool meets = visit->meets && visit->host.n_nodes > 1;
    int ended = 0;
    bool kept;

    if (status != 0)
        return status;
    if (meets)
        /*
         * not examined: the meeting shows if the port is free, and another node of this host may use it by
         * now
         */
        visit->host.port = 0;
    kept = doctor_examine(&report, &visit->host);
    if (kept && meets)
        ended = examine_nodes(visit, &report);
    else if (kept && visit->host.n_nodes > 1)
        kept = add_alone(visit, &report);
    if (ended == FSDP_EXIT_USAGE || ended == FSDP_EXIT_CONFIG ||
        was_stopped(ended)) { /* a line on stderr has said why */
        doctor_report_fini(&report);
        return ended;
    }
    if (ended != 0)
        kept = add_failure(visit, &report, ended, port);
    ended = kept ? print(visit, &report) : complain(exit_status_of(FSDP_ERR_NOMEM), "out of memory");
    doctor_report_fini(&report);
    return ended;
}

static int examine_job(struct visit *visit)
{
    struct job_input_result input;
    struct fsdp_err err = { 0 };
    const enum fsdp_status resolved = job_input_resolve(&input, visit->options, stderr, &err);
    int status;

    if (resolved != FSDP_OK) /* job_input_resolve() has printed its problems to stderr */
        return resolved == FSDP_ERR_CONFIG ? FSDP_EXIT_CONFIG
                                           : complain(exit_status_of(resolved), err.message);
    status = examine(visit, &input.job);
    job_input_fini(&input);
    return status;
}

/*
 * Examines this node, or all of them. Under Slurm the nodes and the endpoint come from the step, as for a
 * run. Only the first task on each node does it; any other task returns 0 at once.
 */
static int visit_here(const struct own *own, struct options *options, struct surroundings *around)
{
    struct visit *visit = calloc(1, sizeof *visit);
    struct slurm_defaults defaults;
    struct fsdp_err err = { 0 };
    char words[200];
    int status;

    if (visit == NULL)
        return complain(exit_status_of(FSDP_ERR_NOMEM), "out of memory");
    *visit = (struct visit){ .own = own, .options = options, .around = around };
    if (!own->has_job && options->rest[0] != no_program) {
        snprintf(words, sizeof words, "it takes options and a job file, not %.100s", options->rest[0]);
        status = complain(FSDP_EXIT_USAGE, words);
    } else if (slurm_defaults_apply(&defaults, options, own->has_job, around, &err) != FSDP_OK) {
        status = complain(FSDP_EXIT_USAGE, err.message);
    } else if (around->slurm != NULL && around->slurm->task_here > 0) {
        status = 0;
    } else {
        status = own->has_job ? examine_job(visit) : examine(visit, NULL);
    }
    free(visit);
    return status;
}

int cmd_doctor_help(FILE *out)
{
    fputs(help, out);
    return json_written(out);
}

int cmd_doctor(const struct options_input *input, int place, struct surroundings *around)
{
    struct own own = { .rest = calloc((size_t)input->argc + 3, sizeof *own.rest) };
    struct options_input rest = *input;
    struct fsdp_err err = { 0 };
    struct options options;
    int status;

    if (own.rest == NULL)
        return complain(exit_status_of(FSDP_ERR_NOMEM), "out of memory");
    split(&own, input, place);
    rest.own = own_names;
    rest.argc = own.n_rest;
    rest.argv = own.rest;
    if (own.help) {
        status = cmd_doctor_help(stdout);
    } else if (options_read(&options, &rest, &err) != FSDP_OK) {
        status = complain(exit_status_of_request(err.status), err.message);
    } else {
        status = visit_here(&own, &options, around);
        options_fini(&options);
    }
    free(own.rest);
    return status;
}
