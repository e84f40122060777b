/*
 * The child of agent/placement/nvml_watch.h on a loop: what it samples goes into a struct gpu_health, and what is to be said of it
 * to a listener. Nothing here waits for the driver.
 */
#ifndef AGENT_GPU_WATCH_H
#define AGENT_GPU_WATCH_H

#include <uv.h>

#include "agent/placement/gpu_health.h"

struct gpu_watch;

struct gpu_watch_listener {
    void *arg;
    void (*warned)(void *arg, enum gpu_warning warning, const struct gpu_sample *sample, const char *words);
    void (*sampled)(void *arg); /* `health` is new */
};

/** Is there a driver of NVIDIA's, or a stand-in for its library (FSDP_TEST_NVML)? */
bool gpu_watch_possible(void);

/**
 * Start it. `health` is added to and outlives the watch. NULL: it could not be started, which is no reason not to train.
 * Whatever ends the child, its silence included, the watch stays until it is stopped and has nothing more to say.
 */
struct gpu_watch *gpu_watch_start(uv_loop_t *loop, struct gpu_health *health,
                                  const struct gpu_watch_listener *listener);
/** KILL to the child, whose end is reaped with the workers'; no call of the listener comes after. NULL is a no-op. */
void gpu_watch_stop(struct gpu_watch *watch);
/** Rounds of samples since the start; -1: the child has ended, and no more will come. */
int64_t gpu_watch_rounds(const struct gpu_watch *watch);

#endif
