/*
 * fsdprun plan [--memory SIZE] [--json] [options] JOB.yaml: what the job needs of a rank, without running it.
 * fsdprun plan --schedule [options] JOB.yaml: the layout and the order of a step instead.
 */
#ifndef LAUNCHER_CMD_PLAN_H
#define LAUNCHER_CMD_PLAN_H

#include <stdio.h>

#include "launcher/launch.h"
#include "launcher/options.h"

/**
 * `input` is the command line that "plan" stands in as its word `place`. The process becomes fsdp-train --plan; it
 * returns, with an exit status, only when that could not be started or nothing is to be planned.
 */
int cmd_plan(const struct options_input *input, int place, const struct surroundings *around);

/** The page of plan --help. Returns the exit status. */
int cmd_plan_help(FILE *out);

#endif
