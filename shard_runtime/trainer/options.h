/*
 * The command line of fsdp-train. One table feeds the parser and --help.
 *
 *   fsdp-train                         a worker: the job comes from the agent that started it
 *   fsdp-train JOB.json                a world of one: a resolved job, as RUN/job.json has it
 *   fsdp-train --sample CHECKPOINT     write text
 *   fsdp-train --plan JOB.json         what the job needs of a rank; nothing is trained. "-": standard input
 */
#ifndef TRAINER_OPTIONS_H
#define TRAINER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <fsdp/status.h>

struct options {
    bool help, version, plan;
    const char *job_path; /* NULL: from the agent */

    const char *sample; /* a checkpoint, the directory of checkpoints, or a run directory; NULL: train */
    const char *prompt;
    uint64_t tokens, seed, top_k;
    double temperature;

    bool json, schedule; /* of --plan; one of them at most */
    uint64_t memory;     /* bytes a rank has; 0: not said */
    uint64_t node_ranks; /* ranks that a node can have; 0: not said */
    uint64_t evaluation; /* sequences of an evaluation to count as well */
};

/** Read argv into *options, its strings borrowed. FSDP_ERR_ARG: bad usage, in words for the user. */
enum fsdp_status options_parse(struct options *options, int argc, char **argv, struct fsdp_err *err);

void options_help(FILE *out);

#endif
