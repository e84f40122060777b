/* The completion script for bash. */
#include <string.h>

#include "launcher/ckpt_words.h"
#include "launcher/completion_impl.h"
#include "launcher/what.h"
#include "shard_runtime/job/docs.h"

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
    /*
     * Options whose value is the next word. The script must know them to tell such a value from the program
     * or job file on the command line.
     */
    fputs("        -[rt]", out);
    for (size_t i = 0; i < option_table_size; i++)
        if (option_table[i].argument != NULL)
            fprintf(out, "|--%s", option_table[i].name);
    fputs(") given=1 ;;\n"
          "        -*) ;;\n",
          out);
}

/* Prints the names of an option as a pattern: "-r|--redirects". */
static void put_bash_names(FILE *out, const struct option *option)
{
    if (option->letter != 0)
        fprintf(out, "-%c|", option->letter);
    fprintf(out, "--%s", option->name);
}

static bool has_values(const struct option *option)
{
    return option->choices != NULL || completion_takes(option, "DIR") || completion_takes_file(option);
}

/*
 * Prints what is offered after --set: the keys, and after "KEY=" the words that the key takes, if it has a
 * list.
 */
static void put_bash_keys(FILE *out, const struct option *option)
{
    char path[JOB_KEY_PATH_BYTES];

    fputs("    ", out);
    put_bash_names(out, option);
    fputs(") COMPREPLY=($(compgen -S = -W '", out);
    for (size_t i = 0; i < job_schema_size; i++)
        if (completion_sets(&job_schema[i]))
            fprintf(out, "%s ", job_key_path(&job_schema[i], path));
    fputs("' -- \"$cur\")); compopt -o nospace +o default 2> /dev/null; return ;;\n", out);
    for (size_t i = 0; i < job_schema_size; i++) {
        if (!completion_sets(&job_schema[i]) || !completion_has_words(&job_schema[i]))
            continue;
        fprintf(out, "    %s) COMPREPLY=($(compgen -W '", job_key_path(&job_schema[i], path));
        completion_put_words(out, &job_schema[i]);
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
        if (completion_takes(option, "DIR") || completion_takes_file(option)) {
            fputs(completion_takes(option, "DIR") ? "-d" : "-f", out);
        } else {
            fputs("-W '", out);
            completion_put_choices(out, option);
            fputc('\'', out);
        }
        fputs(" -- \"$cur\")); return ;;\n", out);
    }
    /* then the options whose values the script cannot know: it offers nothing for them */
    for (size_t i = 0; i < option_table_size; i++) {
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
 * Prints what is offered after a command over jobs: its options, and the jobs that run. The script compares
 * the jobs' names with the typed word itself. compgen would expand special characters in a name.
 */
static void put_bash_jobs(FILE *out)
{
    fputs("        ", out);
    completion_put_job_commands(out, "|");
    fputs(")\n            case $word in\n", out);
    for (size_t i = 0; i < what_subcommands_size; i++) {
        const struct subcommand *command = &what_subcommands[i];

        if (command->usage == NULL)
            continue;
        fprintf(out, "            %s) given='", command->name);
        for (const struct subcommand_option *option = command->options; option->name != NULL; option++)
            fprintf(out, "--%s ", option->name);
        /* 0: no job is offered; 1: jobs are; 2: jobs and file names are */
        fprintf(out, "--help'; ran=%d ;;\n", !what_takes_job(command) ? 0 : what_takes_run(command) ? 2 : 1);
    }
    fputs("            esac\n"
          "            if [[ $cur == -* ]]; then\n"
          "                COMPREPLY=($(compgen -W \"$given\" -- \"$cur\"))\n"
          "            elif [[ $ran != 0 && $prev != --rank && $prev != --since && $prev != --tail && $prev "
          "!= --svg && "
          "$prev != --agent ]]; then\n"
          "                while IFS= read -r word; do\n"
          "                    [[ $word == \"$cur\"* ]] && printf -v word %q \"$word\" && "
          "COMPREPLY+=(\"$word\")\n"
          "                done < <(fsdprun ps -q --names 2> /dev/null)\n"
          "            fi\n"
          "            [[ $ran == 2 ]] || compopt +o default 2> /dev/null\n"
          "            return ;;\n",
          out);
}

/* Prints what is offered after `ckpt`: the names of its commands, and after such a name options or files. */
static void put_bash_ckpt(FILE *out)
{
    fputs("        ckpt)\n"
          "            if ((i + 1 == COMP_CWORD)); then\n"
          "                given='",
          out);
    completion_put_ckpt_commands(out);
    fputs("'\n"
          "                compopt +o default 2> /dev/null\n"
          "            else\n"
          "                case ${COMP_WORDS[i+1]} in\n",
          out);
    for (size_t i = 0; i < ckpt_commands_size; i++) {
        fprintf(out, "                %s) given='", ckpt_word(&ckpt_commands[i]));
        completion_put_ckpt_options(out, &ckpt_commands[i]);
        fputs("' ;;\n", out);
    }
    fputs("                esac\n"
          "                [[ $cur == -* ]] || return\n"
          "            fi\n"
          "            COMPREPLY=($(compgen -W \"$given\" -- \"$cur\"))\n"
          "            return ;;\n",
          out);
}

/* Prints what is offered as the first word: subcommands and files. */
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

void completion_bash(FILE *out, const char *program)
{
    fprintf(out, "# bash completion for %s. Made from its table of options.\n_%s()\n{\n%s", program, program,
            bash_head);
    put_bash_cases(out);
    if (completion_has_subcommands(program)) {
        put_bash_jobs(out);
        put_bash_ckpt(out);
        fputs("        plan|doctor) ran=1 own=--json ;;\n        *.yaml|*.yml) ran=1 ;;\n", out);
    }
    fputs("        *) return ;;\n        esac\n    done\n", out);
    put_bash_values(out);
    if (completion_has_subcommands(program))
        put_bash_first(out);
    fputs("    [[ $cur == -* ]] || return\n    COMPREPLY=($(compgen -W '", out);
    for (size_t i = 0; i < option_table_size; i++)
        if (completion_offers(&option_table[i]))
            fprintf(out, "%s--%s", i == 0 ? "" : " ", option_table[i].name);
    fprintf(out, "'\" $own\" -- \"$cur\"))\n}\ncomplete -o default -F _%s %s\n", program, program);
}
