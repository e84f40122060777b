/* The page of `fsdprun --version`, which describes this build. */
#ifndef LAUNCHER_CMD_VERSION_H
#define LAUNCHER_CMD_VERSION_H

#include <stdio.h>

/**
 * Prints version, commit, compiler, features, and the versions of the linked libraries. Returns the exit
 * status: 0, or FSDP_EXIT_IO if `out` cannot be written.
 */
int cmd_version(FILE *out);

#endif
