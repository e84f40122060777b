/*
 * Step 2 of a worker's start (worker.h): what needs file systems. It may run on another thread, so it uses
 * nothing that the loop changes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/output/line_prefix.h"
#include "agent/world/worker.h"
#include "agent/world/worker_env.h"

enum { STATUS_NOT_EXECUTABLE = 126, STATUS_NOT_FOUND = 127 };

void worker_cannot_start(struct death *death, const char *program, int error, bool found)
{
    death->kind = DEATH_SPAWN;
    /* exec reports ENOENT although the file was found: the interpreter in its first line is missing. */
    death->code = error == ENOENT && !found ? STATUS_NOT_FOUND : STATUS_NOT_EXECUTABLE;
    snprintf(death->words, sizeof death->words, "cannot start %.160s: %s", program,
             error == ENOENT && found ? "its interpreter is not there" : strerror(error));
}

void worker_system_refused(struct death *death, const char *what, const char *why)
{
    death->kind = DEATH_SPAWN;
    /* the exit code of a world that cannot be formed, because another try may help */
    death->code = FSDP_EXIT_PEER;
    snprintf(death->words, sizeof death->words, "cannot start a worker: %.60s: %.150s", what, why);
}

/*
 * Returns the words whose lines are also written to the filtered file. Only teed streams have such words,
 * whether the console shows them or not.
 */
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

struct stream_spec worker_stream_spec(const struct worker_context *context, int local_rank,
                                      enum rundir_stream which, char prefix[256])
{
    const struct agent_config *config = context->config;
    const struct line_names names = { .rank = context->plan->first_rank + local_rank,
                                      .local_rank = local_rank,
                                      .generation = context->plan->generation,
                                      .role_name = config->role,
                                      .host = context->host,
                                      .stream = which };

    return (struct stream_spec){
        .generation = context->plan->generation,
        .rank = names.rank,
        .local_rank = local_rank,
        .which = which,
        .mode = worker_output_mode(config, local_rank, which == RUNDIR_STDOUT ? AGENT_STDOUT : AGENT_STDERR),
        .prefix = line_prefix(prefix, 256, config->output.prefix_template, &names),
        .filters = filters_of(config, local_rank, which),
    };
}

/* Make the folder in which the worker's error file will be. Without it the worker gets no error file. */
static bool make_error_folder(const struct worker_context *context, int local_rank)
{
    const struct world_plan *plan = context->plan;
    const struct worker worker = { .rank = plan->first_rank + local_rank, .local_rank = local_rank };
    char path[RUNDIR_PATH_BYTES];

    return worker_error_file(context->config, context->rundir, plan->generation, &worker, path,
                             sizeof path) &&
           rundir_rank_folder(context->rundir, plan->generation, worker.rank, local_rank, path, NULL) ==
               FSDP_OK;
}

static bool check_script(const struct agent_config *config, int local_rank, struct death *death)
{
    char **argv;
    int error;

    if (config->script <= 0)
        return true;
    argv = worker_env_args(config->argv, local_rank);
    if (argv == NULL) {
        worker_system_refused(death, "arguments", "out of memory");
        return false;
    }
    error = os_check_script(argv[config->script]);
    if (error != 0)
        worker_cannot_start(death, argv[config->script], error, false);
    free(argv);
    return error == 0;
}

bool worker_find_program(const struct agent_config *config, char program[RUNDIR_PATH_BYTES],
                         struct death *death)
{
    const int error = os_find_program(config->argv[0], getenv("PATH"), program, RUNDIR_PATH_BYTES);

    if (error != 0)
        worker_cannot_start(death, config->argv[0], error, false);
    return error == 0;
}

bool worker_open_files(struct worker_files *files, const struct worker_context *context, int local_rank,
                       struct death *death)
{
    struct fsdp_err err = { 0 };
    char prefix[256];

    for (enum rundir_stream which = RUNDIR_STDOUT; context->output != NULL && which <= RUNDIR_STDERR;
         which++) {
        const struct stream_spec spec = worker_stream_spec(context, local_rank, which, prefix);

        if (output_open_files(context->output, &spec, &files->streams[which], &err) != FSDP_OK) {
            worker_system_refused(death, "output", err.message);
            return false;
        }
    }
    files->has_error_folder = make_error_folder(context, local_rank);
    return check_script(context->config, local_rank, death);
}

void worker_close_files(struct worker_files *files)
{
    for (int i = 0; i < 2; i++)
        output_close_files(&files->streams[i]);
}
