#include "launcher/completion.h"

#include <string.h>

#include "launcher/ckpt_words.h"
#include "launcher/completion_impl.h"
#include "launcher/what.h"

bool completion_offers(const struct option *option)
{
    return option->kind != OPTION_CHOICE || option->choices[0] != NULL;
}

bool completion_takes(const struct option *option, const char *argument)
{
    return option->argument != NULL && strcmp(option->argument, argument) == 0;
}

bool completion_is_path(const char *argument)
{
    return strcmp(argument, "FILE") == 0 || strcmp(argument, "SOCKET") == 0;
}

bool completion_takes_file(const struct option *option)
{
    return option->argument != NULL && completion_is_path(option->argument);
}

void completion_put_choices(FILE *out, const struct option *option)
{
    for (size_t i = 0; option->choices != NULL && option->choices[i] != NULL; i++)
        fprintf(out, "%s%s", i == 0 ? "" : " ", option->choices[i]);
}

bool completion_has_subcommands(const char *program)
{
    return strcmp(program, "torchrun") != 0;
}

void completion_put_job_commands(FILE *out, const char *between)
{
    const char *separator = "";

    for (size_t i = 0; i < what_subcommands_size; i++) {
        if (what_subcommands[i].usage == NULL)
            continue;
        fprintf(out, "%s%s", separator, what_subcommands[i].name);
        separator = between;
    }
}

bool completion_sets(const struct job_key *key)
{
    return key->field != JOB_NO_FIELD;
}

void completion_put_words(FILE *out, const struct job_key *key)
{
    const char *words = key->type == JOB_BOOL ? "true|false" : key->choices;

    for (; words != NULL && *words != '\0'; words++)
        fputc(*words == '|' ? ' ' : *words, out);
}

bool completion_has_words(const struct job_key *key)
{
    return key->type == JOB_BOOL || key->choices != NULL;
}

void completion_put_ckpt_commands(FILE *out)
{
    for (size_t i = 0; i < ckpt_commands_size; i++)
        fprintf(out, "%s%s", i == 0 ? "" : " ", ckpt_word(&ckpt_commands[i]));
}

void completion_put_ckpt_options(FILE *out, const struct subcommand *command)
{
    for (const struct subcommand_option *option = command->options; option->name != NULL; option++)
        fprintf(out, "--%s ", option->name);
    fputs("--help", out);
}

void completion_print(FILE *out, const char *shell, const char *program)
{
    if (strcmp(shell, "bash") == 0)
        completion_bash(out, program);
    else if (strcmp(shell, "zsh") == 0)
        completion_zsh(out, program);
    else
        completion_fish(out, program);
}
