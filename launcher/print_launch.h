/*
 * --dry-run of a program: how it would be launched, as a YAML document with one key a line. A comment after
 * each value says where the value came from. Texts are written as JSON writes them. Which keys there are is
 * said by the `fields` of the option table.
 */
#ifndef LAUNCHER_PRINT_LAUNCH_H
#define LAUNCHER_PRINT_LAUNCH_H

#include <stdio.h>

#include "launcher/launch.h"

/**
 * Print the launch that launch_program() made of `options`. Returns the exit status: 0, or FSDP_EXIT_IO where
 * `out` does not take it.
 */
int print_launch(const struct launch *launch, const struct options *options, FILE *out);

/**
 * Print the options of a job that follow from other variables than their own, as Slurm's, as comments of one
 * line each. Those that are keys of the job file are not among them.
 */
void print_launch_defaults(const struct options *options, FILE *out);

#endif
