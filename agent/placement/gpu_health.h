/*
 * What is to be said of the GPUs of a node, from samples of NVML: a step from one sample to the next, pure.
 *
 * A GPU is healthy until a sample says otherwise. Said once: an XID (each one), ECC errors that could not be corrected
 * (when their count grows), throttling by heat or power brake (when it begins). What NVML cannot say of a GPU is not
 * judged.
 */
#ifndef AGENT_GPU_HEALTH_H
#define AGENT_GPU_HEALTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/link.h>

enum { GPU_HEALTH_MAX = 64, GPU_HEALTH_PCI_BYTES = FSDP_GPU_ID_BYTES, GPU_HEALTH_WORDS_BYTES = 160 };

/* One GPU at one moment, or one XID of it. */
struct gpu_sample {
    int index;                      /* NVML's: all GPUs of the node in PCI order */
    int xid;                        /* not 0: an XID, and nothing below but pci counts */
    int utilisation_percent;        /* -1: not known */
    int temperature_c;              /* -1: not known */
    int64_t memory_used_bytes;      /* -1: not known */
    int64_t memory_total_bytes;     /* -1: not known */
    int64_t ecc_uncorrected;        /* since the driver was loaded; -1: not known */
    uint64_t throttle_reasons;      /* NVML's bits */
    char pci[GPU_HEALTH_PCI_BYTES]; /* "0000:3b:00.0" */
};

/* What was seen of one GPU in this run. */
struct gpu_state {
    bool seen;
    struct gpu_sample last;
    int64_t least_used_bytes, most_used_bytes; /* -1: not known */
    int64_t utilisation_sum;
    int64_t n_samples, n_throttled, n_xids;
    int last_xid; /* 0: none came */
};

struct gpu_health {
    struct gpu_state gpus[GPU_HEALTH_MAX];
    int n; /* the highest index seen, and one */
};

enum gpu_warning { GPU_FINE, GPU_XID, GPU_ECC, GPU_THROTTLED };

/**
 * Take a sample. What is to be said of it now, in `words` ("GPU 3 (0000:3b:00.0): XID 79: it has fallen off the bus");
 * GPU_FINE and "" where nothing is. A sample of an index out of range is dropped.
 */
enum gpu_warning gpu_health_take(struct gpu_health *health, const struct gpu_sample *sample,
                                 char words[GPU_HEALTH_WORDS_BYTES]);

/**
 * Is some GPU's memory still held, by the last samples? `margin_bytes` more than the least that was ever seen in use on
 * it in this run counts as held. False where nothing is known.
 */
bool gpu_health_memory_held(const struct gpu_health *health, int64_t margin_bytes);

/** Store on a worker's page what is known of the GPU that it named; nothing where it named none, or none that was seen. */
void gpu_health_show(const struct gpu_health *health, struct fsdp_progress *page);

/** "xid", "ecc", "throttle" */
const char *gpu_warning_name(enum gpu_warning warning);

#endif
