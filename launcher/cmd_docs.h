/*
 * Prints the pages for users that are made from the tables of options and job keys: --help, shell completion,
 * and the parts of docs/ that `make docs` writes.
 *
 * Each function prints one page to `out`. It returns the exit status: 0, or FSDP_EXIT_IO if `out` cannot be
 * written.
 */
#ifndef LAUNCHER_CMD_DOCS_H
#define LAUNCHER_CMD_DOCS_H

#include <stdio.h>

/** Prints the page of --help. `program` is the name that the user called fsdprun by. */
int cmd_help(const char *program, FILE *out);

/** Prints the page of --help-all. `program` is the name that the user called fsdprun by. */
int cmd_help_all(const char *program, FILE *out);

/**
 * Prints the script that completes the options of `program` in `shell`, one of the choices of
 * --print-completion.
 */
int cmd_completion(const char *shell, const char *program, FILE *out);

/**
 * Prints the part of a document that is made from a table. `page` is "config.md" (the whole file),
 * "fsdprun.1" (the options and commands) or "fsdp.yaml.5" (the keys of a job file). The two manual pages have
 * this part between two marks. Any other `page` gives a line on stderr and FSDP_EXIT_USAGE.
 */
int cmd_docs(const char *page, FILE *out);

#endif
