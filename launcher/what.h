/*
 * Decides what fsdprun runs: a job file, a Python file or module, an executable, a name on PATH, or any other
 * file, which is given to Python. Pure: it asks the file system only through struct what_files.
 */
#ifndef LAUNCHER_WHAT_H
#define LAUNCHER_WHAT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

enum what_kind {
    WHAT_UNSET,
    WHAT_JOB,      /* X is a .yaml or .yml file */
    WHAT_SCRIPT,   /* PYTHON -u X, for a .py file; called as torchrun, for every X */
    WHAT_MODULE,   /* PYTHON -u -m X */
    WHAT_RUN_PATH, /* PYTHON -u -c PROGRAM X, where the program runs X by runpy */
    /*
     * X itself is executed: with --no-python, or if X does not exist, so that executing it reports the error
     */
    WHAT_DIRECT,
    WHAT_FILE,       /* X is a file with execute permission */
    WHAT_ON_PATH,    /* X is no file here, and is found on PATH */
    WHAT_PYTHON,     /* PYTHON -u X, for anything else that exists */
    WHAT_SUBCOMMAND, /* X is a subcommand, or a word reserved for one */
};

/* How the file system is asked. `arg` is passed to each function. */
struct what_files {
    bool (*is_file)(void *arg, const char *path); /* does `path` exist, and is it no directory? */
    bool (*exists)(void *arg, const char *path);  /* does anything of that name exist, even a directory? */
    bool (*may_execute)(void *arg, const char *path); /* may this process execute it? */
    /* does a directory of PATH have an executable file of that name? */
    bool (*on_path)(void *arg, const char *name);
    void *arg;
};

/* What the command line says about the word that is run. */
struct what_flags {
    bool module, no_python, run_path;
    bool dashes; /* "--" came before it, so no word is reserved */
    /*
     * fsdprun was called torchrun: then there are no subcommands and no job files, and Python runs every
     * file.
     */
    bool as_torchrun;
};

/** Decides what the word `name` is. It is the first word after the options. */
enum what_kind what_is_run(const char *name, struct what_flags flags, const struct what_files *files);

/* An option of a command over jobs. */
struct subcommand_option {
    char letter;                 /* 0: none */
    const char *name;            /* NULL: end of the list */
    const char *argument, *help; /* argument NULL: the option takes no value */
};

/* A subcommand: a word that is not run as a program if it comes first. */
struct subcommand {
    const char *name;
    const char *brief; /* its line on the page of --help */
    /*
     * For a command over jobs: the words of its usage, such as "[-f] JOB", and its options. Otherwise both
     * are NULL.
     */
    const char *usage;
    const struct subcommand_option *options;
    const char *more; /* text that its help page has at the end; NULL: none */
};
extern const struct subcommand what_subcommands[];
extern const size_t what_subcommands_size;

/**
 * Is `name` a subcommand, or reserved for a later one? Such a word is run as a program only after "--" or if
 * it is written as a path.
 */
bool what_is_reserved(const char *name);

/** Returns the command over jobs of that name; NULL: there is none. */
const struct subcommand *what_job_command(const char *name);

/** Does the command take a JOB or a RUN? A RUN may be the name of a job. */
bool what_takes_job(const struct subcommand *command);
/** Does it take one JOB or more? */
bool what_takes_jobs(const struct subcommand *command);
/** Does it take a RUN? */
bool what_takes_run(const struct subcommand *command);

/** Returns the subcommand that is spelled most like `name`; NULL: none is close. */
const char *what_subcommand_meant(const char *name);

/** Asks the real file system and PATH. */
extern const struct what_files what_real_files;

/**
 * Finds the executable file that a shell would run for `name`, a word without a slash. Returns false if there
 * is none.
 */
bool what_find_on_path(const char *name, char file[PATH_MAX]);

#endif
