#include <string.h>

#include "launcher/options.h"
#include "shard_runtime/core/text.h"

enum { HELP_INDENT = 30, BRIEF_INDENT = 31 };

/* Writes an option's help, default and variable in one text: "Nodes of the job [1] PET_NNODES". */
static void describe(const struct option *option, char *out, size_t size)
{
    char pet[OPTION_ORIGIN_BYTES], fallback[128] = "";

    if (option->fallback != NULL)
        snprintf(fallback, sizeof fallback, " [%s]", option->fallback);
    snprintf(out, size, "%s%s%s%s", option->help, fallback, option->pet ? " " : "",
             option->pet ? option_env_name(option, "PET_", pet) : "");
}

static void put_option(FILE *out, const struct option *option)
{
    char text[512];
    int column;

    column = option->letter == 0 ? fprintf(out, "      --%s", option->name)
                                 : fprintf(out, "  -%c, --%s", option->letter, option->name);
    if (option->argument != NULL)
        column += fprintf(out, " %s", option->argument);
    if (column > HELP_INDENT - 2)
        fprintf(out, "\n%*s", HELP_INDENT, "");
    else
        fprintf(out, "%*s", HELP_INDENT - column, "");
    describe(option, text, sizeof text);
    text_wrap(out, text, HELP_INDENT, HELP_INDENT, TEXT_COLUMNS);
}

static bool is_torchrun(const char *program)
{
    return strcmp(program, "torchrun") == 0;
}

static void put_usage(FILE *out, const char *program)
{
    if (is_torchrun(program))
        fputs("Usage: torchrun [OPTIONS] [--] SCRIPT.py [ARGUMENTS]\n"
              "       torchrun [OPTIONS] -m MODULE [ARGUMENTS]\n"
              "       torchrun [OPTIONS] --no-python PROGRAM [ARGUMENTS]\n"
              "\n",
              out);
    else
        fputs("Usage: fsdprun [OPTIONS] JOB.yaml [OPTIONS]\n"
              "       fsdprun [OPTIONS] [--] PROGRAM [ARGUMENTS]\n"
              "       fsdprun [OPTIONS] -m MODULE [ARGUMENTS]\n"
              "\n",
              out);
}

static void put_description(FILE *out, const char *program)
{
    if (is_torchrun(program))
        text_fill(
            out,
            "This is fsdprun, called by the name torchrun: what is run is Python's unless --no-python says\n"
            "otherwise, and there are neither job files nor subcommands.\n");
    else
        text_fill(
            out,
            "Launches a world of workers, supervises it, forms it again when a worker dies, and ends with\n"
            "the status of the first cause. A job file trains a sharded model (fsdp-train); a program is\n"
            "anything else: a .py file runs as python -u, an executable as it is. Workers get torchrun's\n"
            "environment, and torchrun's options mean here what they mean there.\n"
            "\n"
            "Examples:\n"
            "  fsdprun --nproc-per-node 2 train.yaml --set train.steps=100\n"
            "  fsdprun --nproc-per-node 8 --max-restarts 3 train.py --lr 0.1\n"
            "  fsdprun --nproc-per-node gpu --tee 3 --log-dir logs -m package.train\n"
            "  fsdprun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint node0:29400 \\\n"
            "    --secret-file key train.py\n");
}

/* Is the option only for job files? The page of torchrun, which has none, leaves these out. */
static bool is_for_jobs(const struct option *option)
{
    return option->id == OPT_SET || option->id == OPT_SAVE_ON_SIGNAL;
}

void options_print_brief(FILE *out, const char *program)
{
    put_usage(out, program);
    fputs("Starts workers with torchrun's environment and watches them. When one fails, all\n"
          "are stopped, and started again if restarts are left. torchrun's options work.\n\n",
          out);
    for (size_t i = 0; i < option_table_size; i++) {
        const struct option *option = &option_table[i];
        char name[64];

        if (option->brief == NULL || (is_torchrun(program) && is_for_jobs(option)))
            continue;
        snprintf(name, sizeof name, "--%s%s%s", option->name, option->argument == NULL ? "" : " ",
                 option->argument == NULL ? "" : option->argument);
        fprintf(out, "  %-*s %s\n", BRIEF_INDENT - 3, name, option->brief);
    }
}

void options_print_help(FILE *out, const char *program)
{
    const char *group = "";

    put_usage(out, program);
    put_description(out, program);
    for (size_t i = 0; i < option_table_size; i++) {
        const struct option *option = &option_table[i];

        if (strcmp(group, option->group) != 0)
            fprintf(out, "\n%s:\n", option->group);
        group = option->group;
        put_option(out, option);
    }
    text_fill(
        out,
        "\nNames may be written with underscores and cut short. The command line wins over FSDPRUN_<NAME>,\n"
        "that over PET_<NAME> where it is listed, that over the job file.\n");
}

void options_print_man(FILE *out)
{
    const char *group = "";
    char text[512];

    for (size_t i = 0; i < option_table_size; i++) {
        const struct option *option = &option_table[i];

        if (strcmp(group, option->group) != 0)
            fprintf(out, ".SS %s\n", option->group);
        group = option->group;
        fputs(".TP\n", out);
        if (option->letter != 0)
            fprintf(out, "\\fB\\-%c\\fR, ", option->letter);
        fputs("\\fB\\-\\-", out);
        text_roff(out, option->name);
        fputs("\\fR", out);
        if (option->argument != NULL)
            fprintf(out, " \\fI%s\\fR", option->argument);
        fputc('\n', out);
        describe(option, text, sizeof text);
        text_roff(out, text);
        fputc('\n', out);
    }
}
