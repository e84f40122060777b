/*
 * Sets options from the variables of a Slurm step. Such a value is the weakest of all: an option on the
 * command line, its variable, or a key of the job file wins over it.
 */
#ifndef LAUNCHER_SLURM_DEFAULTS_H
#define LAUNCHER_SLURM_DEFAULTS_H

#include "launcher/launch.h"
#include "launcher/options.h"
#include "launcher/slurm.h"

/* Texts that the options borrow. This struct must live longer than the options. */
struct slurm_defaults {
    struct slurm_step step;
    char n_nodes[16], node[16], n_workers[16], endpoint[HOSTLIST_NAME_BYTES + 8];
    char name[SLURM_NAME_BYTES];
};

/**
 * Sets options that the user did not give. With --standalone, or if the user says where the nodes meet,
 * nothing about nodes and workers is set.
 *   is_job  a job file is run
 * Sets around->slurm if the nodes and tasks are those of the Slurm step. FSDP_ERR_CONFIG: an option does not
 * take its value, for example because the step has too many nodes.
 */
enum fsdp_status slurm_defaults_apply(struct slurm_defaults *defaults, struct options *options, bool is_job,
                                      struct surroundings *around, struct fsdp_err *err);

#endif
