#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/options.h"
#include "shard_runtime/job/schema.h"

enum { MAX_WORDS = 24 };

/* A command line and an environment in one text each: words parted by spaces. */
struct line {
    char words[1024], variables[1024];
    char *argv[MAX_WORDS + 2];
    struct options_input input;
};

static const char *get_env(void *arg, const char *name)
{
    const struct line *line = arg;
    size_t n = strlen(name);

    for (const char *at = line->variables; *at != '\0'; at += strlen(at) + 1)
        if (strncmp(at, name, n) == 0 && at[n] == '=')
            return at + n + 1;
    return NULL;
}

static void make_line(struct line *line, const char *words, const char *variables)
{
    char *save = NULL;

    memset(line, 0, sizeof *line);
    strcpy(line->words, words);
    strcpy(line->variables, variables);
    for (char *c = line->variables; *c != '\0'; c++)
        *c = *c == ' ' ? '\0' : *c;
    line->argv[0] = "fsdprun";
    line->input.argc = 1;
    for (char *word = strtok_r(line->words, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save))
        line->argv[line->input.argc++] = strcmp(word, "EMPTY") == 0 ? "" : word;
    line->input.argv = line->argv;
    line->input.get_env = get_env;
    line->input.arg = line;
    line->input.n_cpus = 6;
}

/* The parsed options as text: NAME=VALUE(ORIGIN) for each that is set, settings, and what is run. */
static void spell(const struct options *options, char *out, size_t size)
{
    size_t used = 0;

    out[0] = '\0';
    for (int id = 1; id < OPT_COUNT; id++) {
        const struct option *option = option_find((enum option_id)id);
        const struct option_value *value = &options->of[id];
        bool counts = option->kind == OPTION_COUNT || option->kind == OPTION_PROCS ||
                      option->kind == OPTION_NODES || option->kind == OPTION_FLAG ||
                      option->kind == OPTION_SIZE;
        char number[32];

        if (option->kind == OPTION_NODES && value->least != value->number)
            snprintf(number, sizeof number, "%ld:%ld", (long)value->least, (long)value->number);
        else
            snprintf(number, sizeof number, "%ld", (long)value->number);
        if (value->text != NULL)
            used += (size_t)snprintf(out + used, size - used, "%s=%s(%s) ", option->name,
                                     counts ? number : value->text, value->origin);
    }
    for (size_t i = 0; i < options->n_sets; i++)
        used += (size_t)snprintf(out + used, size - used, "set:%s ", options->sets[i]);
    used += (size_t)snprintf(out + used, size - used, "%s", options->dashes ? "-- " : "");
    for (int i = 0; i < options->n_rest; i++)
        used += (size_t)snprintf(out + used, size - used, "[%s]", options->rest[i]);
}

/* clang-format off */
static const char *const taken[][3] = { /* words, variables, what was read */
    { "x", "", "[x]" },
    { "x a --nnodes 2 -- b", "", "[x][a][--nnodes][2][--][b]" },
    { "-- x -- y", "", "-- [x][--][y]" },
    { "-- --nnodes 2", "", "-- [--nnodes][2]" },
    { "-", "", "[-]" },
    { "--nproc-per-node 4 x", "", "nproc-per-node=4(--nproc-per-node) [x]" },
    { "--nproc_per_node=4 x", "", "nproc-per-node=4(--nproc-per-node) [x]" },
    { "--nproc_per-no 4 x", "", "nproc-per-node=4(--nproc-per-node) [x]" },
    { "--nproc-per-node cpu x", "", "nproc-per-node=6(--nproc-per-node) [x]" },
    { "--nproc-per-node 4 --nproc-per-node 3 x", "", "nproc-per-node=3(--nproc-per-node) [x]" },
    { "--nnodes 2 x", "", "nnodes=2(--nnodes) [x]" },
    { "--nnodes 2:2 x", "", "nnodes=2(--nnodes) [x]" },
    { "--redirect=3 x", "", "redirects=3(--redirects) [x]" },
    { "-r3 x", "", "redirects=3(--redirects) [x]" },
    { "-r 3 x", "", "redirects=3(--redirects) [x]" },
    { "-r=3 x", "", "redirects=3(--redirects) [x]" },
    { "-t 0:1,12:3 x", "", "tee=0:1,12:3(--tee) [x]" },
    { "-qm pkg.mod -r3", "", "module=1(--module) quiet=1(--quiet) [pkg.mod][-r3]" },
    { "-m -- mod", "", "module=1(--module) -- [mod]" },
    { "-m job.yaml --set a", "", "module=1(--module) [job.yaml][--set][a]" },
    { "--no-python job.yaml --set a", "", "no-python=1(--no-python) [job.yaml][--set][a]" },
    { "-qr3 x", "", "redirects=3(--redirects) quiet=1(--quiet) [x]" },
    { "t.yaml --nnodes 2 --set a.b=c", "", "nnodes=2(--nnodes) set:a.b=c [t.yaml]" },
    { "--set a.b=c t.yml --set=a.b=d --set a.b=e=f", "", "set:a.b=c set:a.b=d set:a.b=e=f [t.yml]" },
    { "-- t.yaml --dry-run", "", "dry-run=1(--dry-run) -- [t.yaml]" },
    { ".yaml --set", "", "[.yaml][--set]" },
    { "--log-dir - x", "", "log-dir=-(--log-dir) [x]" },
    { "--log_dir=EMPTY/a x", "", "log-dir=EMPTY/a(--log-dir) [x]" },
    { "--color --no-color x", "", "no-color=1(--no-color) [x]" },
    { "--no-color --color x", "", "color=1(--color) [x]" },
    { "--no-color x", "FSDPRUN_COLOR=1", "no-color=1(--no-color) [x]" },
    { "x", "PET_NNODES=2", "nnodes=2(PET_NNODES) [x]" },
    { "x", "PET_NNODES=2 FSDPRUN_NNODES=3", "nnodes=3(FSDPRUN_NNODES) [x]" },
    { "--nnodes 4 x", "PET_NNODES=2 FSDPRUN_NNODES=3", "nnodes=4(--nnodes) [x]" },
    { "--nnodes 4 x", "PET_NNODES=bad", "nnodes=4(--nnodes) [x]" },
    { "x", "PET_NNODES=", "[x]" },
    { "x", "PET_MODULE=1", "module=1(PET_MODULE) [x]" },
    { "t.yaml --nnodes 2", "PET_MODULE=1", "module=1(PET_MODULE) [t.yaml][--nnodes][2]" },
    { "t.yaml --nnodes 2", "PET_MODULE=0", "nnodes=2(--nnodes) module=0(PET_MODULE) [t.yaml]" },
    { "x", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=7", "shutdown-timeout=7(TORCH_ELASTIC_SHUTDOWN_TIMEOUT) [x]" },
    { "x", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=7 PET_SHUTDOWN_TIMEOUT=8",
      "shutdown-timeout=8(PET_SHUTDOWN_TIMEOUT) [x]" },
    { "x", "FSDPRUN_SECRET_FILE=/s FSDPRUN_AGENT=/a FSDPRUN_DETACH=1",
      "secret-file=/s(FSDPRUN_SECRET_FILE) agent=/a(FSDPRUN_AGENT) detach=1(FSDPRUN_DETACH) [x]" },
    { "x", "PET_SECRET_FILE=/s FSDPRUN_SET=a.b=c FSDPRUN_DRY_RUN=1", "[x]" },
    { "--help --zebra", "", "help=1(--help) " },
    { "-h", "PET_NNODES=bad", "help=1(--help) " },
    { "--vers", "", "version=1(--version) " },
    { "--nnodes 2 --version x", "", "nnodes=2(--nnodes) version=1(--version) " },
    { "t.yaml --help", "", "help=1(--help) [t.yaml]" },
};
/* clang-format on */

/* Read the words, and with a status of FSDP_OK what was read, else the error is `want`. */
static void check(const char *words, const char *variables, bool good, const char *want)
{
    struct fsdp_err err = { 0 };
    struct options options;
    struct line line;
    char text[1024];

    make_line(&line, words, variables);
    cr_expect(eq(int, options_read(&options, &line.input, &err) == FSDP_OK, good), "%s %s: %s", words,
              variables, err.message);
    if (good)
        spell(&options, text, sizeof text);
    cr_expect(eq(str, good ? text : err.message, (char *)want), "%s %s", words, variables);
    cr_expect(good || options.sets == NULL, "a failed parse leaves nothing to free");
    if (good)
        options_fini(&options);
}

Test(options, what_is_accepted_means_this)
{
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        check(taken[i][0], taken[i][1], true, taken[i][2]);
}

#define NO_PROCS "--nproc-per-node: must be a whole number from 1 to 4096, cpu, gpu, xpu or auto, not "

/* clang-format off */
static const char *const refused[][3] = { /* words, variables, the line */
    { "", "", "nothing to run: give a job file or a program (see fsdprun --help)" },
    { "--", "", "nothing to run: give a job file or a program (see fsdprun --help)" },
    { "--zebra x", "", "--zebra is no option (see fsdprun --help)" },
    { "-z x", "", "-z is no option (see fsdprun --help)" },
    { "-=3 x", "", "-= is no option (see fsdprun --help)" },
    { "--=3 x", "", "-- is no option (see fsdprun --help)" },
    { "--no x", "", "--no may be --no-python, --node-rank or --no-color" },
    { "--nn x", "", "--nnodes: must be a whole number from 1 to 65536, not x" },
    { "--log x", "",
      "--log may be --log-dir, --log-line-prefix-template, --log-limit, --log-keep or --logs-specs" },
    { "--nproc-per-node 0 x", "", NO_PROCS "0" },
    { "--nproc-per-node -1 x", "", NO_PROCS "-1" },
    { "--nproc-per-node=-1 x", "", NO_PROCS "-1" },
    { "--nproc-per-node=EMPTY", "", NO_PROCS "EMPTY" },
    { "--nproc-per-node= x", "", NO_PROCS "nothing" },
    { "--nproc-per-node 2x x", "", NO_PROCS "2x" },
    { "--nproc-per-node 99999999999999999999 x", "", NO_PROCS "99999999999999999999" },
    { "--nnodes 2:1 x", "", "--nnodes: in MIN:MAX, MIN must not be more than MAX, as in 2:1" },
    { "--nnodes 1:2:3 x", "", "--nnodes: must be a whole number from 1 to 65536, not 2:3" },
    { "--nnodes : x", "", "--nnodes: must be a whole number from 1 to 65536, not nothing" },
    { "--max-restarts", "", "--max-restarts needs a value: --max-restarts N[/SECONDS]" },
    { "--max-restarts 3/0 x", "",
      "--max-restarts: in N/SECONDS, SECONDS must be a whole number from 1 to 1000000, not 0" },
    { "--max-restarts 3/ x", "",
      "--max-restarts: in N/SECONDS, SECONDS must be a whole number from 1 to 1000000, not nothing" },
    { "--max-restarts 3/1m x", "",
      "--max-restarts: in N/SECONDS, SECONDS must be a whole number from 1 to 1000000, not 1m" },
    { "--max-restarts /9 x", "", "--max-restarts: must be a whole number from 0 to 1000000, not nothing" },
    { "x", "PET_MAX_RESTARTS=241/9", "PET_MAX_RESTARTS: in N/SECONDS, N must be at most 240, not 241" },
    { "--log-dir --tee 3 x", "", "--log-dir needs a value: --log-dir DIR" },
    { "--log-dir= x", "", "--log-dir: must not be empty" },
    { "--dry-run=1 x", "", "--dry-run takes no value (1)" },
    { "-mfoo", "", "-f is no option (see fsdprun --help)" },
    { "-m=foo", "", "--module takes no value (foo)" },
    { "-r4 x", "", "--redirects: must be 0, 1, 2, 3 or RANK:N,RANK:N,..., not 4" },
    { "-t 0:1, x", "", "--tee: must be 0, 1, 2, 3 or RANK:N,RANK:N,..., not 0:1," },
    { "-t 0:4 x", "", "--tee: must be 0, 1, 2, 3 or RANK:N,RANK:N,..., not 0:4" },
    { "-m --no-python x", "", "--module and --no-python exclude each other" },
    { "--gpus 2 x", "", "--gpus needs --agent or --detach: only an agent knows which GPUs are free" },
    { "--set a.b=c x", "", "--set is for job files, and x is none" },
    { "t.yaml u.yaml", "", "u.yaml: nothing but options may follow a job file" },
    { "t.yaml -- x", "", "-- is no option (see fsdprun --help)" },
    { "x", "PET_NNODES=0", "PET_NNODES: must be a whole number from 1 to 65536, not 0" },
    { "x", "PET_NO_PYTHON=yes", "PET_NO_PYTHON: must be 0 or 1, not yes" },
};
/* clang-format on */

Test(options, what_is_refused_says_why_in_one_line)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        check(refused[i][0], refused[i][1], false, refused[i][2]);
}

Test(options, the_table_has_no_name_letter_or_id_twice_and_nothing_without_help)
{
    bool seen[OPT_COUNT] = { false };

    for (size_t i = 0; i < option_table_size; i++) {
        const struct option *option = &option_table[i];

        for (size_t j = 0; j < i; j++) {
            cr_expect(ne(str, (char *)option_table[j].name, (char *)option->name));
            cr_expect(option->letter == 0 || option_table[j].letter != option->letter, "-%c", option->letter);
        }
        cr_expect(seen[option->id] == false, "%s", option->name);
        seen[option->id] = true;
        cr_expect(option->help != NULL && strlen(option->help) > 8, "%s", option->name);
        cr_expect(eq(int, option->kind == OPTION_FLAG, option->argument == NULL), "%s", option->name);
    }
    for (int id = OPT_UNSET + 1; id < OPT_COUNT; id++)
        cr_expect(seen[id], "option %d is not in the table", id);
}

Test(options, ranges_are_the_job_files)
{
    static const struct {
        enum option_id id;
        const char *key;
    } pairs[] = { { OPT_NPROC_PER_NODE, "launch.nproc_per_node" },
                  { OPT_NNODES, "launch.nnodes" },
                  { OPT_MAX_RESTARTS, "launch.max_restarts" },
                  { OPT_HANG_TIMEOUT, "launch.hang_timeout_s" } };

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const struct job_key *key = job_key_find_path(pairs[i].key);
        const struct option *option = option_find(pairs[i].id);

        cr_expect(key->low == (double)option->low && key->high == (double)option->high, "%s", option->name);
    }
}

Test(options, help_names_each_option_once_within_the_width)
{
    char *text = NULL, *save = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    options_print_help(out, "fsdprun");
    fclose(out);

    for (size_t i = 0; i < option_table_size; i++) {
        size_t n = 0, length;
        char word[80];

        length = (size_t)snprintf(word, sizeof word, "--%s", option_table[i].name);
        for (const char *at = text; (at = strstr(at, word)) != NULL; at += length)
            n += (at[length] == ' ' || at[length] == '\n') &&
                 (strncmp(at - 7, "\n      ", 7) == 0 || (strncmp(at - 7, "\n  -", 4) == 0 && at[-2] == ','));
        cr_expect(eq(sz, n, 1), "%s", word);
    }
    for (char *line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save))
        cr_expect(le(sz, strlen(line), 100), "%s", line);
    free(text);
}

Test(options, endpoints)
{
    static const struct {
        const char *text, *host;
        int port; /* -1: refused */
    } cases[] = {
        { "h", "h", 7 },       { "h:80", "h", 80 },       { "1.2.3.4:0", "1.2.3.4", 0 },
        { "[::1]", "::1", 7 }, { "[::1]:80", "::1", 80 }, { "::1", "", -1 },
        { "::1:80", "", -1 },  { "h:", "", -1 },          { "h:x", "", -1 },
        { "h:65536", "", -1 }, { ":80", "", -1 },         { "", "", -1 },
        { "[::1", "", -1 },    { "[::1]80", "", -1 },     { "[]:80", "", -1 },
        { "h:80x", "", -1 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char host[32] = "";
        int port = -1;
        enum fsdp_status status = options_endpoint(cases[i].text, host, sizeof host, 7, &port, NULL);

        cr_expect(eq(int, status, cases[i].port < 0 ? FSDP_ERR_CONFIG : FSDP_OK), "%s", cases[i].text);
        cr_expect(eq(int, port, cases[i].port), "%s", cases[i].text);
        cr_expect(eq(str, host, (char *)cases[i].host), "%s", cases[i].text);
    }
}
