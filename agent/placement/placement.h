/*
 * Where the workers of this node run: which CPUs each is bound to (--numa-binding) and with how many threads. Found out
 * once, when the run begins, and the same in every generation.
 */
#ifndef AGENT_PLACEMENT_H
#define AGENT_PLACEMENT_H

#include <fsdp/status.h>

#include "agent/config.h"
#include "agent/os/cpu_mask.h"

struct placement {
    struct cpu_mask *cpus; /* (n_workers); NULL: they run where this process does */
    int threads;           /* of each worker, at least 1 */
};

/**
 * Look at the machine, for as long as gpu_find() takes where workers are bound (agent/placement/placement_search.h does it beside a
 * loop). To be given back with placement_fini(), on failure too.
 *   FSDP_ERR_UNSUPPORTED  it has no such binding, or does not tell; the words say for which worker, and why
 *   FSDP_ERR_NOMEM
 * Thread: as gpu_find().
 */
enum fsdp_status placement_init(struct placement *placement, const struct agent_config *config,
                                struct fsdp_err *err);
void placement_fini(struct placement *placement);

/** The KIND of --numa-binding. */
const char *placement_binding(enum agent_numa numa);

/** Threads of a worker that has `own` CPUs, where n_workers share a quota of so many (0: there is none). Pure. */
int placement_threads(int own, int quota, int n_workers);

#endif
