/*
 * fsdprun JOB.yaml and fsdprun PROGRAM: make the launch, then print it (--dry-run) or run it.
 */
#ifndef LAUNCHER_CMD_RUN_H
#define LAUNCHER_CMD_RUN_H

#include "launcher/launch.h"

/**
 * Run the job file options->rest[0]. Returns the exit status of fsdprun; lines about a failure are on stderr.
 */
int cmd_run_job(const struct options *options, const struct surroundings *around);

/** Run the program options->rest, which is of `kind`. Returns the exit status of fsdprun, as above. */
int cmd_run_program(const struct options *options, enum what_kind kind, const struct surroundings *around);

#endif
