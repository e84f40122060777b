/*
 * The GPUs that a worker of this node would see, counted without a library of CUDA, ROCm or oneAPI: from what the
 * drivers leave under /proc, /dev and /sys, cut to what CUDA_VISIBLE_DEVICES and its like allow. NVML
 * (agent/placement/nvml.h) is asked only where files do not say enough.
 *
 * A device counts when this process may open its node under /dev: a container or a batch system often shows the files
 * of more GPUs than it grants.
 *
 * NVIDIA GPUs are in PCI order, as CUDA_DEVICE_ORDER=PCI_BUS_ID numbers them; where all are alike, so does CUDA.
 */
#ifndef AGENT_GPU_H
#define AGENT_GPU_H

#include <stdbool.h>

enum { GPU_MAX = 128, GPU_PCI_BYTES = 24, GPU_WORDS_BYTES = 320 };

enum gpu_want {
    GPU_WANT_ANY,  /* NVIDIA's, else AMD's, else Intel's */
    GPU_WANT_GPU,  /* NVIDIA's, else AMD's: what PyTorch calls cuda */
    GPU_WANT_CUDA, /* NVIDIA's: what CUDA runs on */
    GPU_WANT_XPU,  /* Intel's */
};

/* Where to look. */
struct gpu_host {
    const char *root; /* put before /proc, /dev and /sys; "" is this machine */
    const char *nvml; /* the library, as dlopen() takes it; NULL: the driver's own name */
    const char *(*get_env)(void *arg, const char *name); /* NULL for what is not set */
    void *arg;
    bool one_each; /* each worker is given one entry of the list (--virtual-local-rank), so that each may be a
                      MIG device; without it a process sees only the first of those, as under CUDA */
};

struct gpu {
    char pci[GPU_PCI_BYTES]; /* "0000:3b:00.0", of the whole GPU for a MIG device; "": not known */
};

struct gpu_list {
    int n;
    struct gpu gpus[GPU_MAX];  /* as the workers number them */
    bool unknown;              /* there are some, and which of them are seen could not be found out: n is 0 */
    char why[GPU_WORDS_BYTES]; /* why there is none, or why fewer than a list names; "": nothing to say */
};

/** This machine, with what FSDP_TEST_ROOT and FSDP_TEST_NVML name in its place (tests). */
void gpu_host_init(struct gpu_host *host, const char *(*get_env)(void *arg, const char *name), void *arg);

/**
 * Look. Never fails: what cannot be found out is no GPU, and `out->why` says what stood in the way in one clause
 * that can follow "no GPU: ". NVML is asked in a process of its own (agent/placement/nvml.h), and waited for.
 */
void gpu_find(struct gpu_list *out, enum gpu_want want, const struct gpu_host *host);

#endif
