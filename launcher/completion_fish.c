/* The completion script for fish. */
#include <string.h>

#include "launcher/ckpt_words.h"
#include "launcher/completion_impl.h"
#include "launcher/what.h"
#include "shard_runtime/job/docs.h"

static void put_fish_text(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'' || *text == '\\')
            fputc('\\', out);
        fputc(*text, out);
    }
}

static void put_fish_jobs(FILE *out)
{
    for (size_t i = 0; i < what_subcommands_size; i++) {
        fprintf(out, "complete -c fsdprun -n __fish_use_subcommand -a %s -d '", what_subcommands[i].name);
        put_fish_text(out, what_subcommands[i].brief);
        fputs("'\n", out);
    }
    fputs("complete -c fsdprun -n '__fish_seen_subcommand_from plan doctor' -l json -d 'for programs'\n",
          out);
    for (size_t i = 0; i < what_subcommands_size; i++) {
        const struct subcommand *command = &what_subcommands[i];

        if (command->usage == NULL)
            continue;
        for (const struct subcommand_option *option = command->options; option->name != NULL; option++) {
            fprintf(out, "complete -c fsdprun -n '__fish_seen_subcommand_from %s' -l %s", command->name,
                    option->name);
            if (option->letter != 0)
                fprintf(out, " -s %c", option->letter);
            fprintf(out, "%s -d '",
                    option->argument == NULL               ? ""
                    : completion_is_path(option->argument) ? " -r -F"
                                                           : " -x");
            put_fish_text(out, option->help);
            fputs("'\n", out);
        }
        if (what_takes_job(command))
            fprintf(out,
                    "complete -c fsdprun -n '__fish_seen_subcommand_from %s' %s "
                    "-a '(fsdprun ps -q --names 2> /dev/null)'\n",
                    command->name, what_takes_run(command) ? "-F" : "-f");
    }
}

static void put_fish_ckpt(FILE *out)
{
    fputs("complete -c fsdprun -n '__fish_seen_subcommand_from ckpt; and not __fish_seen_subcommand_from ",
          out);
    completion_put_ckpt_commands(out);
    fputs("' -f -a '", out);
    completion_put_ckpt_commands(out);
    fputs("'\n", out);
    for (size_t i = 0; i < ckpt_commands_size; i++) {
        const struct subcommand *command = &ckpt_commands[i];

        for (const struct subcommand_option *option = command->options; option->name != NULL; option++) {
            fprintf(out,
                    "complete -c fsdprun -n '__fish_seen_subcommand_from ckpt; and "
                    "__fish_seen_subcommand_from %s' -l %s%s -d '",
                    ckpt_word(command), option->name, option->argument != NULL ? " -r" : "");
            put_fish_text(out, option->help);
            fputs("'\n", out);
        }
    }
}

/*
 * Prints a shell function that lists, for --set, each key with a description, and each word that a key takes.
 */
static void put_fish_keys(FILE *out)
{
    char path[JOB_KEY_PATH_BYTES], takes_what[256];

    fputs("function __fsdprun_set\n    printf '%s\\t%s\\n'", out);
    for (size_t i = 0; i < job_schema_size; i++) {
        const struct job_key *key = &job_schema[i];
        const char *word = key->type == JOB_BOOL ? "true|false" : key->choices;

        if (!completion_sets(key))
            continue;
        fprintf(out, " \\\n        '%s=' '", job_key_path(key, path));
        put_fish_text(out, job_key_takes(key, takes_what, sizeof takes_what));
        fputc('\'', out);
        for (size_t n; word != NULL && *word != '\0'; word += n + (word[n] == '|')) {
            n = strcspn(word, "|");
            fprintf(out, " '%s=%.*s' ''", path, (int)n, word);
        }
    }
    fputs("\nend\n", out);
}

void completion_fish(FILE *out, const char *program)
{
    fprintf(out, "# fish completion for %s. Made from its table of options.\n", program);
    put_fish_keys(out);
    if (completion_has_subcommands(program)) {
        put_fish_jobs(out);
        put_fish_ckpt(out);
    }
    for (size_t i = 0; i < option_table_size; i++) {
        const struct option *option = &option_table[i];

        if (!completion_offers(option))
            continue;
        fprintf(out, "complete -c %s -l %s", program, option->name);
        if (option->letter != 0)
            fprintf(out, " -s %c", option->letter);
        if (completion_takes_file(option))
            fputs(" -r -F", out);
        else if (completion_takes(option, "DIR"))
            fputs(" -x -a '(__fish_complete_directories)'", out);
        else if (option->argument != NULL)
            fputs(" -x", out);
        if (option->kind == OPTION_SETTING)
            fputs(" -a '(__fsdprun_set)'", out);
        if (option->choices != NULL) {
            fputs(" -a '", out);
            completion_put_choices(out, option);
            fputc('\'', out);
        }
        fputs(" -d '", out);
        put_fish_text(out, option->help);
        fputs("'\n", out);
    }
}
