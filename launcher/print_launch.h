/*
 * Prints what --dry-run shows for a program: the launch as a YAML document with one key on each line. A
 * comment after each value says where the value came from. Texts are written as in JSON. The `fields` of the
 * option table decide which keys there are.
 */
#ifndef LAUNCHER_PRINT_LAUNCH_H
#define LAUNCHER_PRINT_LAUNCH_H

#include <stdio.h>

#include "launcher/launch.h"

/**
 * Prints the launch that launch_program() has made from `options`. Returns the exit status: 0, or
 * FSDP_EXIT_IO if `out` cannot be written.
 */
int print_launch(const struct launch *launch, const struct options *options, FILE *out);

/**
 * Prints, for a job, the options that other programs' variables have set, such as Slurm's. Each is a comment
 * of one line. Options that are also keys of the job file are left out.
 */
void print_launch_defaults(const struct options *options, FILE *out);

#endif
