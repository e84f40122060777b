/*
 * The GPUs that a worker of this node would see. They are counted without a library of CUDA, ROCm or oneAPI.
 * The sources are the drivers' files under /proc, /dev and /sys. Of the GPUs found there, only those count
 * that CUDA_VISIBLE_DEVICES and similar variables name. NVML (agent/placement/nvml.h) is asked only if the
 * files do not say enough.
 *
 * A device counts if this process may open its node under /dev. A container or a batch system often shows
 * files of more GPUs than it grants.
 *
 * NVIDIA GPUs are in PCI order (CUDA_DEVICE_ORDER=PCI_BUS_ID). If all GPUs are alike, CUDA's own order is the
 * same.
 */
#ifndef AGENT_GPU_H
#define AGENT_GPU_H

#include <stdbool.h>

enum { GPU_MAX = 128, GPU_NUMBERS = 2 * GPU_MAX, GPU_PCI_BYTES = 24, GPU_WORDS_BYTES = 320 };

enum gpu_want {
    GPU_WANT_ANY,  /* the job's GPUs are NVIDIA's; without any, AMD's; without any of those, Intel's */
    GPU_WANT_GPU,  /* the job's GPUs are NVIDIA's; without any, AMD's: PyTorch calls both cuda */
    GPU_WANT_CUDA, /* NVIDIA's only */
    GPU_WANT_XPU,  /* Intel's only */
};

/* Where to look. */
struct gpu_host {
    const char *root; /* prefix of /proc, /dev and /sys; "" is this machine */
    const char *nvml; /* NVML's library, for dlopen(); NULL: the driver's own name */
    const char *(*get_env)(void *arg, const char *name); /* returns NULL for a variable that is not set */
    void *arg;
    /*
     * One worker gets one entry of the list (--virtual-local-rank), and each entry may be a MIG device (a
     * part of a GPU). Without this, a process sees only the first MIG device of the list, as CUDA does.
     */
    bool one_each;
};

struct gpu {
    char pci[GPU_PCI_BYTES]; /* "0000:3b:00.0"; for a MIG device the address of its GPU; "": not known */
    /*
     * NVIDIA only: the GPU's place in PCI order, whatever CUDA_VISIBLE_DEVICES is. So all processes that may
     * open the same GPUs agree on it. For a MIG device: GPU_MAX plus its place among the MIG devices.
     */
    int number;
};

struct gpu_list {
    int n;
    struct gpu gpus[GPU_MAX];  /* in the order of the numbers that they have in a worker */
    bool unknown;              /* there are GPUs, but it is not known which of them workers see; n is 0 */
    char why[GPU_WORDS_BYTES]; /* why there is none, or fewer than a list names; else "" */
};

/** This machine. Tests replace it by FSDP_TEST_ROOT and FSDP_TEST_NVML. */
void gpu_host_init(struct gpu_host *host, const char *(*get_env)(void *arg, const char *name), void *arg);

/**
 * Find the GPUs. Never fails: if they cannot be found, there is none, and `out->why` gives the reason as a
 * clause that can follow "no GPU: ". Blocking while NVML answers, which runs in a process of its own
 * (agent/placement/nvml.h).
 */
void gpu_find(struct gpu_list *out, enum gpu_want want, const struct gpu_host *host);

#endif
