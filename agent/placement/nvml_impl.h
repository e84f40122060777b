/*
 * The library's functions, by its documented interface. Shared by nvml.c (lists devices) and nvml_watch.c
 * (samples them). They are called only in NVML's own process (agent/placement/nvml_process.h).
 */
#ifndef AGENT_NVML_IMPL_H
#define AGENT_NVML_IMPL_H

#include "agent/placement/nvml.h"

enum { NVML_SUCCESS = 0 };

struct nvml_pci_info { /* nvmlPciInfo_t of nvmlDeviceGetPciInfo_v3 */
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};

struct nvml {
    void *library;
    int (*init)(void);
    const char *(*words)(int);
    int (*count)(unsigned *);
    int (*handle)(unsigned, void **);
    int (*uuid)(void *, char *, unsigned);
    int (*pci)(void *, struct nvml_pci_info *);
    /* mig_mode is NULL if the driver does not know MIG. */
    int (*mig_mode)(void *, unsigned *, unsigned *);
    int (*max_migs)(void *, unsigned *);
    int (*mig)(void *, unsigned, void **);
};

enum fsdp_status nvml_open(struct nvml *nvml, const char *name, struct fsdp_err *err);
/** The two roles of that process. Both write to standard output, and return its exit status. */
int nvml_ask_here(const char *library);
int nvml_watch_here(const char *library);
/** Turn "00000000:3B:00.0" into the kernel's form: four digits of domain, lower case. */
void nvml_kernel_name(const struct nvml_pci_info *info, char out[NVML_PCI_BYTES]);

#endif
