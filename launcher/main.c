/* The program fsdprun: reads its options, decides what to run, and runs it. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/daemon/control_proto.h"
#include "agent/os/environment.h"
#include "agent/placement/cpus.h"
#include "agent/placement/nvml_process.h"
#include "agent/snapshot/copies_process.h"
#include "agent/snapshot/writer_process.h"
#include "launcher/called.h"
#include "launcher/client.h"
#include "launcher/cmd_ckpt.h"
#include "launcher/cmd_docs.h"
#include "launcher/cmd_doctor.h"
#include "launcher/cmd_jobs.h"
#include "launcher/cmd_plan.h"
#include "launcher/cmd_run.h"
#include "launcher/cmd_version.h"
#include "launcher/devices.h"
#include "launcher/first_task.h"
#include "launcher/options.h"
#include "launcher/say.h"
#include "launcher/secret.h"
#include "launcher/slurm_defaults.h"
#include "launcher/torchrun_link.h"
#include "launcher/what.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/exit_status.h"

static int complain(const char *program, int status, const char *words)
{
    say(stderr, "%s: %s", program, words);
    return status;
}

static void look_around(struct surroundings *around, char own_path[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", own_path, PATH_MAX - 1);

    own_path[n < 0 ? 0 : n] = '\0';
    *around = (struct surroundings){ .get_env = environment_get,
                                     .files = &what_real_files,
                                     .own_path = own_path,
                                     .count_devices = devices_count,
                                     .out_is_terminal = isatty(1),
                                     .err_is_terminal = isatty(2) };
}

/* Runs `fsdprun help [SUBCOMMAND | all]`. */
static int run_help(const struct options *options)
{
    const char *topic = options->n_rest > 1 ? options->rest[1] : NULL;
    char words[128];

    if (topic == NULL || strcmp(topic, "--help") == 0)
        return cmd_help(options->program, stdout);
    if (what_job_command(topic) != NULL)
        return cmd_jobs_help(what_job_command(topic), stdout);
    if (strcmp(topic, "ckpt") == 0)
        return cmd_ckpt_help(options->n_rest > 2 ? options->rest[2] : NULL, stdout);
    if (strcmp(topic, "plan") == 0)
        return cmd_plan_help(stdout);
    if (strcmp(topic, "doctor") == 0)
        return cmd_doctor_help(stdout);
    if (strcmp(topic, "all") == 0)
        return cmd_help_all(options->program, stdout);
    snprintf(words, sizeof words, "help takes a subcommand or all, not %.60s", topic);
    return complain(options->program, FSDP_EXIT_USAGE, words);
}

static int run_subcommand(const struct options *options, const struct options_input *input,
                          struct surroundings *around)
{
    const char *name = options->rest[0];
    const struct subcommand *command = what_job_command(name);
    const struct option_value *agent = &options->of[OPT_AGENT];
    char words[200];

    if (strcmp(name, "doctor") != 0) /* the only one that meets other nodes */
        secret_forget_variable();
    if (command != NULL) /* an agent that only FSDPRUN_AGENT names is no option of the command */
        return cmd_jobs(command, strncmp(agent->origin, "--", 2) == 0 ? agent->text : NULL, options->rest + 1,
                        options->n_rest - 1, stdout, stderr);
    if (strcmp(name, "ckpt") == 0)
        return cmd_ckpt(options->rest + 1, options->n_rest - 1, stdout, stderr);
    if (strcmp(name, "plan") == 0)
        return cmd_plan(input, input->argc - options->n_rest, around);
    if (strcmp(name, "doctor") == 0)
        return cmd_doctor(input, input->argc - options->n_rest, around);
    if (strcmp(name, "version") == 0)
        return cmd_version(stdout);
    if (strcmp(name, "help") == 0)
        return run_help(options);
    snprintf(words, sizeof words, "%s is a reserved word; a program of that name is run as ./%s or -- %s",
             name, name, name);
    return complain("fsdprun", FSDP_EXIT_USAGE, words);
}

/* Runs --install-as-torchrun or --uninstall-as-torchrun. */
static int change_torchrun(const struct options *options, int argc, const char *called,
                           enum fsdp_status (*change)(const char *called, char *said, struct fsdp_err *err))
{
    char said[TORCHRUN_LINK_SAID_BYTES];
    struct fsdp_err err = { 0 };
    enum fsdp_status failed;

    if (argc > 2)
        return complain(options->program, FSDP_EXIT_USAGE,
                        "--install-as-torchrun and --uninstall-as-torchrun stand alone");
    if (options->as_torchrun)
        return complain(options->program, FSDP_EXIT_USAGE,
                        "the link is made and removed by fsdprun, not by the link itself: call fsdprun");
    failed = change(called, said, &err);
    if (failed != FSDP_OK)
        return complain(options->program, exit_status_of(failed), err.message);
    puts(said);
    return fflush(stdout) == 0 ? 0 : FSDP_EXIT_IO;
}

static int run_here(const struct options *options, enum what_kind kind, const struct surroundings *around)
{
    return kind == WHAT_JOB ? cmd_run_job(options, around) : cmd_run_program(options, kind, around);
}

/*
 * Under Slurm: the first task of a node runs the job or program. The other tasks wait for the first one's
 * end.
 */
static int run_task(const struct options *options, enum what_kind kind, const struct surroundings *around)
{
    const int64_t late_ms = clock_now_ms() + FIRST_TASK_WAIT_MS;
    struct fsdp_err err = { 0 };
    enum fsdp_status failed;
    int fd, status = 0;

    if (around->slurm->task_here > 0) {
        secret_forget_variable();
        failed = first_task_await(around->slurm, FIRST_TASK_WAIT_MS, &status, &err);
    } else {
        failed = first_task_begin(&fd, around->slurm, &err);
        if (failed == FSDP_OK)
            status = run_here(options, kind, around);
        first_task_end(fd, around->slurm, status, late_ms - clock_now_ms());
    }
    return failed == FSDP_OK ? status : complain(options->program, exit_status_of(failed), err.message);
}

static int run(struct options *options, const struct options_input *input, struct surroundings *around)
{
    struct what_flags flags = { .module = options_has(options, OPT_MODULE),
                                .no_python = options_has(options, OPT_NO_PYTHON),
                                .run_path = options_has(options, OPT_RUN_PATH),
                                .dashes = options->dashes,
                                .as_torchrun = options->as_torchrun };
    enum what_kind kind = what_is_run(options->rest[0], flags, around->files);
    const char *meant = kind == WHAT_DIRECT && !flags.no_python && !flags.dashes
                            ? what_subcommand_meant(options->rest[0])
                            : NULL;
    const bool is_job = kind == WHAT_JOB;
    struct slurm_defaults defaults;
    struct fsdp_err err = { 0 };

    if (kind == WHAT_SUBCOMMAND)
        return run_subcommand(options, input, around);
    if (meant != NULL) { /* 127 is the status of a program that does not exist */
        say(stderr, "%s: %s is no file and not on PATH; did you mean the subcommand %s?", options->program,
            options->rest[0], meant);
        return 127;
    }
    if ((options_has(options, OPT_AGENT) || options_has(options, OPT_DETACH)) && around->start_fd == NULL &&
        !options_has(options, OPT_DRY_RUN))
        return client_run(options, input->argv, is_job, around->own_path);
    /* A process that fsdp-agent started may have a Slurm task's variables, but it is no task of that step. */
    if (around->start_fd == NULL && slurm_defaults_apply(&defaults, options, is_job, around, &err) != FSDP_OK)
        return complain(options->program, FSDP_EXIT_USAGE, err.message);
    return around->slurm == NULL ? run_here(options, kind, around) : run_task(options, kind, around);
}

/*
 * fsdp-agent runs its jobs as fsdprun with one extra word before those of the user
 * (agent/daemon/control_proto.h). This function removes that word, and moves the others up by one. Returns
 * false if there is none.
 */
static bool take_start_word(int *argc, char ***argv, int *start_fd)
{
    const size_t length = strlen(CONTROL_START_WORD);
    char end;

    if (*argc < 2 || strncmp((*argv)[1], CONTROL_START_WORD, length) != 0 ||
        sscanf((*argv)[1] + length, "%d%c", start_fd, &end) != 1 || fcntl(*start_fd, F_SETFD, FD_CLOEXEC) < 0)
        return false;
    (*argv)[1] = (*argv)[0];
    (*argv)++;
    (*argc)--;
    return true;
}

int main(int argc, char **argv)
{
    int start_fd;
    const bool is_awaited = take_start_word(&argc, &argv, &start_fd);
    struct options_input input = { .argc = argc,
                                   .argv = argv,
                                   .get_env = environment_get,
                                   .n_cpus = cpus_available(),
                                   .count_devices = devices_count };
    char own_path[PATH_MAX], called[PATH_MAX], python[PATH_MAX];
    struct surroundings around;
    struct options options;
    struct fsdp_err err = { 0 };
    int status;

    secret_hide_variable();
    nvml_process_main(argc, argv);
    writer_process_main(argc, argv);
    copies_process_main(argc, argv);
    if (argc == 2 && strncmp(argv[1], "--docs=", 7) == 0)
        return cmd_docs(argv[1] + 7, stdout); /* called by `make docs` */
    if (argc >= 2 && strncmp(argv[1], DOCTOR_NODE_WORD, strlen(DOCTOR_NODE_WORD)) == 0)
        return cmd_doctor_node(argv[1] + strlen(DOCTOR_NODE_WORD), argc > 2 ? argv[2] : NULL);
    if (options_read(&options, &input, &err) != FSDP_OK)
        return complain(options.program, exit_status_of_request(err.status), err.message);
    look_around(&around, own_path);
    around.command = argv;
    around.start_fd = is_awaited ? &start_fd : NULL;
    called_path(argv[0], own_path, called);
    around.python_beside = called_python(called, options.as_torchrun, python);
    if (options_has(&options, OPT_HELP))
        status = cmd_help(options.program, stdout);
    else if (options_has(&options, OPT_HELP_ALL))
        status = cmd_help_all(options.program, stdout);
    else if (options_has(&options, OPT_PRINT_COMPLETION))
        status = cmd_completion(options.of[OPT_PRINT_COMPLETION].text, options.program, stdout);
    else if (options_has(&options, OPT_VERSION))
        status = cmd_version(stdout);
    else if (options_has(&options, OPT_INSTALL_AS_TORCHRUN))
        status = change_torchrun(&options, argc, called, torchrun_link_install);
    else if (options_has(&options, OPT_UNINSTALL_AS_TORCHRUN))
        status = change_torchrun(&options, argc, called, torchrun_link_uninstall);
    else
        status = run(&options, &input, &around);
    options_fini(&options);
    return status;
}
