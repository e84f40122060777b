/*
 * The commands `fsdprun JOB.yaml` and `fsdprun PROGRAM`. They make the launch, then run it, or print it
 * (--dry-run).
 */
#ifndef LAUNCHER_CMD_RUN_H
#define LAUNCHER_CMD_RUN_H

#include "launcher/launch.h"

/**
 * Runs the job file options->rest[0]. Returns the exit status of fsdprun. On a failure, stderr has lines
 * about it.
 */
int cmd_run_job(const struct options *options, const struct surroundings *around);

/**
 * Runs the program options->rest, which is of `kind`. Returns the exit status of fsdprun. On a failure,
 * stderr has lines about it.
 */
int cmd_run_program(const struct options *options, enum what_kind kind, const struct surroundings *around);

#endif
