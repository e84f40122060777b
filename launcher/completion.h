/*
 * Completion scripts for shells, from the table of options. What an option's value may be comes from its choices; one
 * whose argument is called DIR takes a directory, FILE or SOCKET a file. Pure.
 */
#ifndef LAUNCHER_COMPLETION_H
#define LAUNCHER_COMPLETION_H

#include <stdio.h>

/** For "bash", "zsh" or "fish", and a command called `program` (fsdprun, torchrun). */
void completion_print(FILE *out, const char *shell, const char *program);

#endif
