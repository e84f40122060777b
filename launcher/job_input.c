#include "launcher/job_input.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Options that are keys of the job file as well. */
static const struct {
    enum option_id id;
    const char *key;
} launch_keys[] = {
    { OPT_NPROC_PER_NODE, "launch.nproc_per_node" },
    { OPT_NNODES, "launch.nnodes" },
    { OPT_MAX_RESTARTS, "launch.max_restarts" },
};
enum { N_LAUNCH_KEYS = sizeof launch_keys / sizeof *launch_keys, WORDS_BYTES = 96 };

/* Settings from the environment (origins without a dash) or from options, numbers in place of words like cpu.
 */
static size_t add_launch_settings(struct job_input_result *result, const struct options *options,
                                  bool command_line, size_t n)
{
    for (size_t i = 0; i < N_LAUNCH_KEYS; i++) {
        const struct option_value *value = &options->of[launch_keys[i].id];
        char *words = result->words + i * WORDS_BYTES;

        if (value->text == NULL || (value->origin[0] == '-') != command_line)
            continue;
        snprintf(words, WORDS_BYTES, "%s=%" PRId64, launch_keys[i].key, value->number);
        result->settings[n++] = (struct job_setting){ value->origin, words };
    }
    return n;
}

/* "--set 1", "--set 2", ... behind the words of the launch settings. */
static size_t add_sets(struct job_input_result *result, const struct options *options, size_t n)
{
    for (size_t i = 0; i < options->n_sets; i++) {
        char *words = result->words + (N_LAUNCH_KEYS + i) * WORDS_BYTES;

        snprintf(words, WORDS_BYTES, "--set %zu", i + 1);
        result->settings[n++] = (struct job_setting){ words, options->sets[i] };
    }
    return n;
}

enum fsdp_status job_input_resolve(struct job_input_result *result, const struct options *options,
                                   FILE *problems, struct fsdp_err *err)
{
    size_t most = N_LAUNCH_KEYS + options->n_sets, n = 0;
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
    n = add_launch_settings(result, options, false, n);
    n = add_sets(result, options, n);
    n = add_launch_settings(result, options, true, n);
    input.settings = result->settings;
    input.n_settings = n;
    job_report_init(&report);
    status = job_resolve(&result->job, &result->origins, &input, &report);
    for (size_t i = 0; status == FSDP_ERR_CONFIG && i < report.n; i++)
        fprintf(problems, "%s\n", report.problems[i].line);
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
