/*
 * The command `fsdprun plan JOB.yaml`: what a job needs on each rank, found without running it. With
 * --schedule it prints how parameters are cut, and what a step does in which order.
 */
#ifndef LAUNCHER_CMD_PLAN_H
#define LAUNCHER_CMD_PLAN_H

#include <stdio.h>

#include "launcher/launch.h"
#include "launcher/options.h"

/**
 * Plans the job of a command line. On success it does not return: this process executes `fsdp-train --plan`.
 * It returns after --help, or if there is nothing to plan or fsdp-train cannot be executed.
 *   input  the whole command line
 *   place  the index of the word "plan" in it
 * Returns the exit status; if that is not 0, a line on stderr says why.
 */
int cmd_plan(const struct options_input *input, int place, const struct surroundings *around);

/** Prints the page of `plan --help`. Returns the exit status. */
int cmd_plan_help(FILE *out);

#endif
