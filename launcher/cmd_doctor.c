#include "launcher/cmd_doctor.h"

#include <stdlib.h>
#include <string.h>

#include "agent/doctor/doctor.h"
#include "launcher/command.h"
#include "launcher/job_input.h"
#include "shard_runtime/core/exit_status.h"

static const char help[] =
    "fsdprun doctor: is this machine fit for a run? Each line is ok, warn or fail, and says\n"
    "what to do. Nothing is changed.\n\n"
    "  fsdprun doctor [--json] [options of fsdprun] [JOB.yaml]\n\n"
    "  --json   for programs: an array of {\"check\", \"state\", \"value\", \"advice\"}\n\n"
    "With a job file or --run-dir its run directory is looked at, else the working directory.\n"
    "--rdzv-endpoint is looked up; on its host the port must be free.\n\n"
    "Status: 0 if no check failed, 1 if one did.\n";

/* In place of a program, which the doctor does not have. */
static char no_program[] = "doctor";

/* The options of doctor itself, as "did you mean" offers them. */
static const char *const own_names[] = { "json", NULL };

/* `rest` is the command line without "doctor" and its own options: that of a job, or of no program. */
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
    fprintf(stderr, "fsdprun doctor: %s\n", words);
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

static int print(const struct doctor_report *report, const struct own *own)
{
    char *text = own->json ? doctor_report_json(report) : NULL;

    if (own->json && text == NULL)
        return complain(exit_status_of(FSDP_ERR_NOMEM), "out of memory");
    if (own->json)
        printf("%s\n", text);
    else
        doctor_report_print(report, false, stdout);
    free(text);
    if (fflush(stdout) != 0 || ferror(stdout))
        return FSDP_EXIT_IO;
    return doctor_report_worst(report) == DOCTOR_FAIL ? 1 : 0;
}

/* `job` is NULL if there is no job file. */
static int examine(const struct own *own, const struct options *options, const struct job *job,
                   const struct surroundings *around)
{
    const char *endpoint = options->of[OPT_RDZV_ENDPOINT].text;
    char host_name[LAUNCH_HOST_BYTES] = "", run_dir[RUNDIR_PATH_BYTES];
    struct doctor_host host = { .root = "",
                                .nvml = around->get_env(around->arg, "FSDP_TEST_NVML"),
                                .get_env = around->get_env,
                                .arg = around->arg,
                                .own_path = around->own_path,
                                .n_nodes = (int)options_number(options, OPT_NNODES, 1),
                                .port = LAUNCH_DEFAULT_PORT,
                                .run_dir = ".",
                                .run = run_command };
    const char *root = around->get_env(around->arg, "FSDP_TEST_ROOT");
    struct doctor_report report = { 0 };
    struct fsdp_err err = { 0 };
    int status;

    if (root != NULL)
        host.root = root;
    if (job != NULL) {
        host.n_nodes = job->launch.nnodes;
        host.run_dir = job->run.dir;
        status = exit_status_of(rundir_job_path(run_dir, job->run.dir, job->run.name, &err));
        if (status == 0)
            host.run_dir = run_dir;
    }
    if (options->of[OPT_LOG_DIR].text != NULL)
        host.run_dir = options->of[OPT_LOG_DIR].text;
    if (options->of[OPT_RUN_DIR].text != NULL)
        host.run_dir = options->of[OPT_RUN_DIR].text;
    if (endpoint != NULL && strncmp(endpoint, "etcd://", 7) != 0) {
        if (options_endpoint(endpoint, host_name, sizeof host_name, LAUNCH_DEFAULT_PORT, &host.port, &err) !=
            FSDP_OK)
            return complain(FSDP_EXIT_USAGE, err.message);
        host.endpoint = host_name;
    }
    status = doctor_examine(&report, &host) ? print(&report, own)
                                            : complain(exit_status_of(FSDP_ERR_NOMEM), "out of memory");
    doctor_report_fini(&report);
    return status;
}

static int examine_job(const struct own *own, const struct options *options,
                       const struct surroundings *around)
{
    struct job_input_result input;
    struct fsdp_err err = { 0 };
    const enum fsdp_status resolved = job_input_resolve(&input, options, stderr, &err);
    int status;

    if (resolved != FSDP_OK) /* its problems are on stderr already */
        return resolved == FSDP_ERR_CONFIG ? FSDP_EXIT_CONFIG
                                           : complain(exit_status_of(resolved), err.message);
    status = examine(own, options, &input.job, around);
    job_input_fini(&input);
    return status;
}

int cmd_doctor_help(FILE *out)
{
    fputs(help, out);
    return fflush(out) == 0 && !ferror(out) ? 0 : FSDP_EXIT_IO;
}

int cmd_doctor(const struct options_input *input, int place, struct surroundings *around)
{
    struct own own = { .rest = calloc((size_t)input->argc + 3, sizeof *own.rest) };
    struct options_input rest = *input;
    struct fsdp_err err = { 0 };
    struct options options;
    char words[200];
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
        status = complain(err.status == FSDP_ERR_CONFIG ? FSDP_EXIT_USAGE : exit_status_of(err.status),
                          err.message);
    } else {
        if (own.has_job) {
            status = examine_job(&own, &options, around);
        } else if (options.rest[0] != no_program) {
            snprintf(words, sizeof words, "it takes options and a job file, not %.100s", options.rest[0]);
            status = complain(FSDP_EXIT_USAGE, words);
        } else {
            status = examine(&own, &options, NULL, around);
        }
        options_fini(&options);
    }
    free(own.rest);
    return status;
}
