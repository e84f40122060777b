/* The completion script for zsh. */
#include <string.h>

#include "launcher/ckpt_words.h"
#include "launcher/completion_impl.h"
#include "launcher/what.h"
#include "shard_runtime/job/docs.h"

/* Prints `text` inside '...[HELP]:...', and escapes the characters that would end one of these parts. */
static void put_zsh_text(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            fputs("'\\''", out);
        else if (strchr("[]:\\$`", *text) != NULL)
            fprintf(out, "\\%c", *text);
        else
            fputc(*text, out);
    }
}

static void put_zsh_option(FILE *out, const struct option *option)
{
    const char *equals = option->argument == NULL ? "" : "=";

    fputs("  ", out);
    if (option->letter != 0)
        fprintf(out, "'(-%c --%s)'{-%c%s,--%s%s}'[", option->letter, option->name, option->letter,
                option->argument == NULL ? "" : "+", option->name, equals);
    else
        fprintf(out, "'%s--%s%s[", option->kind == OPTION_SETTING ? "*" : "", option->name, equals);
    put_zsh_text(out, option->help);
    fputc(']', out);
    if (option->argument != NULL) {
        fputc(':', out);
        put_zsh_text(out, option->argument);
        fputc(':', out);
    }
    if (completion_takes(option, "DIR"))
        fputs("_files -/", out);
    else if (completion_takes_file(option))
        fputs("_files", out);
    else if (option->kind == OPTION_SETTING)
        fputs("_fsdprun_set", out);
    else if (option->choices != NULL) {
        fputc('(', out);
        completion_put_choices(out, option);
        fputc(')', out);
    }
    fputs("' \\\n", out);
}

static void put_zsh_ckpt(FILE *out)
{
    fputs("  ckpt) if (( CURRENT == 2 )); then\n      compadd ", out);
    completion_put_ckpt_commands(out);
    fputs("\n    else\n      case $words[2] in\n", out);
    for (size_t i = 0; i < ckpt_commands_size; i++) {
        fprintf(out, "      %s) [[ $PREFIX == -* ]] && compadd -- ", ckpt_word(&ckpt_commands[i]));
        completion_put_ckpt_options(out, &ckpt_commands[i]);
        fputs(" ;;\n", out);
    }
    fputs("      esac\n      _files\n    fi ;;\n", out);
}

/*
 * Prints a shell function for --set. It offers the keys with a description each, and after "KEY=" the key's
 * words.
 */
static void put_zsh_keys(FILE *out)
{
    char path[JOB_KEY_PATH_BYTES], takes_what[256];

    fputs("_fsdprun_set() {\n  local -a keys values\n  local key=${PREFIX%%=*}\n"
          "  if [[ $PREFIX == *=* ]]; then\n    compset -P '*='\n    case $key in\n",
          out);
    for (size_t i = 0; i < job_schema_size; i++) {
        if (!completion_sets(&job_schema[i]) || !completion_has_words(&job_schema[i]))
            continue;
        fprintf(out, "    %s) values=(", job_key_path(&job_schema[i], path));
        completion_put_words(out, &job_schema[i]);
        fputs(") ;;\n", out);
    }
    fputs("    esac\n    compadd -a values\n    return\n  fi\n  keys=(\n", out);
    for (size_t i = 0; i < job_schema_size; i++) {
        if (!completion_sets(&job_schema[i]))
            continue;
        fprintf(out, "    '%s:", job_key_path(&job_schema[i], path));
        put_zsh_text(out, job_key_takes(&job_schema[i], takes_what, sizeof takes_what));
        fputs("'\n", out);
    }
    fputs("  )\n  _describe -t keys key keys -S =\n}\n", out);
}

/*
 * Prints three shell functions: for the first word (subcommand or file), for the words after a command over
 * jobs, and for JOB.
 */
static void put_zsh_jobs(FILE *out)
{
    fputs("_fsdprun_jobs() {\n"
          "  local -a jobs\n"
          "  jobs=(${(f)\"$(fsdprun ps -q --names 2> /dev/null)\"})\n"
          "  compadd -a jobs\n"
          "}\n"
          "_fsdprun_runs() {\n  _fsdprun_jobs\n  _files -/\n}\n"
          "_fsdprun_what() {\n  local -a subcommands\n  subcommands=(",
          out);
    for (size_t i = 0; i < what_subcommands_size; i++) {
        fprintf(out, "'%s:", what_subcommands[i].name);
        put_zsh_text(out, what_subcommands[i].brief);
        fputs("' ", out);
    }
    fputs(")\n  _describe -t subcommands subcommand subcommands\n  _files\n}\n"
          "_fsdprun_words() {\n  case $words[1] in\n",
          out);
    for (size_t i = 0; i < what_subcommands_size; i++) {
        const struct subcommand *command = &what_subcommands[i];

        if (command->usage == NULL)
            continue;
        fprintf(out, "  %s) _arguments -s -S ", command->name);
        for (const struct subcommand_option *option = command->options; option->name != NULL; option++) {
            if (option->letter != 0)
                fprintf(out, "'(-%c --%s)'{-%c,--%s}'[", option->letter, option->name, option->letter,
                        option->name);
            else
                fprintf(out, "'--%s%s[", option->name, option->argument != NULL ? "=" : "");
            put_zsh_text(out, option->help);
            fprintf(out, "]%s' ",
                    option->argument == NULL               ? ""
                    : completion_is_path(option->argument) ? ":file:_files"
                    : strcmp(option->argument, "T") == 0   ? ":time:"
                    : strcmp(option->argument, "N") == 0   ? ":lines:"
                                                           : ":rank:");
        }
        fprintf(out, "'--help[its page]'%s ;;\n",
                !what_takes_job(command)   ? ""
                : what_takes_run(command)  ? " '1:run:_fsdprun_runs'"
                : what_takes_jobs(command) ? " '*:job:_fsdprun_jobs'"
                                           : " '1:job:_fsdprun_jobs'");
    }
    put_zsh_ckpt(out);
    fputs("  esac\n}\n"
          "if (( CURRENT > 2 )) && [[ $words[2] == (",
          out);
    completion_put_job_commands(out, "|");
    fputs("|ckpt) ]]; then\n  shift words\n  (( CURRENT-- ))\n  _fsdprun_words\n  return\nfi\n", out);
}

void completion_zsh(FILE *out, const char *program)
{
    const bool jobs = completion_has_subcommands(program);

    fprintf(out, "#compdef %s\n# zsh completion for %s. Made from its table of options.\n", program, program);
    put_zsh_keys(out);
    if (jobs)
        put_zsh_jobs(out);
    fputs("_arguments -s -S \\\n", out);
    for (size_t i = 0; i < option_table_size; i++)
        if (completion_offers(&option_table[i]))
            put_zsh_option(out, &option_table[i]);
    fprintf(out, "  '1:what is run:%s' \\\n  '*::argument:_files'\n", jobs ? "_fsdprun_what" : "_files");
}
