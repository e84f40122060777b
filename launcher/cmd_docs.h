/*
 * Pages for the user that are made from the tables of options and keys: --help, shell completion, and what
 * `make docs` writes into docs/.
 *
 * Each function prints one page to `out`. It returns the exit status: 0, or FSDP_EXIT_IO where `out` does not
 * take it.
 */
#ifndef LAUNCHER_CMD_DOCS_H
#define LAUNCHER_CMD_DOCS_H

#include <stdio.h>

/** The page of --help. `program` is the name that fsdprun was called by. */
int cmd_help(const char *program, FILE *out);

/** The page of --help-all, for the same `program`. */
int cmd_help_all(const char *program, FILE *out);

/** The completion script for `shell`, which is one of the choices of --print-completion, and `program`. */
int cmd_completion(const char *shell, const char *program, FILE *out);

/**
 * The part of a document that is made from a table: all of "config.md", the options of "fsdprun.1", or the
 * keys of "fsdp.yaml.5". In the manual pages that part stands between two marks. For any other `page` it
 * returns FSDP_EXIT_USAGE, after a line on stderr.
 */
int cmd_docs(const char *page, FILE *out);

#endif
