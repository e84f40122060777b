#include "launcher/job_words.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/spelling.h"

/*
 * Returns the option that `word` names, or NULL if the command has none of that name. `value` receives the
 * text after "=", or NULL.
 */
static const struct subcommand_option *find(const struct subcommand *command, const char *word,
                                            const char **value)
{
    const size_t length = strcspn(word, "=");

    *value = word[length] == '=' ? word + length + 1 : NULL;
    for (const struct subcommand_option *option = command->options; option->name != NULL; option++)
        if ((word[1] == '-' && strlen(option->name) == length - 2 &&
             strncmp(word + 2, option->name, length - 2) == 0) ||
            (option->letter != 0 && word[1] == option->letter && word[2] == '\0'))
            return option;
    return NULL;
}

static enum fsdp_status refuse_option(const struct subcommand *command, const char *word,
                                      struct fsdp_err *err)
{
    char name[SPELLING_MAX_BYTES + 1], near[SPELLING_MAX_BYTES + 3], hint[SPELLING_HINT_BYTES];
    size_t best = (size_t)-1;

    near[0] = '\0';
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    for (const struct subcommand_option *option = command->options; option->name != NULL; option++)
        if (strncmp(name, "--", 2) == 0 && spelling_is_close(name + 2, option->name, &best))
            snprintf(near, sizeof near, "--%s", option->name);
    return fsdp_fail(err, FSDP_ERR_CONFIG, "%s has no option %.60s%s", command->name, word,
                     spelling_hint(near[0] != '\0' ? near : NULL, hint));
}

/* `what` is what the option `name` takes, for the message. */
static enum fsdp_status read_number(int *out, const char *name, const char *what, const char *text,
                                    struct fsdp_err *err)
{
    char *end;
    long number;

    errno = 0;
    number = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0' || errno != 0 || number < 0 || number > INT_MAX)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "--%s takes %s, not \"%.40s\"", name, what, text);
    *out = (int)number;
    return FSDP_OK;
}

static void set_flag(struct job_words *out, const char *name)
{
    const struct {
        const char *name;
        bool *flag;
    } flags[] = { { "json", &out->json },     { "quiet", &out->quiet }, { "names", &out->names },
                  { "follow", &out->follow }, { "save", &out->save },   { "wide", &out->wide },
                  { "watch", &out->watch } };

    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (strcmp(flags[i].name, name) == 0)
            *flags[i].flag = true;
}

enum fsdp_status job_words_read(struct job_words *out, const struct subcommand *command, char *const *words,
                                int n, struct fsdp_err *err)
{
    const bool takes_job = what_takes_job(command);
    bool options_end = false;

    *out = (struct job_words){ .rank = -1, .tail = -1 };
    for (int i = 0; i < n; i++) {
        const char *word = words[i], *value;
        const struct subcommand_option *option;

        if (!options_end && strcmp(word, "--") == 0) {
            options_end = true;
        } else if (!options_end && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            out->help = true;
        } else if (!options_end && word[0] == '-' && word[1] != '\0') {
            option = find(command, word, &value);
            if (option == NULL)
                return refuse_option(command, word, err);
            if (option->argument == NULL && value != NULL)
                return fsdp_fail(err, FSDP_ERR_CONFIG, "--%s takes no value", option->name);
            if (option->argument == NULL) {
                set_flag(out, option->name);
                continue;
            }
            if (value == NULL && ++i == n)
                return fsdp_fail(err, FSDP_ERR_CONFIG, "--%s needs a value", option->name);
            if (value == NULL)
                value = words[i];
            if (strcmp(option->name, "svg") == 0)
                out->svg = value;
            else if (strcmp(option->name, "since") == 0)
                out->since = value;
            else if (strcmp(option->name, "agent") == 0)
                out->agent = value;
            else if (strcmp(option->name, "tail") == 0
                         ? read_number(&out->tail, "tail", "a number of lines", value, err) != FSDP_OK
                         : read_number(&out->rank, "rank", "the number of a rank", value, err) != FSDP_OK)
                return FSDP_ERR_CONFIG;
        } else if (out->job != NULL && out->job[0] != '\0' && what_takes_jobs(command)) {
            if (out->others == NULL && (out->others = calloc((size_t)n, sizeof *out->others)) == NULL)
                return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
            out->others[out->n_others++] = word;
        } else if (!takes_job || out->job != NULL) {
            return fsdp_fail(err, FSDP_ERR_CONFIG, "unexpected argument: %.60s", word);
        } else {
            out->job = word;
        }
    }
    if (takes_job && strstr(command->usage, "[JOB]") == NULL && !out->help &&
        (out->job == NULL || out->job[0] == '\0'))
        return fsdp_fail(err, FSDP_ERR_CONFIG, "which %s? fsdprun %s %s; `fsdprun ps` lists the jobs",
                         what_takes_run(command) ? "run" : "job", command->name, command->usage);
    return FSDP_OK;
}

void job_words_fini(struct job_words *words)
{
    free(words->others);
    *words = (struct job_words){ 0 };
}
