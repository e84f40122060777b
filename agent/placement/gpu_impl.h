/*
 * Shared by gpu.c and the files of the vendors (gpu_nvidia.c, gpu_amd.c, gpu_intel.c). Each vendor's function
 * finds its devices, and keeps those that the environment allows. Returns false if the machine has no device
 * of this vendor; `out` is then unchanged.
 */
#ifndef AGENT_GPU_IMPL_H
#define AGENT_GPU_IMPL_H

#include <stddef.h>

#include "agent/placement/gpu.h"

enum { GPU_PATH_BYTES = 4096 };

bool gpu_nvidia(struct gpu_list *out, const struct gpu_host *host);
bool gpu_amd(struct gpu_list *out, const struct gpu_host *host);
bool gpu_intel(struct gpu_list *out, const struct gpu_host *host);

/** Read the first `size` - 1 bytes of a file below the root. False: it cannot be read. */
bool gpu_read(const struct gpu_host *host, char *out, size_t size, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/**
 * May this process open the device file for reading and writing? Permissions and the device rules of its
 * control groups are checked. The device is not opened.
 */
bool gpu_may_open(const struct gpu_host *host, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
