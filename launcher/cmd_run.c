#include "launcher/cmd_run.h"

#include <stdio.h>
#include <stdlib.h>

#include "launcher/client.h"
#include "launcher/exit_status.h"
#include "launcher/job_input.h"

static int complain(int status, const struct fsdp_err *err)
{
    if (status != 0)
        fprintf(stderr, "fsdprun: %s\n", err->message);
    return status;
}

/* Here, or by the agent that stands on this node. */
static int run(struct launch *launch, const struct options *options)
{
    if (options_has(options, OPT_AGENT))
        return client_run(options->of[OPT_AGENT].text, &launch->config, options_has(options, OPT_DETACH));
    return agent_run(&launch->config);
}

int cmd_run_job(const struct options *options, const struct surroundings *around)
{
    struct job_input_result input;
    struct launch launch = { 0 };
    struct fsdp_err err = { 0 };
    enum fsdp_status resolved = job_input_resolve(&input, options, stderr, &err);
    int status;

    if (resolved != FSDP_OK) /* the lines about a job file stand by themselves */
        return resolved == FSDP_ERR_CONFIG ? FSDP_EXIT_CONFIG : complain(exit_status_of(resolved), &err);
    if (options_has(options, OPT_DRY_RUN)) {
        status = complain(exit_status_of(job_print_yaml(&input.job, &input.origins, stdout, &err)), &err);
    } else {
        status = complain(launch_job(&launch, options, &input.job, around, &err), &err);
        if (status == 0)
            status = run(&launch, options);
    }
    launch_fini(&launch);
    job_input_fini(&input);
    return status;
}

/* --dry-run of a program: the command of a worker and the world it would run in. */
static int print_program(const struct options *options, enum what_kind kind,
                         const struct surroundings *around)
{
    static const enum option_id shown[] = { OPT_NPROC_PER_NODE, OPT_NNODES, OPT_NODE_RANK, OPT_MAX_RESTARTS };
    struct fsdp_err err = { 0 };
    char **argv = launch_program_argv(options, kind, around, &err);

    if (argv == NULL)
        return complain(err.status == FSDP_ERR_NOT_FOUND ? 127 : exit_status_of(err.status), &err);
    fputs("command:", stdout);
    for (size_t i = 0; argv[i] != NULL; i++)
        printf(" %s", argv[i]);
    fputs("\n", stdout);
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        const struct option_value *value = &options->of[shown[i]];
        const struct option *option = option_find(shown[i]);

        printf("%s: %lld # %s\n", option->name,
               (long long)options_number(options, shown[i],
                                         shown[i] == OPT_NPROC_PER_NODE || shown[i] == OPT_NNODES),
               value->text == NULL ? "default" : value->origin);
    }
    free(argv);
    return fflush(stdout) == 0 ? 0 : FSDP_EXIT_IO;
}

int cmd_run_program(const struct options *options, enum what_kind kind, const struct surroundings *around)
{
    struct launch launch = { 0 };
    struct fsdp_err err = { 0 };
    int status;

    if (options_has(options, OPT_DRY_RUN))
        return print_program(options, kind, around);
    status = complain(launch_program(&launch, options, kind, around, &err), &err);
    if (status == 0) {
        if (kind == WHAT_ON_PATH && !launch.config.quiet)
            fprintf(stderr, "fsdprun: %s is no file here: running the one on PATH\n", options->rest[0]);
        status = run(&launch, options);
    }
    launch_fini(&launch);
    return status;
}
