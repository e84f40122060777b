#include "shard_runtime/trainer/options.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/require.h"

enum kind { FLAG, TEXT, COUNT, NUMBER, SIZE };
/* when the option may be used: always, only with --sample, or only with --plan */
enum mode { ALWAYS, OF_SAMPLE, OF_PLAN };

static const struct option {
    const char *name, *argument;
    enum kind kind;
    enum mode mode;
    size_t field;
    const char *help;
} table[] = {
    { "--sample", "CHECKPOINT", TEXT, ALWAYS, offsetof(struct options, sample),
      "write text with the weights of a checkpoint, or the newest of a run directory" },
    { "--prompt", "TEXT", TEXT, OF_SAMPLE, offsetof(struct options, prompt), "what the text begins with" },
    { "--tokens", "N", COUNT, OF_SAMPLE, offsetof(struct options, tokens), "tokens to write (200)" },
    { "--temperature", "T", NUMBER, OF_SAMPLE, offsetof(struct options, temperature),
      "0: always the likeliest token; 1: as the model says (0.8)" },
    { "--top-k", "K", COUNT, OF_SAMPLE, offsetof(struct options, top_k),
      "choose among the K likeliest; 0: all (0)" },
    { "--seed", "N", COUNT, OF_SAMPLE, offsetof(struct options, seed),
      "the same seed writes the same text (1234)" },
    { "--plan", NULL, FLAG, ALWAYS, offsetof(struct options, plan),
      "print what the job needs of a rank, and train nothing" },
    { "--memory", "SIZE", SIZE, OF_PLAN, offsetof(struct options, memory),
      "what a rank has (80G, 512M): say whether it fits, and what to change" },
    { "--node-ranks", "N", COUNT, OF_PLAN, offsetof(struct options, node_ranks),
      "ranks that a node can have: --memory never proposes more" },
    { "--evaluation", "BATCH", COUNT, OF_PLAN, offsetof(struct options, evaluation),
      "add an evaluation of this many sequences to training" },
    { "--json", NULL, FLAG, OF_PLAN, offsetof(struct options, json), "as JSON" },
    { "--schedule", NULL, FLAG, OF_PLAN, offsetof(struct options, schedule),
      "print instead how each parameter is cut, and what a step does in order" },
    { "--gate", NULL, FLAG, ALWAYS, offsetof(struct options, gate),
      "started by fsdprun --standby: wait until a generation begins" },
    { "--help", NULL, FLAG, ALWAYS, offsetof(struct options, help), "this text" },
    { "--version", NULL, FLAG, ALWAYS, offsetof(struct options, version), "version, commit, compiler" },
};
enum { TABLE_SIZE = sizeof table / sizeof *table };

void options_help(FILE *out)
{
    fputs("fsdp-train: the worker that trains a job of fsdprun.\n\n"
          "  fsdp-train                      started by fsdprun, which hands it the job\n"
          "  fsdp-train JOB.json             alone, a world of one; JOB.json as in a run directory\n"
          "  fsdp-train --sample CHECKPOINT  write text\n"
          "  fsdp-train --plan JOB.json      what it needs; `fsdprun plan` starts it\n\n",
          out);
    for (size_t i = 0; i < TABLE_SIZE; i++) {
        char left[64];

        snprintf(left, sizeof left, "%s%s%s", table[i].name, table[i].argument ? " " : "",
                 table[i].argument ? table[i].argument : "");
        fprintf(out, "  %-24s %s\n", left, table[i].help);
    }
}

/*
 * Reads a size such as "80G", "512M" or "1.5T". Units are powers of 1024; "iB" or "B" may follow. Returns
 * false if the text is not a size.
 */
static bool read_size(const char *text, uint64_t *size)
{
    static const char units[] = "KMGTP";
    char *end = NULL;
    double value = strtod(text, &end);

    if (end == text || !isfinite(value) || value <= 0)
        return false;
    if (*end != '\0' && strchr(units, *end) != NULL) {
        value = ldexp(value, 10 * (int)(strchr(units, *end) - units + 1));
        end++;
        end += *end == 'i';
    }
    end += *end == 'B';
    if (*end != '\0' || value < 1 || value >= 0x1p63)
        return false;
    *size = (uint64_t)value;
    return true;
}

static enum fsdp_status store(struct options *options, const struct option *option, const char *text,
                              struct fsdp_err *err)
{
    void *field = (char *)options + option->field;
    char *end = NULL;

    errno = 0;
    switch (option->kind) {
    case FLAG:
        *(bool *)field = true;
        return FSDP_OK;
    case TEXT:
        *(const char **)field = text;
        return FSDP_OK;
    case COUNT:
        *(uint64_t *)field = strtoull(text, &end, 10);
        if (errno != 0 || end == text || *end != '\0' || text[0] == '-')
            return fsdp_fail(err, FSDP_ERR_ARG, "%s: \"%s\" is not a whole number", option->name, text);
        return FSDP_OK;
    case NUMBER:
        *(double *)field = strtod(text, &end);
        if (end == text || *end != '\0' || !isfinite(*(double *)field) || *(double *)field < 0)
            return fsdp_fail(err, FSDP_ERR_ARG, "%s: \"%s\" is not a number from 0 on", option->name, text);
        return FSDP_OK;
    case SIZE:
        if (!read_size(text, field))
            return fsdp_fail(err, FSDP_ERR_ARG, "%s: \"%s\" is no size, as 80G or 512M", option->name, text);
        return FSDP_OK;
    }
    return FSDP_OK;
}

/*
 * Finds the option that `argument` names, as "--name" or "--name=value". In the second form, *value points to
 * the text after the equals sign. Returns NULL if there is no such option.
 */
static const struct option *find(const char *argument, const char **value)
{
    for (size_t i = 0; i < TABLE_SIZE; i++) {
        const size_t length = strlen(table[i].name);

        if (strncmp(argument, table[i].name, length) != 0)
            continue;
        if (argument[length] == '=')
            *value = argument + length + 1;
        if (argument[length] == '=' || argument[length] == '\0')
            return &table[i];
    }
    return NULL;
}

enum fsdp_status options_parse(struct options *options, int argc, char **argv, struct fsdp_err *err)
{
    const char *first_of[] = { [OF_SAMPLE] = NULL, [OF_PLAN] = NULL };

    *options = (struct options){ .prompt = "\n", .tokens = 200, .seed = 1234, .temperature = 0.8 };
    for (int i = 1; i < argc; i++) {
        const char *value = NULL;
        const struct option *option = find(argv[i], &value);

        if (option == NULL && argv[i][0] == '-' && argv[i][1] != '\0')
            return fsdp_fail(err, FSDP_ERR_ARG, "unknown option %s", argv[i]);
        if (option == NULL && options->job_path != NULL)
            return fsdp_fail(err, FSDP_ERR_ARG, "%s: one job file at most", argv[i]);
        if (option == NULL) {
            options->job_path = argv[i];
            continue;
        }
        if (option->kind == FLAG && value != NULL)
            return fsdp_fail(err, FSDP_ERR_ARG, "%s takes no value", option->name);
        if (option->kind != FLAG && value == NULL && i + 1 == argc)
            return fsdp_fail(err, FSDP_ERR_ARG, "%s needs %s", option->name, option->argument);
        if (option->kind != FLAG && value == NULL)
            value = argv[++i];
        first_of[option->mode] = option->name;
        OK_OR_RETURN(store(options, option, value, err));
    }
    if (options->help || options->version)
        return FSDP_OK;
    if (first_of[OF_SAMPLE] != NULL && options->sample == NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "%s is only for --sample", first_of[OF_SAMPLE]);
    if (first_of[OF_PLAN] != NULL && !options->plan)
        return fsdp_fail(err, FSDP_ERR_ARG, "%s is only for --plan", first_of[OF_PLAN]);
    if (options->schedule && (options->json || options->memory > 0 || options->evaluation > 0))
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "--schedule prints no figures: not with --json, --memory or --evaluation");
    if (options->sample != NULL && options->plan)
        return fsdp_fail(err, FSDP_ERR_ARG, "--sample or --plan, not both");
    if (options->plan && options->job_path == NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "--plan needs a job: fsdp-train --plan JOB.json");
    if (options->gate && (options->sample != NULL || options->plan || options->job_path != NULL))
        return fsdp_fail(err, FSDP_ERR_ARG, "--gate takes neither a job file nor another option");
    if (options->sample != NULL && options->job_path != NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "--sample reads the checkpoint's own job: give no job file");
    return FSDP_OK;
}
