/*
 * --help, docs/config.md and the manual pages: prose, and the tables of options and keys as they are.
 */
#ifndef LAUNCHER_CMD_DOCS_H
#define LAUNCHER_CMD_DOCS_H

#include <stdio.h>

/** The page of --help, by the name fsdprun was called by. Returns the exit status. */
int cmd_help(const char *program, FILE *out);

/** The page of --help-all. */
int cmd_help_all(const char *program, FILE *out);

/** The completion script for `shell`, one of the choices of --print-completion. Returns the exit status. */
int cmd_completion(const char *shell, const char *program, FILE *out);

/** `page`: config.md, fsdprun.1 or fsdp.yaml.5. Returns the exit status: 2 for any other page. */
int cmd_docs(const char *page, FILE *out);

#endif
