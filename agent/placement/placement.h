/*
 * Where the workers of this node run: the CPUs of each (--numa-binding), and its number of threads. This is
 * decided once, when the run begins, and stays the same in every generation.
 */
#ifndef AGENT_PLACEMENT_H
#define AGENT_PLACEMENT_H

#include <fsdp/status.h>

#include "agent/config.h"
#include "agent/os/cpu_mask.h"

struct placement {
    struct cpu_mask *cpus; /* (n_workers) CPUs of each worker; NULL: those of this process */
    int threads;           /* threads of each worker, at least 1 */
};

/**
 * Choose CPUs and threads of the workers on this machine. Blocking as gpu_find() if workers are bound;
 * agent/placement/placement_search.h does the same without blocking a loop. Call placement_fini() afterwards,
 * also after an error.
 *   FSDP_ERR_UNSUPPORTED  the binding is impossible or unknown here; the message names the worker and the
 *                         reason
 *   FSDP_ERR_NOMEM        out of memory
 * Thread: any.
 */
enum fsdp_status placement_init(struct placement *placement, const struct agent_config *config,
                                struct fsdp_err *err);
void placement_fini(struct placement *placement);

/** The KIND of --numa-binding, as the user writes it. */
const char *placement_binding(enum agent_numa numa);

/**
 * Threads of a worker that has `own` CPUs, if n_workers share a quota of `quota` CPUs (0: no quota). Pure.
 */
int placement_threads(int own, int quota, int n_workers);

#endif
