/*
 * What is run: a job file, a Python file or module, an executable, a name on PATH, or anything else, which is
 * given to Python. Pure: what the file system says comes in through struct what_files.
 */
#ifndef LAUNCHER_WHAT_H
#define LAUNCHER_WHAT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

enum what_kind {
    WHAT_UNSET,
    WHAT_JOB,      /* a .yaml or .yml file */
    WHAT_SCRIPT,   /* PYTHON -u X: a .py file; called as torchrun, every X */
    WHAT_MODULE,   /* PYTHON -u -m X */
    WHAT_RUN_PATH, /* PYTHON -u -c PROGRAM X, where the program runs X by runpy */
    /* X as it is: with --no-python, or because X does not exist, which starting it will say */
    WHAT_DIRECT,
    WHAT_FILE,       /* a file with execute permission */
    WHAT_ON_PATH,    /* a name that is no file here and is found on PATH */
    WHAT_PYTHON,     /* anything else that exists: PYTHON -u X */
    WHAT_SUBCOMMAND, /* a subcommand, or a word that is reserved for one */
};

/* Questions to the file system. `arg` is their first argument. */
struct what_files {
    bool (*is_file)(void *arg, const char *path);     /* it exists and is no directory */
    bool (*exists)(void *arg, const char *path);      /* anything of that name, directories too */
    bool (*may_execute)(void *arg, const char *path); /* this process may execute it */
    bool (*on_path)(void *arg, const char *name);     /* an executable file in a directory of PATH */
    void *arg;
};

/* What the command line says about it. */
struct what_flags {
    bool module, no_python, run_path;
    bool dashes; /* "--" came before it: no word is reserved */
    /* fsdprun was called torchrun: no subcommands, no job files, anything else is Python's */
    bool as_torchrun;
};

/** Decide what the word `name` is, the first word after the options. */
enum what_kind what_is_run(const char *name, struct what_flags flags, const struct what_files *files);

/* An option of a command over jobs. */
struct subcommand_option {
    char letter;                 /* 0: none */
    const char *name;            /* NULL: the end of the list */
    const char *argument, *help; /* `argument` NULL: it takes no value */
};

/* A word that is a subcommand when it comes first. */
struct subcommand {
    const char *name;
    const char *brief; /* its line in --help */
    /* Of a command over jobs; else NULL. Its words in the usage: "[-f] JOB", and its options. */
    const char *usage;
    const struct subcommand_option *options;
    const char *more; /* what its help page adds; NULL: nothing */
};
extern const struct subcommand what_subcommands[];
extern const size_t what_subcommands_size;

/**
 * Is `name` a subcommand, or reserved for a later one? Then it is no program, unless "--" or a path says so.
 */
bool what_is_reserved(const char *name);

/** The command over jobs of that name; NULL: there is none. */
const struct subcommand *what_job_command(const char *name);

/** Does the command take a JOB, or a RUN, which may be one? */
bool what_takes_job(const struct subcommand *command);

/** The subcommand that `name` is a misspelling of; NULL: none. */
const char *what_subcommand_meant(const char *name);

/** The questions, answered by the real file system and PATH. */
extern const struct what_files what_real_files;

/** Find the executable file that the shell runs for `name`, a word without a slash. Returns false if none. */
bool what_find_on_path(const char *name, char file[PATH_MAX]);

#endif
