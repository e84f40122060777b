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
 * Run the checks, and print them. For a job of several nodes it is given on each node. The nodes meet, as for
 * a run, and measure their connections and clocks. The one of rank 0 prints the report.
 *   input  the command line; its word number `place` is "doctor"
 * Returns the exit status:
 *   0   no check failed
 *   1   a check failed
 *   2   bad usage
 *   74  the report cannot be made or written
 *   78  a job file that cannot be used
 * Nodes that do not meet are a check that failed.
 */
int cmd_doctor(const struct options_input *input, int place, struct surroundings *around);

/* The first word of a fsdprun that is such a rank. FILE follows. */
#define DOCTOR_NODE_WORD "--doctor-node="

/**
 * Be the rank of one node (`fsdprun --doctor-node=FILE [RUN_DIR]`): the doctor runs itself on all nodes as a
 * program. FILE has the report of this node, and gets what this node prints. Returns the exit status.
 */
int cmd_doctor_node(const char *file, const char *run_dir);

/** Print its help page. Returns the exit status. */
int cmd_doctor_help(FILE *out);

#endif
