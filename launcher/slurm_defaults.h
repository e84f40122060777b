/*
 * The settings that follow from a step of Slurm's. They are the weakest of all: an option, its variable or a
 * key of the job file wins.
 */
#ifndef LAUNCHER_SLURM_DEFAULTS_H
#define LAUNCHER_SLURM_DEFAULTS_H

#include "launcher/launch.h"
#include "launcher/options.h"
#include "launcher/slurm.h"

/* The texts that the options borrow. It must outlive them. */
struct slurm_defaults {
    struct slurm_step step;
    char n_nodes[16], node[16], n_workers[16], endpoint[HOSTLIST_NAME_BYTES + 8];
    char name[SLURM_NAME_BYTES];
};

/**
 * Fill in the options that were not given. Nothing follows from Slurm with --standalone, or if the user says
 * where the nodes meet: then it is the user who arranges them.
 *   is_job  a job file is run
 * Sets around->slurm if this process is a task that Slurm arranges. FSDP_ERR_CONFIG: a value does not suit
 * its option, as more nodes than there can be.
 */
enum fsdp_status slurm_defaults_apply(struct slurm_defaults *defaults, struct options *options, bool is_job,
                                      struct surroundings *around, struct fsdp_err *err);

#endif
