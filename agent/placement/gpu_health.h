/*
 * Warnings about the GPUs of a node, from samples of NVML. Pure: a step from one sample to the next.
 *
 * A GPU is healthy until a sample says otherwise. There is one warning for each XID (an error code of the
 * driver), and one each time the count of uncorrected ECC errors grows. There is also one each time
 * throttling by heat or power brake begins. Values that NVML does not know give no warning.
 */
#ifndef AGENT_GPU_HEALTH_H
#define AGENT_GPU_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#include <fsdp/link.h>

enum { GPU_HEALTH_MAX = 64, GPU_HEALTH_PCI_BYTES = FSDP_GPU_ID_BYTES, GPU_HEALTH_WORDS_BYTES = 160 };

/* The state of one GPU at one moment; or one XID (error code of the driver) that the GPU reported. */
struct gpu_sample {
    int index; /* NVML's index: all GPUs of the node in PCI order */
    /* 0: this is a sample; else the number of an XID, and only index and pci are set too */
    int xid;
    bool ends_round;         /* the last sample of a round; a round has one sample of every GPU */
    uint32_t n_asked;        /* how often the watcher had been asked when the round began */
    int utilisation_percent; /* -1: not known */
    int memory_percent; /* percentage of the time in which its memory was read or written; -1: not known */
    int temperature_c;  /* -1: not known */
    int64_t memory_used_bytes;      /* -1: not known */
    int64_t memory_total_bytes;     /* -1: not known */
    int64_t ecc_uncorrected;        /* since the driver was loaded; -1: not known */
    uint64_t throttle_reasons;      /* NVML's bits */
    int persistence;                /* 1: the driver stays loaded without a process; -1: not known */
    char pci[GPU_HEALTH_PCI_BYTES]; /* "0000:3b:00.0" */
};

/* What the samples of one GPU have shown since the run began. */
struct gpu_state {
    bool seen;
    struct gpu_sample last;
    int64_t least_used_bytes, most_used_bytes; /* -1: not known */
    int64_t utilisation_sum;
    int64_t n_samples, n_throttled, n_xids;
    int last_xid; /* 0: there was none */
};

struct gpu_health {
    struct gpu_state gpus[GPU_HEALTH_MAX];
    int n; /* the highest index seen, plus 1 */
};

enum gpu_warning { GPU_FINE, GPU_XID, GPU_ECC, GPU_THROTTLED };

/**
 * Take a sample. Returns the warning that it causes, with its text in `words` ("GPU 3 (0000:3b:00.0): XID 79:
 * it has fallen off the bus"), or GPU_FINE and "". A sample with an index out of range is dropped.
 */
enum gpu_warning gpu_health_take(struct gpu_health *health, const struct gpu_sample *sample,
                                 char words[GPU_HEALTH_WORDS_BYTES]);

/**
 * Do the last samples say that memory of a GPU is still in use? That is the case if it exceeds the least use
 * seen in this run by more than `margin_bytes`. False if no GPU's memory is known.
 */
bool gpu_health_memory_held(const struct gpu_health *health, int64_t margin_bytes);

/**
 * Store the last sample of a worker's GPU on its progress page. Does nothing if the worker named no GPU, or
 * one without samples.
 */
void gpu_health_show(const struct gpu_health *health, struct fsdp_progress *page);

/** The warning's name in events: "xid", "ecc" or "throttle". */
const char *gpu_warning_name(enum gpu_warning warning);

#endif
