/* Fills in where the output of the workers goes. */
#include <stdlib.h>
#include <string.h>

#include "launcher/launch_impl.h"
#include "shard_runtime/core/exit_status.h"

static int no_memory(int n_workers, struct fsdp_err *err)
{
    return exit_status_of(fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for %d workers", n_workers));
}

typedef enum fsdp_status parse_ranks(const char *text, int n_ranks, unsigned char *out, struct fsdp_err *err);

/* Sets *out to an array with one value for each local rank. If the option was not given, *out stays NULL. */
static int set_ranks(const struct options *options, enum option_id id, parse_ranks *parse, int n_workers,
                     unsigned char **out, struct fsdp_err *err)
{
    const char *text = options->of[id].text;

    if (text == NULL)
        return 0;
    *out = calloc((size_t)n_workers, 1);
    if (*out == NULL)
        return no_memory(n_workers, err);
    if (parse(text, n_workers, *out, err) == FSDP_OK)
        return 0;
    /* option_check() has checked the form of the text. The number of ranks is known only now. */
    fsdp_wrap(err, "%s", options->of[id].origin);
    return FSDP_EXIT_USAGE;
}

static int set_patterns(const struct options *options, enum option_id id, char ***out, struct fsdp_err *err)
{
    const char *text = options->of[id].text;

    return text == NULL ? 0 : exit_status_of(options_patterns(text, out, err));
}

static bool wants_color(const struct options *options, const struct surroundings *around)
{
    const char *terminal = launch_env(around, "TERM");

    if (options_has(options, OPT_COLOR))
        return true;
    if (options_has(options, OPT_NO_COLOR) || launch_env(around, "NO_COLOR") != NULL)
        return false;
    return around->err_is_terminal && terminal != NULL && strcmp(terminal, "dumb") != 0;
}

/* Sends each stream of a detached job to its file only, even with --tee: a detached job has no console. */
static int redirect_all(struct launch *launch, struct fsdp_err *err)
{
    struct agent_output *output = &launch->config.output;
    const size_t n_workers = (size_t)launch->config.n_workers;

    free(launch->redirects);
    launch->redirects = malloc(n_workers);
    if (launch->redirects == NULL)
        return no_memory(launch->config.n_workers, err);
    memset(launch->redirects, AGENT_STDOUT | AGENT_STDERR, n_workers);
    output->redirects = launch->redirects;
    output->tees = NULL;
    output->bar = output->color = output->prefix = false;
    return 0;
}

int launch_set_output(struct launch *launch, const struct options *options, const struct surroundings *around,
                      struct fsdp_err *err)
{
    struct agent_output *output = &launch->config.output;
    int n_workers = launch->config.n_workers;
    int status = set_ranks(options, OPT_REDIRECTS, options_streams, n_workers, &launch->redirects, err);

    if (status == 0)
        status = set_ranks(options, OPT_TEE, options_streams, n_workers, &launch->tees, err);
    if (status == 0)
        status = set_ranks(options, OPT_LOCAL_RANKS_FILTER, options_ranks, n_workers, &launch->shown, err);
    if (status == 0)
        status = set_patterns(options, OPT_DUPLICATE_STDOUT_FILTERS, &launch->stdout_filters, err);
    if (status == 0)
        status = set_patterns(options, OPT_DUPLICATE_STDERR_FILTERS, &launch->stderr_filters, err);
    output->redirects = launch->redirects;
    output->tees = launch->tees;
    output->shown = launch->shown;
    output->stdout_filters = launch->stdout_filters;
    output->stderr_filters = launch->stderr_filters;
    output->color = wants_color(options, around);
    output->file_limit_bytes = (uint64_t)options_number(options, OPT_LOG_LIMIT, 0);
    output->n_rotated = output->file_limit_bytes == 0 ? 0 : (int)options_number(options, OPT_LOG_KEEP, 1);
    return status == 0 && options_has(options, OPT_DETACH) ? redirect_all(launch, err) : status;
}
