/*
 * What `fsdprun doctor` checks on one machine before a run needs it: disk, memory, limits, clock, kernel,
 * CPUs, GPUs, libraries, network, the install itself.
 *
 * Each check is a row of a table: its name, a pure judgement of facts, and advice. The checks of a group
 * share one probe, which collects their facts. A probe may block for ever, as on a file system that does not
 * answer, and may crash, as in a driver's library. So each runs in a process of its own, and all run at once.
 * One that is late or dies is a failure of its group.
 */
#ifndef AGENT_DOCTOR_H
#define AGENT_DOCTOR_H

#include <stdint.h>

#include "agent/doctor/report.h"

/* What doctor_host.run() returns in place of an exit status. */
enum { DOCTOR_RUN_NOT_FOUND = -1, DOCTOR_RUN_LATE = -2 };

/* Where to look. Tests replace what they need. */
struct doctor_host {
    const char *root; /* prefix of /proc, /sys, /dev, /etc and /run; "" is this machine */
    const char *nvml; /* NVML's library, for dlopen(); NULL: the driver's own name */
    const char *(*get_env)(void *arg, const char *name);
    void *arg;
    const char *own_path; /* of the running fsdprun */
    const char *run_dir;  /* it need not exist yet */
    /* nodes of the job; with 1, checks about several nodes only warn, or are left out */
    int n_nodes;
    const char *endpoint; /* host of the rendezvous; NULL: none was given */
    int port;             /* of the rendezvous */
    /*
     * Runs a program and returns what it writes in `out`. Returns its exit status, or one of the two values
     * above.
     */
    int (*run)(const char *const argv[], int64_t timeout_ms, char *out, size_t size);
};

/**
 * Run every check on this machine, and add a row of each to `report`. Takes less than two seconds where
 * nothing is stuck, and a driver does not need longer to begin. Call it while this process has no thread.
 * Returns false if there is no memory for the report.
 */
bool doctor_examine(struct doctor_report *report, const struct doctor_host *host);

/**
 * Write to `out` the absolute path of the nearest existing directory at or above `wanted`, with links
 * resolved. A path longer than `size` is cut.
 */
void doctor_directory(char *out, size_t size, const char *wanted);

#endif
