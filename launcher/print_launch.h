/*
 * --dry-run of a program: how it would be launched, as a YAML document of one key a line with where its value came
 * from behind it. Strings are written as JSON writes them.
 */
#ifndef LAUNCHER_PRINT_LAUNCH_H
#define LAUNCHER_PRINT_LAUNCH_H

#include <stdio.h>

#include "launcher/launch.h"

/** Returns the exit status. */
int print_launch(const struct launch *launch, const struct options *options, FILE *out);

#endif
