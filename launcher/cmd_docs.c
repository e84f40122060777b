#include "launcher/cmd_docs.h"

#include <stdbool.h>
#include <string.h>

#include <fsdp/link.h>

#include "launcher/ckpt_words.h"
#include "launcher/completion.h"
#include "launcher/json_table.h"
#include "launcher/options.h"
#include "launcher/what.h"
#include "shard_runtime/core/text.h"
#include "shard_runtime/job/docs.h"

int cmd_help(const char *program, FILE *out)
{
    const bool has_subcommands = strcmp(program, "torchrun") != 0;

    options_print_brief(out, program);
    if (has_subcommands) {
        fputc('\n', out);
        /* help and version are left out, so that the page fits a screen */
        for (size_t i = 0; i < what_subcommands_size; i++)
            if (what_subcommands[i].usage == NULL && strcmp(what_subcommands[i].name, "help") != 0 &&
                strcmp(what_subcommands[i].name, "version") != 0)
                fprintf(out, "  fsdprun %-20s %s\n", what_subcommands[i].name, what_subcommands[i].brief);
        fputs("  fsdprun", out);
        for (size_t i = 0; i < what_subcommands_size; i++)
            if (what_subcommands[i].usage != NULL)
                fprintf(out, " %s", what_subcommands[i].name);
        fputs(": jobs (help ps)\n", out);
    }
    fprintf(out, "%s%s --help-all: every option, job key and exit status.%s\n", has_subcommands ? "" : "\n",
            program, has_subcommands ? " help WORD: its page." : "");
    return json_written(out);
}

int cmd_help_all(const char *program, FILE *out)
{
    options_print_help(out, program);
    fputs("\nKeys of a job file, with their defaults (fsdp.yaml(5), docs/config.md):\n", out);
    job_docs_help(out);
    text_fill(
        out,
        "\nExit status: that of the first cause (128 + n for signal n); 2 bad usage; 66 input missing or\n"
        "unusable; 70 a bug; 71 a GPU failed; 74 I/O error or no memory; 75 no world could be formed;\n"
        "76 a node was lost; 77 stopped after saving, run again to go on; 78 a job file or setting that\n"
        "cannot be used; 126, 127 the program cannot be executed or read, is not found.\n");
    return json_written(out);
}

int cmd_completion(const char *shell, const char *program, FILE *out)
{
    completion_print(out, shell, program);
    return json_written(out);
}

/* Prints the entry of one command in the manual page. */
static void print_man_command(FILE *out, const struct subcommand *command)
{
    fprintf(out, ".TP\n\\fBfsdprun %s\\fR ", command->name);
    text_roff(out, command->usage);
    fputc('\n', out);
    text_roff(out, command->brief);
    fputs(".\n", out);
    for (const struct subcommand_option *option = command->options; option->name != NULL; option++) {
        fputs("\\fB\\-\\-", out);
        text_roff(out, option->name);
        fputs("\\fR", out);
        if (option->argument != NULL)
            fprintf(out, " %s", option->argument);
        fputs(": ", out);
        text_roff(out, option->help);
        fputs(".\n", out);
    }
    if (command->more != NULL)
        text_roff(out, command->more);
}

/* Prints the part of fsdprun(1) with fsdprun's options, and the commands over jobs and over checkpoints. */
static void print_man(FILE *out)
{
    options_print_man(out);
    fputs(".SH COMMANDS OVER JOBS\n"
          "They see the jobs of this user that run on this machine, in terminals and under\n"
          ".BR fsdp\\-agent (8).\n"
          "With\n.B \\-\\-agent\nSOCKET they see the jobs of the agent at SOCKET instead, wherever these "
          "were started.\n"
          "If only\n.B FSDPRUN_AGENT\nis set, they see both. Where no agent answers, the status is 75.\n"
          "JOB is the id of a job, its name, or a prefix of either that no other job has.\n",
          out);
    for (size_t i = 0; i < what_subcommands_size; i++)
        if (what_subcommands[i].usage != NULL)
            print_man_command(out, &what_subcommands[i]);
    fputs(".SH COMMANDS OVER CHECKPOINTS\n"
          "They need no job. RUN is a run directory, or a directory of checkpoints; CKPT is the directory\n"
          "of one checkpoint, or a RUN, whose newest complete one is meant. Exit status: 0; 1 if verify\n"
          "finds damage, or diff a difference; 2 bad usage; 66 an input is missing or unusable; 74 an I/O\n"
          "error; 78 a live job holds the run.\n",
          out);
    for (size_t i = 0; i < ckpt_commands_size; i++)
        print_man_command(out, &ckpt_commands[i]);
}

int cmd_docs(const char *page, FILE *out)
{
    static const struct {
        const char *name;
        void (*print)(FILE *out);
    } pages[] = {
        { "config.md", job_docs_markdown },
        { "fsdprun.1", print_man },
        { "fsdp.yaml.5", job_docs_man },
    };

    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        if (strcmp(pages[i].name, page) != 0)
            continue;
        pages[i].print(out);
        return json_written(out);
    }
    fprintf(stderr, "fsdprun: there is no page %s\n", page);
    return FSDP_EXIT_USAGE;
}
