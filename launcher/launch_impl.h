/*
 * Shared by the files that make a launch. launch.c fills in what every run needs, and what only jobs or only
 * programs need. The other files:
 *   launch_nodes.c    where nodes meet, and what their workers are told about it
 *   launch_output.c   where the workers' output goes
 *   launch_devices.c  whether there are enough GPUs
 *
 * A function that returns int returns 0, or the exit status of fsdprun with the line for the user in `err`.
 */
#ifndef LAUNCHER_LAUNCH_IMPL_H
#define LAUNCHER_LAUNCH_IMPL_H

#include "launcher/launch.h"

/* How many workers, nodes and restarts: from the job file if there is one, else from the options. */
struct launch_world {
    const char *secret_folder; /* folder that all nodes share, for a secret that the first node makes */
    const char *job_name;      /* NULL: a program */
    int n_workers, n_nodes, min_nodes, max_restarts;
    int64_t restart_window_s; /* 0: none */
};

/** Fills in nodes, endpoint, secret, master address and the times of the rendezvous. */
int launch_set_nodes(struct launch *launch, const struct options *options, const struct launch_world *world,
                     const struct surroundings *around, struct fsdp_err *err);

/**
 * Makes up the run id of a program, a UUID, if the user gave none and torchrun would make one up too. Call it
 * after launch_set_nodes().
 */
int launch_set_run_id(struct launch *launch, const struct options *options, struct fsdp_err *err);

/**
 * Fills in config->output, except for what only jobs or only programs set. With --detach all output goes to
 * files.
 */
int launch_set_output(struct launch *launch, const struct options *options, const struct surroundings *around,
                      struct fsdp_err *err);

/* What the number of this node's GPUs means for a job. */
enum launch_devices {
    LAUNCH_DEVICES_ENOUGH,
    LAUNCH_DEVICES_UNUSED, /* too few, and run.device is auto: the ranks use the CPU */
    LAUNCH_DEVICES_SHARED, /* too few, but with run.collectives=cpu ranks may share a GPU */
    LAUNCH_DEVICES_TOO_FEW /* too few, and NCCL needs a GPU for each rank */
};

/**
 * Judges whether this node has enough GPUs for the ranks of a job.
 *   why    the reason if there are none
 *   words  (size) receives the line for the user; empty if there is nothing to say
 */
enum launch_devices launch_judge_devices(const struct job *job, int n_workers, int n_gpus, const char *why,
                                         char *words, size_t size);

/**
 * Counts the GPUs for a job that may use them, and judges their number. Fails if there are too few. Any other
 * line for the user becomes a note.
 */
int launch_check_devices(struct launch *launch, const struct job *job, const struct surroundings *around,
                         struct fsdp_err *err);

/** Adds a note if a program has more workers than this node has devices. */
void launch_note_few_devices(struct launch *launch, const struct surroundings *around);

/** Returns the value of an environment variable of the user; NULL if it is empty or not set. */
const char *launch_env(const struct surroundings *around, const char *name);

/** Writes the formatted text to `err`. Returns FSDP_EXIT_USAGE. */
int launch_bad_usage(struct fsdp_err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Adds a line for the user. Lines after the first LAUNCH_NOTES_MAX are dropped. */
__attribute__((format(printf, 2, 3))) void launch_note(struct launch *launch, const char *format, ...);

#endif
