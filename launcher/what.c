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

const struct subcommand what_subcommands[] = {
    { "plan", "memory and traffic of a job, without running it" },
    { "version", "version, commit, compiler and features" },
    { "help", "this page; help plan: that of plan" },
};
const size_t what_subcommands_size = sizeof what_subcommands / sizeof *what_subcommands;

/* Refused today, so that no script runs a program by such a name and breaks when the subcommand comes. */
static const char *const reserved[] = { "status", "ps",     "logs", "stop", "restart", "top",
                                        "events", "doctor", "ckpt", "data", "trace",   "plot" };

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
        return WHAT_SCRIPT; /* the agent reports that it is missing: it looks in every generation */
    /*
     * A name that does not exist is started as it is, which gives the error. "-" is Python's standard input.
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

static bool on_path(void *arg, const char *name)
{
    const char *path = getenv("PATH");
    char file[PATH_MAX];

    /* As in execvp(): an empty entry is the working directory; without PATH the system's default is used. */
    if (path == NULL)
        path = "/bin:/usr/bin";
    for (;;) {
        int length = (int)strcspn(path, ":");

        if (snprintf(file, sizeof file, "%.*s%s%s", length, path, length == 0 ? "./" : "/", name) <
                (int)sizeof file &&
            is_file(arg, file) && may_execute(arg, file))
            return true;
        if (path[length] == '\0')
            return false;
        path += length + 1;
    }
}

const struct what_files what_real_files = {
    .is_file = is_file, .exists = exists, .may_execute = may_execute, .on_path = on_path
};
