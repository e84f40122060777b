/*
 * The launcher resolves the job. It then executes fsdp-train, which makes the plan, because the launcher does
 * not link the numerics library.
 */
#include "launcher/cmd_plan.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "launcher/devices.h"
#include "launcher/job_input.h"
#include "launcher/json_table.h"
#include "launcher/launch.h"
#include "launcher/say.h"
#include "shard_runtime/core/exit_status.h"

static const char help[] =
    "fsdprun plan: what a job needs of a rank, from its file alone: no GPU, no data,\n"
    "no run.\n\n"
    "  fsdprun plan [--memory SIZE] [--evaluation BATCH] [--json]\n"
    "               [options of fsdprun] JOB.yaml\n"
    "  fsdprun plan --schedule [options of fsdprun] JOB.yaml\n\n"
    "  --memory SIZE   what a rank has (80G, 512M; powers of 1024): say whether the\n"
    "                  job fits, and if not which keys would change that, what they\n"
    "                  cost and whether they change numbers: what fits and changes\n"
    "                  least comes first\n"
    "  --evaluation BATCH\n"
    "                  add an evaluation of this many sequences to training (a\n"
    "                  program's own, by the C API: jobs have none)\n"
    "  --json          for programs: bytes by class, bytes sent a step, fits\n"
    "  --schedule      instead of figures: how each parameter is cut, a line each,\n"
    "                  and what a step computes, gathers, frees and reduces, in order\n\n"
    "--nproc-per-node, --nnodes and --set mean what they mean when the job is run.\n"
    "A model of more than 256 blocks is not planned.\n";

/* The options that only plan has, to be offered for a misspelled option. */
static const char *const own_names[] = { "memory", "evaluation", "json", "schedule", NULL };

/*
 * The options that only plan has. `rest` is the command line without them and without the word "plan": the
 * command line of a job.
 */
struct own {
    char *memory, *evaluation;
    bool json, schedule, help;
    const char *missing; /* the message about an option that lacks its value; NULL: none lacks it */
    char **rest;
    int n_rest;
};

/*
 * If word number *i is an option of plan that takes a value, stores the value and returns true. If the value
 * is the next word, *i moves to it. If there is no value, sets own->missing.
 */
static bool takes_value(struct own *own, const struct options_input *input, int *i)
{
    const struct {
        const char *name, *missing;
        char **value;
    } options[] = { { "--memory", "--memory needs a size, as 80G", &own->memory },
                    { "--evaluation", "--evaluation needs a number of sequences", &own->evaluation } };
    char *word = input->argv[*i];

    for (size_t o = 0; o < sizeof options / sizeof *options; o++) {
        const size_t length = strlen(options[o].name);

        if (strncmp(word, options[o].name, length) != 0 || (word[length] != '=' && word[length] != '\0'))
            continue;
        if (word[length] == '=')
            *options[o].value = word + length + 1;
        else if (*i + 1 < input->argc)
            *options[o].value = input->argv[++*i];
        else
            own->missing = options[o].missing;
        return true;
    }
    return false;
}

static void split(struct own *own, const struct options_input *input, int place)
{
    for (int i = 0; i < input->argc; i++) {
        char *word = input->argv[i];

        if (i == place)
            continue;
        if (i > place && strcmp(word, "--json") == 0)
            own->json = true;
        else if (i > place && strcmp(word, "--schedule") == 0)
            own->schedule = true;
        else if (i > place && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0))
            own->help = true;
        else if (i > place && takes_value(own, input, &i))
            continue;
        else
            own->rest[own->n_rest++] = word;
    }
}

static int complain(int status, const char *words)
{
    say(stderr, "fsdprun plan: %s", words);
    return status;
}

/*
 * Makes the text `json` the standard input of this process. Returns false, with errno set, if the system
 * refuses.
 */
static bool feed(const char *json)
{
    const size_t length = strlen(json);
    const int fd = memfd_create("fsdprun-plan", MFD_CLOEXEC);
    const bool fed = fd >= 0 && write(fd, json, length) == (ssize_t)length && lseek(fd, 0, SEEK_SET) == 0 &&
                     dup2(fd, 0) == 0;

    if (fd > 0)
        close(fd);
    return fed;
}

/*
 * Returns how many ranks a node like this one can have: one per GPU, or one per CPU without GPUs. 0: unknown.
 */
static int count_node_ranks(const struct job *job)
{
    cpu_set_t cpus;
    char why[256];
    int n_gpus;

    if (strcmp(job->run.device, "cuda") == 0) {
        n_gpus = devices_count(NULL, "gpu", false, why, sizeof why);
        return n_gpus > 0 ? n_gpus : 0;
    }
    return sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 0;
}

static int become_trainer(const struct own *own, const struct job *job, const char *json,
                          const char *own_path)
{
    char trainer[PATH_MAX], words[PATH_MAX + 128], node_ranks[16];
    const char *argv[12];
    int n = 0;

    if (!launch_trainer_path(own_path, trainer, sizeof trainer))
        return complain(FSDP_EXIT_IO, "the path of fsdprun is too long");
    if (!feed(json))
        return complain(FSDP_EXIT_IO, strerror(errno));
    argv[n++] = trainer;
    argv[n++] = "--plan";
    argv[n++] = "-";
    if (own->schedule)
        argv[n++] = "--schedule";
    if (own->json)
        argv[n++] = "--json";
    if (own->memory != NULL) {
        argv[n++] = "--memory";
        argv[n++] = own->memory;
        snprintf(node_ranks, sizeof node_ranks, "%d", count_node_ranks(job));
        argv[n++] = "--node-ranks";
        argv[n++] = node_ranks;
    }
    if (own->evaluation != NULL) {
        argv[n++] = "--evaluation";
        argv[n++] = own->evaluation;
    }
    argv[n] = NULL;
    execv(trainer, (char *const *)(uintptr_t)argv);
    snprintf(words, sizeof words, "%s: %s", trainer, strerror(errno));
    return complain(errno == ENOENT ? 127 : 126, words);
}

static int plan_job(const struct own *own, const struct options *options, const struct surroundings *around)
{
    struct job_input_result input;
    struct fsdp_err err = { 0 };
    enum fsdp_status resolved;
    char *json = NULL;
    int status;

    if (options->n_rest == 0 || !options_names_job(options->rest[0]))
        return complain(FSDP_EXIT_USAGE, "it plans a job: fsdprun plan JOB.yaml");
    resolved = job_input_resolve(&input, options, stderr, &err);
    if (resolved != FSDP_OK) /* job_input_resolve() has printed its problems to stderr */
        return resolved == FSDP_ERR_CONFIG ? FSDP_EXIT_CONFIG
                                           : complain(exit_status_of(resolved), err.message);
    resolved = job_to_json(&input.job, &json, &err);
    status = resolved == FSDP_OK ? become_trainer(own, &input.job, json, around->own_path)
                                 : complain(exit_status_of(resolved), err.message);
    free(json);
    job_input_fini(&input);
    return status;
}

int cmd_plan_help(FILE *out)
{
    fputs(help, out);
    return json_written(out);
}

int cmd_plan(const struct options_input *input, int place, const struct surroundings *around)
{
    struct own own = { .rest = calloc((size_t)input->argc + 1, sizeof *own.rest) };
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
        status = cmd_plan_help(stdout);
    } else if (own.missing != NULL) {
        status = complain(FSDP_EXIT_USAGE, own.missing);
    } else if (own.schedule && (own.json || own.memory != NULL || own.evaluation != NULL)) {
        status = complain(FSDP_EXIT_USAGE,
                          "--schedule prints no figures: not with --json, --memory or --evaluation");
    } else if (options_read(&options, &rest, &err) != FSDP_OK) {
        status = complain(exit_status_of_request(err.status), err.message);
    } else {
        status = plan_job(&own, &options, around);
        options_fini(&options);
    }
    free(own.rest);
    return status;
}
