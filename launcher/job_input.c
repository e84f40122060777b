#include "launcher/job_input.h"
#include "launcher/say.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Options that are also keys of the job file. An option can have two numbers, each with a key of its own. */
static const struct {
    enum option_id id;
    const char *key;
    size_t number; /* offset of that number in struct option_value */
} launch_keys[] = {
    { OPT_NPROC_PER_NODE, "launch.nproc_per_node", offsetof(struct option_value, number) },
    { OPT_NNODES, "launch.nnodes", offsetof(struct option_value, number) },
    { OPT_MAX_RESTARTS, "launch.max_restarts", offsetof(struct option_value, number) },
    { OPT_MAX_RESTARTS, "launch.restart_window_s", offsetof(struct option_value, window_s) },
    { OPT_HANG_TIMEOUT, "launch.hang_timeout_s", offsetof(struct option_value, number) },
};
enum { N_LAUNCH_KEYS = sizeof launch_keys / sizeof *launch_keys, WORDS_BYTES = 256 };

/*
 * Where the value of an option came from; each kind overrides those before it. The job file stands between
 * WEAK and ENVIRONMENT.
 */
enum strength { WEAK, ENVIRONMENT, COMMAND_LINE };

static enum strength strength_of(const struct option_value *value)
{
    return value->is_weak ? WEAK : value->origin[0] == '-' ? COMMAND_LINE : ENVIRONMENT;
}

/*
 * Adds the settings of launch_keys whose options have that strength. Options with words such as cpu have
 * their number by now. Returns the new number of settings.
 */
static size_t add_launch_settings(struct job_input_result *result, const struct options *options,
                                  enum strength strength, size_t n)
{
    for (size_t i = 0; i < N_LAUNCH_KEYS; i++) {
        const struct option_value *value = &options->of[launch_keys[i].id];
        char *words = result->words + i * WORDS_BYTES;

        if (value->text == NULL || strength_of(value) != strength)
            continue;
        snprintf(words, WORDS_BYTES, "%s=%" PRId64, launch_keys[i].key,
                 *(const int64_t *)((const char *)value + launch_keys[i].number));
        result->settings[n++] = (struct job_setting){ value->origin, words };
    }
    return n;
}

/*
 * Adds the settings of --set. Their origins are "--set 1", "--set 2" and so on. Returns the new number of
 * settings.
 */
static size_t add_sets(struct job_input_result *result, const struct options *options, size_t n)
{
    for (size_t i = 0; i < options->n_sets; i++) {
        char *words = result->words + (N_LAUNCH_KEYS + i) * WORDS_BYTES;

        snprintf(words, WORDS_BYTES, "--set %zu", i + 1);
        result->settings[n++] = (struct job_setting){ words, options->sets[i] };
    }
    return n;
}

/* Adds the settings that a key of the job file overrides. Returns their number. */
static size_t add_defaults(struct job_input_result *result, const struct options *options)
{
    char *words = result->words + (N_LAUNCH_KEYS + options->n_sets) * WORDS_BYTES;
    size_t n = add_launch_settings(result, options, WEAK, 0);

    if (options->run_name == NULL)
        return n;
    snprintf(words, WORDS_BYTES, "run.name=%s", options->run_name);
    result->settings[n++] = (struct job_setting){ "SLURM_JOB_NAME", words };
    return n;
}

enum fsdp_status job_input_resolve(struct job_input_result *result, const struct options *options,
                                   FILE *problems, struct fsdp_err *err)
{
    const size_t most = N_LAUNCH_KEYS + options->n_sets + 1;
    size_t n;
    struct job_input input = { .path = options->rest[0] };
    struct job_report report;
    enum fsdp_status status;

    memset(result, 0, sizeof *result);
    result->settings = calloc(most, sizeof *result->settings);
    result->words = calloc(most, WORDS_BYTES);
    if (result->settings == NULL || result->words == NULL) {
        job_input_fini(result);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the settings");
    }
    input.defaults = result->settings;
    input.n_defaults = n = add_defaults(result, options);
    input.settings = result->settings + n;
    n = add_launch_settings(result, options, ENVIRONMENT, n);
    n = add_sets(result, options, n);
    n = add_launch_settings(result, options, COMMAND_LINE, n);
    input.n_settings = n - input.n_defaults;
    job_report_init(&report);
    status = job_resolve(&result->job, &result->origins, &input, &report);
    for (size_t i = 0; status == FSDP_ERR_CONFIG && i < report.n; i++)
        say(problems, "%s", report.problems[i].line);
    if (status != FSDP_OK)
        fsdp_fail(err, status, status == FSDP_ERR_NOMEM ? "no memory for the job" : "%s: cannot be used",
                  input.path);
    job_report_fini(&report);
    if (status != FSDP_OK)
        job_input_fini(result);
    return status;
}

void job_input_fini(struct job_input_result *result)
{
    job_free(&result->job);
    free(result->settings);
    free(result->words);
    memset(result, 0, sizeof *result);
}
