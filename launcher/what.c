#include "launcher/what.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/options.h"
#include "shard_runtime/core/spelling.h"

#define JSON                                                                                                 \
    {                                                                                                        \
        0, "json", NULL, "for programs: one JSON value"                                                      \
    }
#define JSON_LINES                                                                                           \
    {                                                                                                        \
        0, "json", NULL, "for programs: one JSON object a line"                                              \
    }
#define WIDE                                                                                                 \
    {                                                                                                        \
        0, "wide", NULL, "more columns, and nothing is cut"                                                  \
    }
#define WATCH                                                                                                \
    {                                                                                                        \
        'w', "watch", NULL, "show it again whenever it has changed; q ends"                                  \
    }
#define AGENT                                                                                                \
    {                                                                                                        \
        0, "agent", "SOCKET", "the jobs of the agent at SOCKET, in place of one's own"                       \
    }
#define END                                                                                                  \
    {                                                                                                        \
        0                                                                                                    \
    }

const struct subcommand what_subcommands[] = {
    { .name = "plan", .brief = "memory and traffic of a job, without running it" },
    { "ps", "the jobs of this user that run on this machine",
      "[-w] [--wide] [-q] [--names] [--json] [--agent SOCKET]",
      (const struct subcommand_option[]){ WATCH,
                                          WIDE,
                                          { 'q', "quiet", NULL, "only the ids, one a line" },
                                          { 0, "names", NULL, "only the names, one a line" },
                                          JSON,
                                          AGENT,
                                          END },
      "States: queued, starting, running, restarting, stopping; complete and failed, while its last\n"
      "lines are written. A run that does not answer within a second has the state \"-\".\n" },
    { "status", "one job, and what its workers on this node do",
      "[-w] [--wide] [--json] [--agent SOCKET] JOB",
      (const struct subcommand_option[]){ WATCH, WIDE, JSON, AGENT, END }, NULL },
    { "top", "the ranks of all jobs, or of one, as they go on", "[--json] [--agent SOCKET] [JOB]",
      (const struct subcommand_option[]){ JSON, AGENT, END },
      "In a terminal the table is drawn again whenever something has changed. Keys: q ends, s sorts\n"
      "by rank, step or memory, arrows move. Elsewhere, and with --json, it shows it once.\n" },
    { "logs", "what the ranks of a job printed",
      "[-f] [--rank R] [--since T] [--tail N] [--json] [--agent SOCKET] RUN",
      (const struct subcommand_option[]){
          { 'f', "follow", NULL, "go on with what they print, until the job has ended" },
          { 0, "rank", "R", "only this rank" },
          { 0, "since", "T", "only what was printed since T" },
          { 0, "tail", "N", "only the last N lines of each log, and with -f what follows" },
          JSON_LINES,
          AGENT,
          END },
      "The lines of stdout.log go to stdout, those of stderr.log to stderr, with the rank before\n"
      "them: generation by generation, and rank by rank. With --json all go to stdout, as objects with\n"
      "\"rank\", \"stream\" and \"line\". With -f a run that has ended is printed whole. T is a time ago "
      "(90s, 10m, 2h, 1d) or one\n"
      "as 2026-11-28T15:04:05; lines of the second before it may come too.\n" },
    { "events", "what happened to a job, as in events.jsonl", "[-f] [--json] [--agent SOCKET] RUN",
      (const struct subcommand_option[]){
          { 'f', "follow", NULL, "go on with what happens, until the job has ended" },
          JSON_LINES,
          AGENT,
          END },
      "Each line is an object of JSON, with and without --json.\n" },
    { "stop", "end jobs, and wait until they have ended", "[--save] [--json] [--agent SOCKET] JOB...",
      (const struct subcommand_option[]){
          { 0, "save", NULL, "save a checkpoint first" }, JSON_LINES, AGENT, END },
      "Status: 0 when the job has ended; with --save when it has saved, or was complete.\n"
      "Else the status of the job. All jobs are asked before the first is waited for; the status\n"
      "is that of the first one, in the order of the words, for which it is not 0.\n" },
    { "restart", "begin another generation of a job", "[--json] [--agent SOCKET] JOB",
      (const struct subcommand_option[]){ JSON, AGENT, END },
      "The ranks of a job save and end, those of a program get TERM. Then all are started\n"
      "again. This counts as no restart. Status: 0 when they run again.\n" },
    { "inspect", "everything that is known of a job, as JSON", "[--json] [--agent SOCKET] JOB",
      (const struct subcommand_option[]){ JSON, AGENT, END }, "It is JSON with and without --json.\n" },
    { .name = "doctor", .brief = "is this machine fit for a run; what to do if not" },
    { .name = "ckpt", .brief = "checkpoints: list, verify, compare (help ckpt)" },
    { "plot", "loss, throughput and restarts of a run", "[--svg FILE] [--json] [--agent SOCKET] RUN",
      (const struct subcommand_option[]){
          { 0, "svg", "FILE", "write a picture to FILE in place of the terminal" }, JSON, AGENT, END },
      "A step that was trained again counts as it was last. Under \"^\" a generation went on.\n" },
    { .name = "version", .brief = "version, commit, compiler and features" },
    { .name = "help", .brief = "this page; help plan: that of plan, and so on" },
};
const size_t what_subcommands_size = sizeof what_subcommands / sizeof *what_subcommands;

/*
 * Words that are no subcommands yet, but are refused as names of programs. A script that ran such a program
 * would break once the subcommand exists.
 */
static const char *const reserved[] = { "data", "trace" };

const struct subcommand *what_job_command(const char *name)
{
    for (size_t i = 0; i < what_subcommands_size; i++)
        if (what_subcommands[i].usage != NULL && strcmp(what_subcommands[i].name, name) == 0)
            return &what_subcommands[i];
    return NULL;
}

bool what_takes_run(const struct subcommand *command)
{
    return strstr(command->usage, "RUN") != NULL;
}

bool what_takes_jobs(const struct subcommand *command)
{
    return strstr(command->usage, "JOB...") != NULL;
}

bool what_takes_job(const struct subcommand *command)
{
    return strstr(command->usage, "JOB") != NULL || what_takes_run(command);
}

bool what_is_reserved(const char *name)
{
    for (size_t i = 0; i < what_subcommands_size; i++)
        if (strcmp(what_subcommands[i].name, name) == 0)
            return true;
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (strcmp(reserved[i], name) == 0)
            return true;
    return false;
}

const char *what_subcommand_meant(const char *name)
{
    const char *found = NULL;
    size_t best = (size_t)-1;

    for (size_t i = 0; i < what_subcommands_size; i++)
        if (spelling_is_close(name, what_subcommands[i].name, &best))
            found = what_subcommands[i].name;
    return found;
}

static bool ends_in(const char *name, const char *suffix)
{
    size_t length = strlen(name), n = strlen(suffix);

    return length > n && strcmp(name + length - n, suffix) == 0;
}

enum what_kind what_is_run(const char *name, struct what_flags flags, const struct what_files *files)
{
    if (flags.run_path)
        return WHAT_RUN_PATH;
    if (flags.module)
        return WHAT_MODULE;
    if (flags.no_python)
        return WHAT_DIRECT;
    if (flags.as_torchrun)
        return WHAT_SCRIPT;
    if (!flags.dashes && what_is_reserved(name))
        return WHAT_SUBCOMMAND;
    if (options_names_job(name))
        return WHAT_JOB;
    if (ends_in(name, ".py") && files->exists(files->arg, name))
        return WHAT_SCRIPT;
    if (files->is_file(files->arg, name))
        return files->may_execute(files->arg, name) ? WHAT_FILE : WHAT_PYTHON;
    if (*name != '\0' && strchr(name, '/') == NULL && files->on_path(files->arg, name))
        return WHAT_ON_PATH;
    if (ends_in(name, ".py"))
        return WHAT_SCRIPT; /* the agent reports a missing file: it checks before every generation */
    /*
     * If `name` does not exist, it is executed directly, and that reports the error. "-" is Python's standard
     * input.
     */
    return strcmp(name, "-") == 0 || files->exists(files->arg, name) ? WHAT_PYTHON : WHAT_DIRECT;
}

static bool is_file(void *arg, const char *path)
{
    struct stat info;

    (void)arg;
    return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

static bool exists(void *arg, const char *path)
{
    struct stat info;

    (void)arg;
    return stat(path, &info) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

static bool may_execute(void *arg, const char *path)
{
    (void)arg;
    return faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) == 0;
}

bool what_find_on_path(const char *name, char file[PATH_MAX])
{
    const char *path = getenv("PATH");

    /*
     * As in execvp(): an empty entry is the working directory, and if PATH is not set the system's default is
     * used.
     */
    if (path == NULL)
        path = "/bin:/usr/bin";
    for (;;) {
        int length = (int)strcspn(path, ":");

        if (snprintf(file, PATH_MAX, "%.*s%s%s", length, path, length == 0 ? "./" : "/", name) < PATH_MAX &&
            is_file(NULL, file) && may_execute(NULL, file))
            return true;
        if (path[length] == '\0')
            return false;
        path += length + 1;
    }
}

static bool on_path(void *arg, const char *name)
{
    char file[PATH_MAX];

    (void)arg;
    return what_find_on_path(name, file);
}

const struct what_files what_real_files = {
    .is_file = is_file, .exists = exists, .may_execute = may_execute, .on_path = on_path
};
