/*
 * NVML, NVIDIA's management library, which comes with the driver. It gives the names of GPUs and MIG devices
 * that CUDA_VISIBLE_DEVICES may contain. It is opened by dlopen() with prototypes of our own, so the build
 * needs nothing of NVIDIA's.
 */
#ifndef AGENT_NVML_H
#define AGENT_NVML_H

#include <fsdp/status.h>

enum { NVML_MAX = 256, NVML_UUID_BYTES = 96, NVML_PCI_BYTES = 32 };

struct nvml_device {
    char uuid[NVML_UUID_BYTES];
    char pci[NVML_PCI_BYTES]; /* "0000:3b:00.0", lower case */
    int parent;               /* for a MIG device the index of its GPU in this list; for a GPU -1 */
};

struct nvml_list {
    int n;
    /* the GPUs in PCI order, then their MIG devices; more than NVML_MAX are left out */
    struct nvml_device devices[NVML_MAX];
};

/**
 * List all GPUs and MIG devices.
 *   library  for dlopen(); NULL: the driver's own name
 *
 * The library runs in a process of its own (agent/placement/nvml_process.h). A driver that hangs or crashes
 * does not affect us, and leaves no memory or thread here. Blocking, for at most 30 s. After an error out->n
 * is 0.
 *   FSDP_ERR_UNSUPPORTED  there is no library, or it lacks a function
 *   FSDP_ERR_IO           it refused, crashed, or did not answer in time
 * Thread: any.
 */
enum fsdp_status nvml_ask(const char *library, struct nvml_list *out, struct fsdp_err *err);

#endif
