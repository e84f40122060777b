/*
 * Completion scripts for shells, made from the table of options. The values that a shell offers for an option
 * come from the option's choices, or from the name of its argument. DIR stands for folders, FILE and SOCKET
 * for files. The keys of --set and their words come from the schema of job files. Pure.
 */
#ifndef LAUNCHER_COMPLETION_H
#define LAUNCHER_COMPLETION_H

#include <stdio.h>

/**
 * Print the script.
 *   shell    "bash", "zsh" or "fish"
 *   program  the command that is completed: fsdprun or torchrun
 */
void completion_print(FILE *out, const char *shell, const char *program);

#endif
