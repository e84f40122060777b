#include "shard_runtime/trainer/options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum kind { FLAG, TEXT, COUNT, NUMBER };

static const struct option {
    const char *name, *argument;
    enum kind kind;
    bool of_sample; /* means something only beside --sample */
    size_t field;
    const char *help;
} table[] = {
    { "--sample", "CHECKPOINT", TEXT, false, offsetof(struct options, sample),
      "write text with the weights of a checkpoint, or the newest of a run directory" },
    { "--prompt", "TEXT", TEXT, true, offsetof(struct options, prompt), "what the text begins with" },
    { "--tokens", "N", COUNT, true, offsetof(struct options, tokens), "tokens to write (200)" },
    { "--temperature", "T", NUMBER, true, offsetof(struct options, temperature),
      "0: always the likeliest token; 1: as the model says (0.8)" },
    { "--top-k", "K", COUNT, true, offsetof(struct options, top_k),
      "choose among the K likeliest; 0: all (0)" },
    { "--seed", "N", COUNT, true, offsetof(struct options, seed),
      "the same seed writes the same text (1234)" },
    { "--plan", NULL, FLAG, false, offsetof(struct options, plan), "not supported yet" },
    { "--help", NULL, FLAG, false, offsetof(struct options, help), "this text" },
    { "--version", NULL, FLAG, false, offsetof(struct options, version), "version, commit, compiler" },
};
enum { TABLE_SIZE = sizeof table / sizeof *table };

void options_help(FILE *out)
{
    fputs("fsdp-train: the worker that trains a job of fsdprun.\n\n"
          "  fsdp-train                      started by fsdprun, which hands it the job\n"
          "  fsdp-train JOB.json             alone, a world of one; JOB.json as in a run directory\n"
          "  fsdp-train --sample CHECKPOINT  write text\n\n",
          out);
    for (size_t i = 0; i < TABLE_SIZE; i++) {
        char left[64];

        snprintf(left, sizeof left, "%s%s%s", table[i].name, table[i].argument ? " " : "",
                 table[i].argument ? table[i].argument : "");
        fprintf(out, "  %-24s %s\n", left, table[i].help);
    }
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
    }
    return FSDP_OK;
}

/* The option that `argument` names, as "--name" or "--name=value" with *value behind the sign; NULL for none.
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
    const char *of_sample = NULL;

    *options = (struct options){ .prompt = "\n", .tokens = 200, .seed = 1234, .temperature = 0.8 };
    for (int i = 1; i < argc; i++) {
        const char *value = NULL;
        const struct option *option = find(argv[i], &value);
        enum fsdp_status status;

        if (option == NULL && argv[i][0] == '-')
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
        if (option->of_sample)
            of_sample = option->name;
        status = store(options, option, value, err);
        if (status != FSDP_OK)
            return status;
    }
    if (options->help || options->version)
        return FSDP_OK;
    if (options->plan)
        return fsdp_fail(err, FSDP_ERR_ARG, "--plan is not supported yet");
    if (of_sample != NULL && options->sample == NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "%s is only for --sample", of_sample);
    if (options->sample != NULL && options->job_path != NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "--sample reads the checkpoint's own job: no job file beside it");
    return FSDP_OK;
}
