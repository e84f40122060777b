/*
 * The command `fsdprun doctor`: can this machine run a job, and if not, what must the user do? The checks
 * themselves are in agent/doctor.
 */
#ifndef LAUNCHER_CMD_DOCTOR_H
#define LAUNCHER_CMD_DOCTOR_H

#include <stdio.h>

#include "launcher/launch.h"
#include "launcher/options.h"

/**
 * Runs the checks, and prints their results. For a job of several nodes the user starts it on each node. The
 * nodes then meet as for a run, and measure their connections and clocks. Only the node of rank 0 prints the
 * report.
 *   input  the command line; its word number `place` is "doctor"
 * Returns the exit status:
 *   0   no check failed
 *   1   a check failed, or the nodes did not meet
 *   2   bad usage
 *   74  the report cannot be made or written
 *   78  the job file cannot be used
 */
int cmd_doctor(const struct options_input *input, int place, struct surroundings *around);

/* The beginning of the first argument of an fsdprun that is one rank of doctor's run. FILE follows it. */
#define DOCTOR_NODE_WORD "--doctor-node="

/**
 * Does the work of one rank when doctor runs on several nodes: `fsdprun --doctor-node=FILE [RUN_DIR]`. doctor
 * starts this program on every node. FILE holds the report of this node. This function replaces it by the
 * report that this node is to print. Returns the exit status.
 */
int cmd_doctor_node(const char *file, const char *run_dir);

/** Prints the help page of doctor. Returns the exit status. */
int cmd_doctor_help(FILE *out);

#endif
