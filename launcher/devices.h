/*
 * Counts the devices that the workers of this node would see (agent/placement/gpu.h). The count is the value
 * of --nproc-per-node gpu, xpu and auto. It also shows whether a job has enough GPUs.
 */
#ifndef LAUNCHER_DEVICES_H
#define LAUNCHER_DEVICES_H

#include <stdbool.h>
#include <stddef.h>

/** Counts devices, as described at count_devices of struct options_input. `arg` is not used. */
int devices_count(void *arg, const char *word, bool one_each, char *why, size_t why_bytes);

#endif
