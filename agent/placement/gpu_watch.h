/*
 * Watches the process NVML_WATCH (agent/placement/nvml_process.h) on the loop. Its samples go into a struct
 * gpu_health, and warnings to a listener. Nothing here blocks on the driver.
 */
#ifndef AGENT_GPU_WATCH_H
#define AGENT_GPU_WATCH_H

#include <uv.h>

#include "agent/placement/gpu_health.h"

struct gpu_watch;

struct gpu_watch_listener {
    void *arg;
    void (*warned)(void *arg, enum gpu_warning warning, const struct gpu_sample *sample, const char *words);
    void (*sampled)(void *arg); /* `health` has a new sample */
};

/** Is there an NVIDIA driver, or a stand-in for its library (FSDP_TEST_NVML)? */
bool gpu_watch_possible(void);

/**
 * Start the watch. It adds samples to `health`, which must outlive it. NULL: it could not be started;
 * training goes on without. If the child ends or stays silent, the watch exists until gpu_watch_stop(),
 * without new samples.
 */
struct gpu_watch *gpu_watch_start(uv_loop_t *loop, struct gpu_health *health,
                                  const struct gpu_watch_listener *listener);
/**
 * Kill the child, which is reaped with the workers. The listener is not called any more. NULL is a no-op.
 */
void gpu_watch_stop(struct gpu_watch *watch);
/** Complete rounds of samples since the start; -1: the child has ended, and no more will come. */
int64_t gpu_watch_rounds(const struct gpu_watch *watch);

#endif
