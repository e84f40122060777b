/*
 * NVML sampled for as long as a generation lives, in a process of its own (agent/placement/nvml_process.h): its calls may block for
 * seconds, or for good, and no loop and no memory of ours is to wait for them.
 */
#ifndef AGENT_NVML_WATCH_H
#define AGENT_NVML_WATCH_H

#include <sys/types.h>

#include <fsdp/status.h>

#include "agent/placement/gpu_health.h"

/**
 * Start it. *fd gives struct gpu_sample after struct gpu_sample, each written at once: of every GPU now, each
 * 250 ms for ten seconds, then each 5 s, and an XID when it comes. It ends where NVML cannot be had or refuses. It
 * dies with this process; its end is the caller's to reap, and *fd to close.
 *   library  as dlopen() takes it; NULL: the driver's own name
 * Thread: any.
 */
enum fsdp_status nvml_watch_start(const char *library, pid_t *pid, int *fd, struct fsdp_err *err);

#endif
