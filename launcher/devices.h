/*
 * How many devices the workers of this node would see (agent/placement/gpu.h). It is used for
 * --nproc-per-node gpu, xpu and auto, and to check whether a job has enough GPUs.
 */
#ifndef LAUNCHER_DEVICES_H
#define LAUNCHER_DEVICES_H

#include <stdbool.h>
#include <stddef.h>

/** Count devices, as struct options_input describes it for its count_devices. `arg` is not used. */
int devices_count(void *arg, const char *word, bool one_each, char *why, size_t why_bytes);

#endif
