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
int launch_set_output(struct launch *launch, const struct options *options, const struct surroundings *around,
                      struct fsdp_err *err);

/** One more line for the user; those beyond LAUNCH_NOTES_MAX are dropped. */
__attribute__((format(printf, 2, 3))) void launch_note(struct launch *launch, const char *format, ...);

#endif
