/*
 * fsdprun plan JOB.yaml: what a job needs of a rank, without running it. With --schedule: how parameters are
 * cut, and what a step does in which order.
 */
#ifndef LAUNCHER_CMD_PLAN_H
#define LAUNCHER_CMD_PLAN_H

#include <stdio.h>

#include "launcher/launch.h"
#include "launcher/options.h"

/**
 * Plan the job of a command line. This process becomes fsdp-train --plan, which has the numerics, and does
 * not return unless that cannot be started or there is nothing to plan.
 *   input  the whole command line
 *   place  the index of the word "plan" in it
 * Returns the exit status, after a line on stderr where it is not 0.
 */
int cmd_plan(const struct options_input *input, int place, const struct surroundings *around);

/** Print the page of plan --help. Returns the exit status. */
int cmd_plan_help(FILE *out);

#endif
