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
/** Ask for samples at once. */
void gpu_watch_ask(struct gpu_watch *watch);
/** Has a sample of every GPU come that was taken after the last gpu_watch_ask(), or since the start? */
bool gpu_watch_answered(const struct gpu_watch *watch);
/** Has the child ended, so that no more samples will come? */
bool gpu_watch_ended(const struct gpu_watch *watch);
/** The child's pid; 0 once it has been reaped. */
pid_t gpu_watch_pid(const struct gpu_watch *watch);
/** A child of this process is about to be reaped: forget its pid, if it is the watch's. NULL is a no-op. */
void gpu_watch_reaped(struct gpu_watch *watch, pid_t pid);

#endif
