/*
 * The command line of fsdp-train. One table is the source for both the parser and --help.
 *
 *   fsdp-train                         a worker: the job comes from the agent that started it
 *   fsdp-train JOB.json                a world of one: a resolved job, in the form of RUN/job.json
 *   fsdp-train --sample CHECKPOINT     writes text
 *   fsdp-train --plan JOB.json         prints what the job needs per rank, without training. "-": standard
 *                                      input
 */
#ifndef TRAINER_OPTIONS_H
#define TRAINER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <fsdp/status.h>

struct options {
    bool help, version, plan;
    bool gate;            /* wait until the agent opens the gate of the link */
    const char *job_path; /* NULL: the agent gives the job */

    const char *sample; /* a checkpoint, the directory of checkpoints, or a run directory; NULL: train */
    const char *prompt;
    uint64_t tokens, seed, top_k;
    double temperature;

    bool json, schedule; /* for --plan; at most one of them is set */
    uint64_t memory;     /* bytes that a rank may use; 0: not given */
    uint64_t node_ranks; /* ranks that a node can have; 0: not given */
    uint64_t evaluation; /* sequences of an evaluation that the plan includes */
};

/**
 * Reads argv into *options; its strings point into argv. FSDP_ERR_ARG: wrong usage; the message explains it
 * to the user.
 */
enum fsdp_status options_parse(struct options *options, int argc, char **argv, struct fsdp_err *err);

void options_help(FILE *out);

#endif
