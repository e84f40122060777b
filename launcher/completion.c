#include "launcher/completion.h"

#include <string.h>

#include "launcher/ckpt_words.h"
#include "launcher/options.h"
#include "launcher/what.h"
#include "shard_runtime/job/docs.h"

/* An option that takes no value at all would always be refused: it is not offered. */
static bool is_offered(const struct option *option)
{
    return option->kind != OPTION_CHOICE || option->choices[0] != NULL;
}

static bool takes(const struct option *option, const char *argument)
{
    return option->argument != NULL && strcmp(option->argument, argument) == 0;
}

static bool takes_file(const struct option *option)
{
    return takes(option, "FILE") || takes(option, "SOCKET");
}

static void put_choices(FILE *out, const struct option *option)
{
    for (size_t i = 0; option->choices != NULL && option->choices[i] != NULL; i++)
        fprintf(out, "%s%s", i == 0 ? "" : " ", option->choices[i]);
}

static bool has_subcommands(const char *program)
{
    return strcmp(program, "torchrun") != 0;
}

/* "ps|status|logs": the commands over jobs. */
static void put_job_commands(FILE *out, const char *between)
{
    const char *separator = "";

    for (size_t i = 0; i < what_subcommands_size; i++) {
        if (what_subcommands[i].usage == NULL)
            continue;
        fprintf(out, "%s%s", separator, what_subcommands[i].name);
        separator = between;
    }
}

/* Keys of a job file, for --set */

/* A key that no code reads would always be refused. */
static bool is_set(const struct job_key *key)
{
    return key->field != JOB_NO_FIELD;
}

/* The words that a key takes, with spaces between; "": others. */
static void put_words(FILE *out, const struct job_key *key)
{
    const char *words = key->type == JOB_BOOL ? "true|false" : key->choices;

    for (; words != NULL && *words != '\0'; words++)
        fputc(*words == '|' ? ' ' : *words, out);
}

static bool has_words(const struct job_key *key)
{
    return key->type == JOB_BOOL || key->choices != NULL;
}

/* bash */

static const char bash_head[] =
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} word i given= ran= own=\n"
    "    COMPREPLY=()\n"
    "    # \"--tee=3\" is three words here: readline breaks at the equals sign.\n"
    "    if [[ $cur == = ]]; then\n"
    "        cur=\n"
    "    elif [[ $prev == = ]]; then\n"
    "        prev=${COMP_WORDS[COMP_CWORD-2]}\n"
    "    fi\n"
    "    # What follows a program is the program's; what follows a job file is ours.\n"
    "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        if [[ -n $given && $word != = ]]; then\n"
    "            given=\n"
    "            continue\n"
    "        fi\n"
    "        case $word in\n"
    "        =) given=1 ;;\n"
    "        --) return ;;\n";

static void put_bash_cases(FILE *out)
{
    /* Options whose value is the next word. The script knows them by name, to find the word that is run. */
    fputs("        -[rt]", out);
    for (size_t i = 0; i < option_table_size; i++)
        if (option_table[i].argument != NULL)
            fprintf(out, "|--%s", option_table[i].name);
    fputs(") given=1 ;;\n"
          "        -*) ;;\n",
          out);
}

/* "-r|--redirects" */
static void put_bash_names(FILE *out, const struct option *option)
{
    if (option->letter != 0)
        fprintf(out, "-%c|", option->letter);
    fprintf(out, "--%s", option->name);
}

static bool has_values(const struct option *option)
{
    return option->choices != NULL || takes(option, "DIR") || takes_file(option);
}

/* The keys after --set, and the words after "KEY=" where the key takes some. */
static void put_bash_keys(FILE *out, const struct option *option)
{
    char path[JOB_KEY_PATH_BYTES];

    fputs("    ", out);
    put_bash_names(out, option);
    fputs(") COMPREPLY=($(compgen -S = -W '", out);
    for (size_t i = 0; i < job_schema_size; i++)
        if (is_set(&job_schema[i]))
            fprintf(out, "%s ", job_key_path(&job_schema[i], path));
    fputs("' -- \"$cur\")); compopt -o nospace +o default 2> /dev/null; return ;;\n", out);
    for (size_t i = 0; i < job_schema_size; i++) {
        if (!is_set(&job_schema[i]) || !has_words(&job_schema[i]))
            continue;
        fprintf(out, "    %s) COMPREPLY=($(compgen -W '", job_key_path(&job_schema[i], path));
        put_words(out, &job_schema[i]);
        fputs("' -- \"$cur\")); return ;;\n", out);
    }
}

static void put_bash_values(FILE *out)
{
    const char *between = "    ";

    fputs("    case $prev in\n", out);
    for (size_t i = 0; i < option_table_size; i++) {
        const struct option *option = &option_table[i];

        if (option->kind == OPTION_SETTING)
            put_bash_keys(out, option);
        if (option->argument == NULL || !has_values(option))
            continue;
        fputs("    ", out);
        put_bash_names(out, option);
        fputs(") COMPREPLY=($(compgen ", out);
        if (takes(option, "DIR") || takes_file(option)) {
            fputs(takes(option, "DIR") ? "-d" : "-f", out);
        } else {
            fputs("-W '", out);
            put_choices(out, option);
            fputc('\'', out);
        }
        fputs(" -- \"$cur\")); return ;;\n", out);
    }
    for (size_t i = 0; i < option_table_size; i++) { /* then the options whose values the shell cannot know */
        if (option_table[i].argument == NULL || has_values(&option_table[i]) ||
            option_table[i].kind == OPTION_SETTING)
            continue;
        fputs(between, out);
        put_bash_names(out, &option_table[i]);
        between = "|";
    }
    fputs(") compopt +o default 2> /dev/null; return ;;\n    esac\n", out);
}

/*
 * After a command over jobs: its options, and the jobs that run. Their names are compared word by word, and
 * not given to compgen, which would expand what stands in a name.
 */
static void put_bash_jobs(FILE *out)
{
    fputs("        ", out);
    put_job_commands(out, "|");
    fputs(")\n            case $word in\n", out);
    for (size_t i = 0; i < what_subcommands_size; i++) {
        const struct subcommand *command = &what_subcommands[i];

        if (command->usage == NULL)
            continue;
        fprintf(out, "            %s) given='", command->name);
        for (const struct subcommand_option *option = command->options; option->name != NULL; option++)
            fprintf(out, "--%s ", option->name);
        /* 2: a job, or the name of a file */
        fprintf(out, "--help'; ran=%d ;;\n",
                !what_takes_job(command)                ? 0
                : strstr(command->usage, "RUN") != NULL ? 2
                                                        : 1);
    }
    fputs("            esac\n"
          "            if [[ $cur == -* ]]; then\n"
          "                COMPREPLY=($(compgen -W \"$given\" -- \"$cur\"))\n"
          "            elif [[ $ran != 0 && $prev != --rank && $prev != --svg ]]; then\n"
          "                while IFS= read -r word; do\n"
          "                    [[ $word == \"$cur\"* ]] && printf -v word %q \"$word\" && "
          "COMPREPLY+=(\"$word\")\n"
          "                done < <(fsdprun ps -q --names 2> /dev/null)\n"
          "            fi\n"
          "            [[ $ran == 2 ]] || compopt +o default 2> /dev/null\n"
          "            return ;;\n",
          out);
}

/* "ls show verify": the commands of ckpt, without that word before them. */
static void put_ckpt_commands(FILE *out)
{
    for (size_t i = 0; i < ckpt_commands_size; i++)
        fprintf(out, "%s%s", i == 0 ? "" : " ", ckpt_word(&ckpt_commands[i]));
}

static void put_ckpt_options(FILE *out, const struct subcommand *command)
{
    for (const struct subcommand_option *option = command->options; option->name != NULL; option++)
        fprintf(out, "--%s ", option->name);
    fputs("--help", out);
}

/* After ckpt: one of its commands, then options, or files. */
static void put_bash_ckpt(FILE *out)
{
    fputs("        ckpt)\n"
          "            if ((i + 1 == COMP_CWORD)); then\n"
          "                given='",
          out);
    put_ckpt_commands(out);
    fputs("'\n"
          "                compopt +o default 2> /dev/null\n"
          "            else\n"
          "                case ${COMP_WORDS[i+1]} in\n",
          out);
    for (size_t i = 0; i < ckpt_commands_size; i++) {
        fprintf(out, "                %s) given='", ckpt_word(&ckpt_commands[i]));
        put_ckpt_options(out, &ckpt_commands[i]);
        fputs("' ;;\n", out);
    }
    fputs("                esac\n"
          "                [[ $cur == -* ]] || return\n"
          "            fi\n"
          "            COMPREPLY=($(compgen -W \"$given\" -- \"$cur\"))\n"
          "            return ;;\n",
          out);
}

/* The first word: a subcommand, or a file. */
static void put_bash_first(FILE *out)
{
    fputs("    if [[ -z $ran && $cur != -* ]]; then\n        COMPREPLY=($(compgen -W '", out);
    for (size_t i = 0; i < what_subcommands_size; i++)
        fprintf(out, "%s%s", i == 0 ? "" : " ", what_subcommands[i].name);
    fputs("' -- \"$cur\"))\n"
          "        compopt -o filenames 2> /dev/null\n"
          "        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- \"$cur\")\n"
          "        return\n    fi\n",
          out);
}

static void print_bash(FILE *out, const char *program)
{
    fprintf(out, "# bash completion for %s. Made from its table of options.\n_%s()\n{\n%s", program, program,
            bash_head);
    put_bash_cases(out);
    if (has_subcommands(program)) {
        put_bash_jobs(out);
        put_bash_ckpt(out);
        fputs("        plan|doctor) ran=1 own=--json ;;\n        *.yaml|*.yml) ran=1 ;;\n", out);
    }
    fputs("        *) return ;;\n        esac\n    done\n", out);
    put_bash_values(out);
    if (has_subcommands(program))
        put_bash_first(out);
    fputs("    [[ $cur == -* ]] || return\n    COMPREPLY=($(compgen -W '", out);
    for (size_t i = 0; i < option_table_size; i++)
        if (is_offered(&option_table[i]))
            fprintf(out, "%s--%s", i == 0 ? "" : " ", option_table[i].name);
    fprintf(out, "'\" $own\" -- \"$cur\"))\n}\ncomplete -o default -F _%s %s\n", program, program);
}

/* zsh */

/* Write text inside '...[HELP]:...', with the characters escaped that would end a part of it. */
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
    if (takes(option, "DIR"))
        fputs("_files -/", out);
    else if (takes_file(option))
        fputs("_files", out);
    else if (option->kind == OPTION_SETTING)
        fputs("_fsdprun_set", out);
    else if (option->choices != NULL) {
        fputc('(', out);
        put_choices(out, option);
        fputc(')', out);
    }
    fputs("' \\\n", out);
}

static void put_zsh_ckpt(FILE *out)
{
    fputs("  ckpt) if (( CURRENT == 2 )); then\n      compadd ", out);
    put_ckpt_commands(out);
    fputs("\n    else\n      case $words[2] in\n", out);
    for (size_t i = 0; i < ckpt_commands_size; i++) {
        fprintf(out, "      %s) [[ $PREFIX == -* ]] && compadd -- ", ckpt_word(&ckpt_commands[i]));
        put_ckpt_options(out, &ckpt_commands[i]);
        fputs(" ;;\n", out);
    }
    fputs("      esac\n      _files\n    fi ;;\n", out);
}

/* A function for the keys of --set, with what each takes, and the words after "KEY=". */
static void put_zsh_keys(FILE *out)
{
    char path[JOB_KEY_PATH_BYTES], takes_what[256];

    fputs("_fsdprun_set() {\n  local -a keys values\n  local key=${PREFIX%%=*}\n"
          "  if [[ $PREFIX == *=* ]]; then\n    compset -P '*='\n    case $key in\n",
          out);
    for (size_t i = 0; i < job_schema_size; i++) {
        if (!is_set(&job_schema[i]) || !has_words(&job_schema[i]))
            continue;
        fprintf(out, "    %s) values=(", job_key_path(&job_schema[i], path));
        put_words(out, &job_schema[i]);
        fputs(") ;;\n", out);
    }
    fputs("    esac\n    compadd -a values\n    return\n  fi\n  keys=(\n", out);
    for (size_t i = 0; i < job_schema_size; i++) {
        if (!is_set(&job_schema[i]))
            continue;
        fprintf(out, "    '%s:", job_key_path(&job_schema[i], path));
        put_zsh_text(out, job_key_takes(&job_schema[i], takes_what, sizeof takes_what));
        fputs("'\n", out);
    }
    fputs("  )\n  _describe -t keys key keys -S =\n}\n", out);
}

/* Functions for what is run, for the words after it, and for JOB. */
static void put_zsh_jobs(FILE *out)
{
    fputs("_fsdprun_jobs() {\n"
          "  local -a jobs\n"
          "  jobs=(${(f)\"$(fsdprun ps -q --names 2> /dev/null)\"})\n"
          "  compadd -a jobs\n"
          "}\n"
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
                    option->argument == NULL                ? ""
                    : strcmp(option->argument, "FILE") == 0 ? ":file:_files"
                                                            : ":rank:");
        }
        fprintf(out, "'--help[its page]'%s ;;\n", what_takes_job(command) ? " '1:job:_fsdprun_jobs'" : "");
    }
    put_zsh_ckpt(out);
    fputs("  esac\n}\n"
          "if (( CURRENT > 2 )) && [[ $words[2] == (",
          out);
    put_job_commands(out, "|");
    fputs("|ckpt) ]]; then\n  shift words\n  (( CURRENT-- ))\n  _fsdprun_words\n  return\nfi\n", out);
}

static void print_zsh(FILE *out, const char *program)
{
    const bool jobs = has_subcommands(program);

    fprintf(out, "#compdef %s\n# zsh completion for %s. Made from its table of options.\n", program, program);
    put_zsh_keys(out);
    if (jobs)
        put_zsh_jobs(out);
    fputs("_arguments -s -S \\\n", out);
    for (size_t i = 0; i < option_table_size; i++)
        if (is_offered(&option_table[i]))
            put_zsh_option(out, &option_table[i]);
    fprintf(out, "  '1:what is run:%s' \\\n  '*::argument:_files'\n", jobs ? "_fsdprun_what" : "_files");
}

/* fish */

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
                    option->argument == NULL                ? ""
                    : strcmp(option->argument, "FILE") == 0 ? " -r -F"
                                                            : " -x");
            put_fish_text(out, option->help);
            fputs("'\n", out);
        }
        if (what_takes_job(command))
            fprintf(out,
                    "complete -c fsdprun -n '__fish_seen_subcommand_from %s' -f "
                    "-a '(fsdprun ps -q --names 2> /dev/null)'\n",
                    command->name);
    }
}

static void put_fish_ckpt(FILE *out)
{
    fputs("complete -c fsdprun -n '__fish_seen_subcommand_from ckpt; and not __fish_seen_subcommand_from ",
          out);
    put_ckpt_commands(out);
    fputs("' -f -a '", out);
    put_ckpt_commands(out);
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

/* A function for --set: each key with what it takes, and each of its words. */
static void put_fish_keys(FILE *out)
{
    char path[JOB_KEY_PATH_BYTES], takes_what[256];

    fputs("function __fsdprun_set\n    printf '%s\\t%s\\n'", out);
    for (size_t i = 0; i < job_schema_size; i++) {
        const struct job_key *key = &job_schema[i];
        const char *word = key->type == JOB_BOOL ? "true|false" : key->choices;

        if (!is_set(key))
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

static void print_fish(FILE *out, const char *program)
{
    fprintf(out, "# fish completion for %s. Made from its table of options.\n", program);
    put_fish_keys(out);
    if (has_subcommands(program)) {
        put_fish_jobs(out);
        put_fish_ckpt(out);
    }
    for (size_t i = 0; i < option_table_size; i++) {
        const struct option *option = &option_table[i];

        if (!is_offered(option))
            continue;
        fprintf(out, "complete -c %s -l %s", program, option->name);
        if (option->letter != 0)
            fprintf(out, " -s %c", option->letter);
        if (takes_file(option))
            fputs(" -r -F", out);
        else if (takes(option, "DIR"))
            fputs(" -x -a '(__fish_complete_directories)'", out);
        else if (option->argument != NULL)
            fputs(" -x", out);
        if (option->kind == OPTION_SETTING)
            fputs(" -a '(__fsdprun_set)'", out);
        if (option->choices != NULL) {
            fputs(" -a '", out);
            put_choices(out, option);
            fputc('\'', out);
        }
        fputs(" -d '", out);
        put_fish_text(out, option->help);
        fputs("'\n", out);
    }
}

void completion_print(FILE *out, const char *shell, const char *program)
{
    if (strcmp(shell, "bash") == 0)
        print_bash(out, program);
    else if (strcmp(shell, "zsh") == 0)
        print_zsh(out, program);
    else
        print_fish(out, program);
}
