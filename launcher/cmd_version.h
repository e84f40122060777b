/*
 * fsdprun --version: what this build is.
 */
#ifndef LAUNCHER_CMD_VERSION_H
#define LAUNCHER_CMD_VERSION_H

#include <stdio.h>

/** Version, commit, compiler, features and the versions of the libraries in use. Returns the exit status. */
int cmd_version(FILE *out);

#endif
