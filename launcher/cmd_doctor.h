/*
 * fsdprun doctor: is this machine fit to run a job, and what would have to be done? The checks are the
 * agent's (agent/doctor).
 */
#ifndef LAUNCHER_CMD_DOCTOR_H
#define LAUNCHER_CMD_DOCTOR_H

#include <stdio.h>

#include "launcher/launch.h"
#include "launcher/options.h"

/**
 * Run the checks, and print them.
 *   input  the command line; its word number `place` is "doctor"
 * Returns the exit status:
 *   0   no check failed
 *   1   a check failed
 *   2   bad usage
 *   74  the report cannot be made or written
 *   78  a job file that cannot be used
 */
int cmd_doctor(const struct options_input *input, int place, struct surroundings *around);

/** Print its help page. Returns the exit status. */
int cmd_doctor_help(FILE *out);

#endif
