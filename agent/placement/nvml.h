/*
 * NVIDIA's management library, which comes with the driver: the names by which CUDA_VISIBLE_DEVICES may call GPUs and
 * their MIG devices. Opened by dlopen() with prototypes of our own, so that nothing of NVIDIA's is needed to build.
 */
#ifndef AGENT_NVML_H
#define AGENT_NVML_H

#include <fsdp/status.h>

enum { NVML_MAX = 256, NVML_UUID_BYTES = 96, NVML_PCI_BYTES = 32 };

struct nvml_device {
    char uuid[NVML_UUID_BYTES];
    char pci[NVML_PCI_BYTES]; /* "0000:3b:00.0", lower case */
    int parent;               /* a MIG device: the index of its GPU among those of this list; a GPU: -1 */
};

struct nvml_list {
    int n;
    struct nvml_device
        devices[NVML_MAX]; /* the GPUs in PCI order, then their MIG devices; what is beyond is left out */
};

/**
 * Ask for all of them.
 *   library  as dlopen() takes it; NULL: the driver's own name
 *
 * The library runs in a process of its own (agent/placement/nvml_process.h): a driver that hangs or crashes cannot take us with it, and
 * no memory or thread of it is left here. Bounded by 30 s.
 *   FSDP_ERR_UNSUPPORTED  no library, or one without what is asked of it
 *   FSDP_ERR_IO           it refused, crashed, or gave no answer in time
 * out->n is 0 then. Thread: any.
 */
enum fsdp_status nvml_ask(const char *library, struct nvml_list *out, struct fsdp_err *err);

#endif
