/*
 * What is run: a job file, a Python file or module, an executable, a name on PATH, or what Python makes of
 * it. Pure: what the file system says comes in through struct what_files.
 */
#ifndef LAUNCHER_WHAT_H
#define LAUNCHER_WHAT_H

#include <stdbool.h>
#include <stddef.h>

enum what_kind {
    WHAT_UNSET,
    WHAT_JOB,        /* a .yaml or .yml file */
    WHAT_SCRIPT,     /* PYTHON -u X: a .py file; called as torchrun, every X */
    WHAT_MODULE,     /* PYTHON -u -m X */
    WHAT_RUN_PATH,   /* PYTHON -u -c PROGRAM X, where the program runs X by runpy */
    WHAT_DIRECT,     /* X as it is: because of --no-python, or as there is no X and that must be said */
    WHAT_FILE,       /* a file with execute permission */
    WHAT_ON_PATH,    /* a name that is no file here and is found on PATH */
    WHAT_PYTHON,     /* anything else that is there: PYTHON -u X */
    WHAT_SUBCOMMAND, /* a reserved word */
};

struct what_files {
    bool (*is_file)(void *arg, const char *path);     /* there, and no directory */
    bool (*exists)(void *arg, const char *path);      /* anything of that name, directories too */
    bool (*may_execute)(void *arg, const char *path); /* this process may */
    bool (*on_path)(void *arg, const char *name);     /* an executable file in a directory of PATH */
    void *arg;
};

struct what_flags {
    bool module, no_python, run_path;
    bool dashes;      /* "--" stood before it: no word is reserved */
    bool as_torchrun; /* called by that name: no subcommands, no job files, all else is Python's */
};

enum what_kind what_is_run(const char *name, struct what_flags flags, const struct what_files *files);

/** The words that name subcommands when they come first. */
struct subcommand {
    const char *name;
    const char *brief; /* its line in --help; NULL: not built yet */
};
extern const struct subcommand what_subcommands[];
extern const size_t what_subcommands_size;

bool what_is_reserved(const char *name);

/** The subcommand that is there and meant by `name`, a misspelling of it; NULL: none. */
const char *what_subcommand_meant(const char *name);

/** The file system as it is. */
extern const struct what_files what_real_files;

#endif
