/*
 * Inside agent/gpu: one file a vendor. Each finds its devices and cuts them to what the environment allows; false
 * when the machine has nothing of this vendor, and then nothing is said.
 */
#ifndef AGENT_GPU_IMPL_H
#define AGENT_GPU_IMPL_H

#include <stddef.h>

#include "agent/placement/gpu.h"

enum { GPU_PATH_BYTES = 4096 };

bool gpu_nvidia(struct gpu_list *out, const struct gpu_host *host);
bool gpu_amd(struct gpu_list *out, const struct gpu_host *host);
bool gpu_intel(struct gpu_list *out, const struct gpu_host *host);

/** The entries of a directory below the root, sorted; at most `room`; 0 where it is not there. */
int gpu_entries(const struct gpu_host *host, const char *directory, char (*names)[64], int room);

/** The first `size` - 1 bytes of a file below the root; false where it cannot be read. */
bool gpu_read(const struct gpu_host *host, char *out, size_t size, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/** May this process open it for reading and writing? What a control group forbids counts. Nothing is opened. */
bool gpu_may_open(const struct gpu_host *host, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
