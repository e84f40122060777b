/*
 * Prints completion scripts for shells, made from the table of options. The values that a shell offers for an
 * option are the option's choices, or follow from the name of its argument: folders for DIR, files for FILE
 * and SOCKET. The keys of --set and the words that a key takes come from the schema of job files. Pure.
 */
#ifndef LAUNCHER_COMPLETION_H
#define LAUNCHER_COMPLETION_H

#include <stdio.h>

/**
 * Prints the completion script.
 *   shell    "bash", "zsh" or "fish"
 *   program  the program whose command line is completed: fsdprun or torchrun
 */
void completion_print(FILE *out, const char *shell, const char *program);

#endif
