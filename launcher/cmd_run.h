/*
 * fsdprun JOB.yaml and fsdprun PROGRAM: resolve, say or run.
 */
#ifndef LAUNCHER_CMD_RUN_H
#define LAUNCHER_CMD_RUN_H

#include "launcher/launch.h"

/** Both return the exit status of fsdprun; what went wrong has been written to stderr. */
int cmd_run_job(const struct options *options, const struct surroundings *around);
int cmd_run_program(const struct options *options, enum what_kind kind, const struct surroundings *around);

#endif
