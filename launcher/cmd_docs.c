#include "launcher/cmd_docs.h"

#include <stdbool.h>
#include <string.h>

#include <fsdp/link.h>

#include "launcher/completion.h"
#include "launcher/options.h"
#include "launcher/what.h"
#include "shard_runtime/core/version.h"
#include "shard_runtime/job/docs.h"

static void print_help(FILE *out, const char *program)
{
    options_print_brief(out, program);
    if (strcmp(program, "torchrun") != 0) {
        fputc('\n', out);
        for (size_t i = 0; i < what_subcommands_size; i++)
            if (what_subcommands[i].brief != NULL)
                fprintf(out, "  fsdprun %-20s %s\n", what_subcommands[i].name, what_subcommands[i].brief);
    }
    fprintf(out, "\n%s --help-all: every option, every key of a job file, the exit statuses.\n", program);
}

static void print_help_all(FILE *out, const char *program)
{
    options_print_help(out, program);
    fputs("\nKeys of a job file, with their defaults (fsdp.yaml(5), docs/config.md):\n", out);
    job_docs_help(out);
    fputs("\nExit status: that of the first cause (128 + n for signal n); 2 bad usage; 66 input missing or\n"
          "unusable; 70 a bug; 71 a GPU failed; 74 I/O error or no memory; 75 no world could be formed;\n"
          "76 a node was lost; 77 stopped after saving, run again to go on; 78 a job file or setting that\n"
          "cannot be used; 126, 127 the program cannot be executed or read, is not found.\n",
          out);
}

static const char man_fsdprun_head[] =
    ".SH NAME\n"
    "fsdprun \\- launch and supervise sharded training jobs and other programs\n"
    ".SH SYNOPSIS\n"
    ".B fsdprun\n[\\fIOPTIONS\\fR] \\fIJOB\\fR.yaml [\\fIOPTIONS\\fR]\n"
    ".br\n"
    ".B fsdprun\n[\\fIOPTIONS\\fR] [\\fB\\-\\-\\fR] \\fIPROGRAM\\fR [\\fIARGUMENTS\\fR]\n"
    ".br\n"
    ".B fsdprun\n[\\fIOPTIONS\\fR] \\fB\\-m\\fR \\fIMODULE\\fR [\\fIARGUMENTS\\fR]\n"
    ".br\n"
    ".B fsdprun plan\n[\\fB\\-\\-memory\\fR \\fISIZE\\fR] [\\fB\\-\\-json\\fR] [\\fB\\-\\-schedule\\fR] "
    "[\\fIOPTIONS\\fR] "
    "\\fIJOB\\fR.yaml\n"
    ".SH DESCRIPTION\n"
    ".B fsdprun\n"
    "launches a world of workers on this node, or on several, supervises it, forms it again when a worker "
    "dies,\n"
    "and ends with the status of the first cause.\n"
    ".PP\n"
    "What is run follows from its name. A\n.I .yaml\nor\n.I .yml\n"
    "file is a job: its workers are\n.BR fsdp\\-train ,\nwhich trains a fully sharded model; see\n"
    ".BR fsdp.yaml (5).\n"
    "Options may follow a job file. A\n.I .py\n"
    "file, or with\n.B \\-m\na module, runs as\n.BR \"python \\-u\" .\n"
    "Another file with execute permission is executed. A bare name that is no file and is found on PATH is\n"
    "executed too, with one line saying so unless\n.B \\-\\-\ncomes before it. Anything else that is there "
    "is given to Python.\n"
    "What follows a program is the program's.\n";

static const char man_fsdprun_subcommands[] =
    "A program of such a name is run by\n"
    ".I ./plan\nor\n.IR \"\\-\\- plan\" .\n"
    ".B fsdprun plan\nprints what a job needs of a rank and sends in a step, and with\n.B \\-\\-memory\n"
    "whether that fits and what would change it;\n.BI \\-\\-evaluation \" BATCH\"\n"
    "counts an evaluation beside training.\n"
    "With run.device: cuda that is device memory, and host memory is listed beside it; no GPU is needed.\n"
    "With\n.B \\-\\-schedule\nit prints instead how each parameter is cut and what a step does, in order.\n"
    ".SH OPTIONS\n"
    "Names may be written with underscores and cut where no other begins the same.\n"
    "The command line wins over the variable FSDPRUN_<NAME>, that over PET_<NAME> where it is listed, that "
    "over the\n"
    "job file, that over the default in brackets.\n";

static const char man_fsdprun_tail[] =
    ".SH ENVIRONMENT\n"
    ".TP\n.BR PYTHON_EXEC\nThe Python that runs .py files and modules, in place of python3.\n"
    ".TP\n.BR NO_COLOR\nNo colours, whatever its value.\n"
    ".TP\n.BR FSDPRUN_SECRET_FILE\nAs \\fB\\-\\-secret\\-file\\fR.\n"
    ".TP\n.BR TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE\nThe prefix of lines shown by \\fB\\-\\-tee\\fR; knows "
    "${role_name}, "
    "${local_rank}, ${rank}, ${hostname}, ${generation} and ${stream}.\n"
    ".TP\n.BR TORCHELASTIC_ERROR_FILE\nWhere the root cause's error file is copied, with its status as "
    "message.errorCode.\n"
    ".TP\n.BR TORCHELASTIC_ENABLE_FILE_TIMER \", \" TORCHELASTIC_TIMER_FILE\n1, or a path: workers may set "
    "watchdog "
    "timers over a FIFO.\n"
    ".PP\n"
    "Workers get torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, ...), and FSDP_LINK_FD "
    "and\n"
    "FSDP_RUN_DIR. OMP_NUM_THREADS is the cores really available divided by the workers, unless it is set.\n"
    ".SH EXIT STATUS\n"
    ".TP\n.B 0\nEvery rank of the last generation ended with 0.\n"
    ".TP\n.IR n \", 128 + \" n\nThe exit code of the first cause, or its signal \\fIn\\fR.\n"
    ".TP\n.B 2\nBad usage of the command line.\n"
    ".TP\n.B 66\nAn input file (data, checkpoint) is missing or unusable, or the data is not what the "
    "checkpoint\n"
    "was trained on.\n"
    ".TP\n.B 70\nA bug of ours.\n"
    ".TP\n.B 71\nA GPU, its driver or NCCL failed in a call.\n"
    ".TP\n.B 74\nAn I/O error, as a full disk, or no memory.\n"
    ".TP\n.B 75\nNo world could be formed.\n"
    ".TP\n.B 76\nA node, or the link to it, was lost for good.\n"
    ".TP\n.B 77\nStopped on notice after saving: run again to go on.\n"
    ".TP\n.B 78\n"
    "A job file or \\fB\\-\\-set\\fR that cannot be used, or a run directory that another live job holds, "
    "that\n"
    "has all steps of another job, or that \\fIresume: never\\fR refuses.\n"
    ".TP\n.B 126, 127\nThe program cannot be executed, or its file not read; is not found.\n"
    ".TP\n.B 129, 130, 131, 143\nStopped by HUP, INT, QUIT, TERM.\n"
    ".SH FILES\n"
    "A job is kept in \\fIrun.dir\\fR/\\fIrun.name\\fR, or below \\fB\\-\\-log\\-dir\\fR: job.json, "
    "metrics.jsonl, "
    "events.jsonl,\nerrors.json, logs/g<generation>/rank<rank>/, checkpoints/step\\-<step>/.\n"
    "Running the same job again resumes it, with the data it was begun with.\n"
    ".PP\nA program is kept in \\fIDIR\\fR/<run id>_<random>/ below \\fB\\-\\-log\\-dir\\fR (else in a "
    "temporary "
    "directory): attempt_<generation>/<local rank>/{stdout.log,stderr.log,error.json},\nattempt_<generation>/"
    "{filtered_stdout.log,filtered_stderr.log,index.jsonl}, job.json, events.jsonl, errors.json.\n"
    "Full logs (\\fB\\-\\-log\\-limit\\fR) are stdout.log.1, the newest, and so on.\n"
    ".SH EXAMPLES\n"
    ".nf\n"
    "fsdprun \\-\\-nproc\\-per\\-node 2 configs/quickstart.yaml\n"
    "fsdprun \\-\\-nproc\\-per\\-node 4 train.yaml \\-\\-set run.name=wider \\-\\-set model.dim=256\n"
    "fsdprun train.yaml \\-\\-dry\\-run\n"
    "fsdprun \\-\\-nproc\\-per\\-node 8 \\-\\-max\\-restarts 3 train.py \\-\\-lr 0.1\n"
    "fsdprun \\-\\-nnodes 2 \\-\\-node\\-rank 0 \\-\\-rdzv\\-endpoint node0:29400 \\-\\-secret\\-file key "
    "train.yaml\n"
    ".fi\n"
    ".SH SEE ALSO\n"
    ".BR fsdp.yaml (5)\n";

static const char man_yaml_head[] =
    ".SH NAME\n"
    "fsdp.yaml \\- a training job of fsdprun\n"
    ".SH DESCRIPTION\n"
    "A job file is one YAML document of sections and keys, all of which are listed here. A key that is not "
    "listed is an\n"
    "error, and so is a value of a wrong type or out of range. All problems are printed at once, one a line, "
    "as\n"
    ".PP\n"
    ".RS\n\\fIFILE\\fR:\\fILINE\\fR:\\fICOLUMN\\fR: \\fIkey.path\\fR: what is wrong\n.RE\n"
    ".PP\n"
    "and the status is 78. What is marked as not yet is known and refused.\n"
    ".PP\n"
    "YAML is read strictly: true and false are the only booleans; numbers have no underscore and no leading "
    "zero;\n"
    "anchors, aliases, tags, merge keys, repeated keys and a second document are refused; the text is "
    "UTF\\-8.\n"
    ".PP\n"
    "On the command line\n.BI \\-\\-set\\  section.key = value\n"
    "overrides a key; text keys take the value as it stands.\n"
    ".B \\-\\-dry\\-run\nprints the resolved job, with where each value came from, and that is a job file "
    "again.\n"
    ".SH KEYS\n";

static const char man_yaml_tail[] = ".SH EXAMPLES\n"
                                    ".nf\n"
                                    "data:\n"
                                    "  path: data/bible.txt\n"
                                    "model: {layers: 4, dim: 192, heads: 6, vocab: 256, seq: 128}\n"
                                    "train: {steps: 200, batch: 8}\n"
                                    ".fi\n"
                                    ".SH SEE ALSO\n"
                                    ".BR fsdprun (1)\n";

/* "a, b and c": the subcommands that are built, or all that are reserved. */
static void put_subcommands(FILE *out, bool built)
{
    size_t n = 0, left = 0;

    for (size_t i = 0; i < what_subcommands_size; i++)
        left += !built || what_subcommands[i].brief != NULL;
    for (size_t i = 0; i < what_subcommands_size; i++) {
        if (built && what_subcommands[i].brief == NULL)
            continue;
        left--;
        fprintf(out, "%s%s", n++ == 0 ? "" : left == 0 ? " and " : ", ", what_subcommands[i].name);
    }
}

static void print_man_reserved(FILE *out)
{
    fputs(".PP\nThese first words are reserved for subcommands:\n", out);
    put_subcommands(out, false);
    fputs(".\nOf them ", out);
    put_subcommands(out, true);
    fputs(" are built.\n", out);
}

static void print_man_fsdprun(FILE *out)
{
    fprintf(out,
            ".\\\" Made by `make docs` from the table of options in launcher/options_table.c.\n"
            ".TH FSDPRUN 1 \"\" \"fsdprun %s\" \"User Commands\"\n",
            version_number());
    fputs(man_fsdprun_head, out);
    print_man_reserved(out);
    fputs(man_fsdprun_subcommands, out);
    options_print_man(out);
    fputs(man_fsdprun_tail, out);
}

static void print_man_yaml(FILE *out)
{
    fprintf(out,
            ".\\\" Made by `make docs` from the table of keys in shard_runtime/job/schema.c.\n"
            ".TH FSDP.YAML 5 \"\" \"fsdprun %s\" \"File Formats\"\n",
            version_number());
    fputs(man_yaml_head, out);
    job_docs_man(out);
    fputs(man_yaml_tail, out);
}

static int written(FILE *out)
{
    return fflush(out) == 0 && !ferror(out) ? 0 : FSDP_EXIT_IO;
}

int cmd_completion(const char *shell, const char *program, FILE *out)
{
    completion_print(out, shell, program);
    return written(out);
}

int cmd_help(const char *program, FILE *out)
{
    print_help(out, program);
    return written(out);
}

int cmd_help_all(const char *program, FILE *out)
{
    print_help_all(out, program);
    return written(out);
}

int cmd_docs(const char *page, FILE *out)
{
    static const struct {
        const char *name;
        void (*print)(FILE *out);
    } pages[] = {
        { "config.md", job_docs_markdown },
        { "fsdprun.1", print_man_fsdprun },
        { "fsdp.yaml.5", print_man_yaml },
    };

    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        if (strcmp(pages[i].name, page) != 0)
            continue;
        pages[i].print(out);
        return written(out);
    }
    fprintf(stderr, "fsdprun: there is no page %s\n", page);
    return FSDP_EXIT_USAGE;
}
