/*
 * --nproc-per-node gpu, xpu and auto: how many devices the workers of this node would see (agent/placement/gpu.h).
 */
#ifndef LAUNCHER_DEVICES_H
#define LAUNCHER_DEVICES_H

#include <stdbool.h>
#include <stddef.h>

/** As options_input.count_devices; `arg` is not looked at. */
int devices_count(void *arg, const char *word, bool one_each, char *why, size_t why_bytes);

#endif
