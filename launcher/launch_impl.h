/*
 * The parts of launch.c: where nodes meet, what becomes of the output. Each returns 0, or the status fsdprun ends
 * with, its line in `err`.
 */
#ifndef LAUNCHER_LAUNCH_IMPL_H
#define LAUNCHER_LAUNCH_IMPL_H

#include "launcher/launch.h"

/* From the job file where there is one, else from the options. */
struct launch_world {
    int n_workers, n_nodes, min_nodes, max_restarts;
};

int launch_set_nodes(struct launch *launch, const struct options *options, const struct launch_world *world,
                     const struct surroundings *around, struct fsdp_err *err);
/** Make up a run id for a program where torchrun does and none was given: a UUID. After launch_set_nodes(). */
int launch_set_run_id(struct launch *launch, const struct options *options, struct fsdp_err *err);
int launch_set_output(struct launch *launch, const struct options *options, const struct surroundings *around,
                      struct fsdp_err *err);

enum launch_devices {
    LAUNCH_DEVICES_ENOUGH,
    LAUNCH_DEVICES_UNUSED,
    LAUNCH_DEVICES_SHARED,
    LAUNCH_DEVICES_TOO_FEW
};

/**
 * What it means for a job of ours that this node has `n_gpus` GPUs for `n_workers` ranks. A rank on cuda has a GPU to
 * itself, as NCCL demands; through the CPU's collectives ranks may share one; where the device is left open, too few GPUs are not used. `why` says why there is none. `words` is
 * the line for the user, empty where there is nothing to say.
 */
enum launch_devices launch_judge_devices(const struct job *job, int n_workers, int n_gpus, const char *why,
                                         char *words, size_t size);
int launch_check_devices(struct launch *launch, const struct job *job, const struct surroundings *around,
                         struct fsdp_err *err);
void launch_note_few_devices(struct launch *launch, const struct surroundings *around);

/** A variable of the user's; NULL where it is empty. */
const char *launch_env(const struct surroundings *around, const char *name);

/** Leaves the words in `err`. Returns FSDP_EXIT_USAGE. */
int launch_bad_usage(struct fsdp_err *err, const char *words);

/** One more line for the user; those beyond LAUNCH_NOTES_MAX are dropped. */
__attribute__((format(printf, 2, 3))) void launch_note(struct launch *launch, const char *format, ...);

#endif
