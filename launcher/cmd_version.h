/*
 * fsdprun --version: what this build is.
 */
#ifndef LAUNCHER_CMD_VERSION_H
#define LAUNCHER_CMD_VERSION_H

#include <stdio.h>

/**
 * Print version, commit, compiler, features, and the versions of the libraries in use. Returns the exit
 * status: 0, or FSDP_EXIT_IO where `out` does not take it.
 */
int cmd_version(FILE *out);

#endif
