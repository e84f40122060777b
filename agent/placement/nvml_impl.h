/*
 * The library itself: what agent/placement/nvml.c and agent/placement/nvml_watch.c share. As its documented interface says. What is said here happens
 * in a process of NVML's own (agent/placement/nvml_process.h).
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
    /* Not in drivers from before there was MIG. */
    int (*mig_mode)(void *, unsigned *, unsigned *);
    int (*max_migs)(void *, unsigned *);
    int (*mig)(void *, unsigned, void **);
};

enum fsdp_status nvml_open(struct nvml *nvml, const char *name, struct fsdp_err *err);
/** Of any type: to be cast to its own. NULL where it is not there. */
typedef void nvml_function(void);
nvml_function *nvml_look_up(void *library, const char *name);
/** The two roles of that process: answer on standard output, and return its exit status. */
int nvml_ask_here(const char *library);
int nvml_watch_here(const char *library);
/** "00000000:3B:00.0" as the kernel writes it: four digits of domain, lower case. */
void nvml_kernel_name(const struct nvml_pci_info *info, char out[NVML_PCI_BYTES]);

#endif
