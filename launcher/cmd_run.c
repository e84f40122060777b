#include "launcher/cmd_run.h"

#include <stdio.h>
#include <stdlib.h>

#include "agent/run/agent.h"
#include "launcher/client.h"
#include "launcher/job_input.h"
#include "launcher/print_launch.h"
#include "shard_runtime/core/exit_status.h"

static int complain(const struct options *options, int status, const struct fsdp_err *err)
{
    if (status != 0)
        fprintf(stderr, "%s: %s\n", options->program, err->message);
    return status;
}

static void print_notes(const struct launch *launch, const struct options *options)
{
    for (size_t i = 0; i < launch->n_notes && !launch->config.quiet; i++)
        fprintf(stderr, "%s: %s\n", options->program, launch->notes[i]);
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
        return resolved == FSDP_ERR_CONFIG ? FSDP_EXIT_CONFIG
                                           : complain(options, exit_status_of(resolved), &err);
    if (options_has(options, OPT_DRY_RUN)) {
        status =
            complain(options, exit_status_of(job_print_yaml(&input.job, &input.origins, stdout, &err)), &err);
    } else {
        status = complain(options, launch_job(&launch, options, &input.job, around, &err), &err);
        if (status == 0) {
            print_notes(&launch, options);
            status = run(&launch, options);
        }
    }
    launch_fini(&launch);
    job_input_fini(&input);
    return status;
}

int cmd_run_program(const struct options *options, enum what_kind kind, const struct surroundings *around)
{
    struct launch launch = { 0 };
    struct fsdp_err err = { 0 };
    int status;

    status = complain(options, launch_program(&launch, options, kind, around, &err), &err);
    if (status == 0)
        print_notes(&launch, options);
    if (status == 0 && options_has(options, OPT_DRY_RUN)) {
        status = print_launch(&launch, options, stdout);
    } else if (status == 0) {
        if (kind == WHAT_ON_PATH && !options->dashes && !launch.config.quiet)
            fprintf(stderr, "%s: %s is no file here: running the one on PATH\n", options->program,
                    options->rest[0]);
        status = run(&launch, options);
    }
    launch_fini(&launch);
    return status;
}
