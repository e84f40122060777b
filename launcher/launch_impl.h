/*
 * Inside the launch. launch.c fills in what every run needs, and what is special to jobs and to programs. Its
 * parts:
 *   launch_nodes.c    where nodes meet, and what their workers are told of it
 *   launch_output.c   what becomes of the workers' output
 *   launch_devices.c  whether there are enough GPUs
 *
 * A function that returns int returns 0, or the exit status of fsdprun, with its line in `err`.
 */
#ifndef LAUNCHER_LAUNCH_IMPL_H
#define LAUNCHER_LAUNCH_IMPL_H

#include "launcher/launch.h"

/* The size of the world: from the job file if there is one, else from the options. */
struct launch_world {
    const char *secret_folder; /* that all nodes share: for a secret that the first of them makes */
    const char *job_name;      /* NULL: a program */
    int n_workers, n_nodes, min_nodes, max_restarts;
    int64_t restart_window_s; /* 0: none */
};

/** Fill in nodes, endpoint, secret, master address and rendezvous times. */
int launch_set_nodes(struct launch *launch, const struct options *options, const struct launch_world *world,
                     const struct surroundings *around, struct fsdp_err *err);

/**
 * Make up a run id, a UUID, for a program: in the cases in which torchrun does so, if none was given. Call it
 * after launch_set_nodes().
 */
int launch_set_run_id(struct launch *launch, const struct options *options, struct fsdp_err *err);

/**
 * Fill in config->output, except what jobs and programs set themselves. With --detach everything goes to
 * files.
 */
int launch_set_output(struct launch *launch, const struct options *options, const struct surroundings *around,
                      struct fsdp_err *err);

/* What it means for a job that this node has so many GPUs. */
enum launch_devices {
    LAUNCH_DEVICES_ENOUGH,
    LAUNCH_DEVICES_UNUSED, /* too few, and the device is left open: the ranks use the CPU */
    LAUNCH_DEVICES_SHARED, /* too few, and ranks may share: they use the CPU's collectives */
    LAUNCH_DEVICES_TOO_FEW /* each rank needs a GPU of its own, as NCCL demands */
};

/**
 * Judge whether this node has GPUs enough for the ranks of a job.
 *   why    the reason where there are none
 *   words  gets the line for the user in `size` bytes; empty where there is nothing to say
 */
enum launch_devices launch_judge_devices(const struct job *job, int n_workers, int n_gpus, const char *why,
                                         char *words, size_t size);

/**
 * Count the GPUs for a job that may use them, and judge. Too few are refused; else the line becomes a note.
 */
int launch_check_devices(struct launch *launch, const struct job *job, const struct surroundings *around,
                         struct fsdp_err *err);

/** Make a note where a program has more workers than this node has devices. */
void launch_note_few_devices(struct launch *launch, const struct surroundings *around);

/** Return a variable of the user's environment; NULL where it is empty or not set. */
const char *launch_env(const struct surroundings *around, const char *name);

/** Put the words into `err`. Returns FSDP_EXIT_USAGE. */
int launch_bad_usage(struct fsdp_err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Add a line for the user. Lines beyond LAUNCH_NOTES_MAX are dropped. */
__attribute__((format(printf, 2, 3))) void launch_note(struct launch *launch, const char *format, ...);

#endif
