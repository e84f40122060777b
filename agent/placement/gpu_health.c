#include "agent/placement/gpu_health.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/*
 * Bits of nvmlClocksThrottleReasons: slowdown by hardware, by heat (in software and in hardware), by the
 * power brake. A power cap is not among them: these GPUs normally run at it.
 */
static const uint64_t harmful = 0x08 | 0x20 | 0x40 | 0x80;

/*
 * Returns what NVIDIA's list says about an XID (an error code of the driver), if that helps a user to act;
 * else "".
 */
static const char *xid_words(int xid)
{
    switch (xid) {
    case 13:
        return ": a program's fault: graphics engine exception";
    case 31:
        return ": a program's fault: memory page fault";
    case 48:
        return ": double bit ECC error";
    case 63:
        return ": a row of its memory is being remapped";
    case 64:
        return ": a row of its memory could not be remapped";
    case 74:
        return ": NVLink error";
    case 79:
        return ": it has fallen off the bus";
    case 94:
        return ": contained memory error";
    case 95:
        return ": uncontained memory error";
    case 119:
    case 120:
        return ": its system processor does not answer";
    default:
        return "";
    }
}

__attribute__((format(printf, 3, 4))) static void
say(char words[GPU_HEALTH_WORDS_BYTES], const struct gpu_sample *sample, const char *format, ...)
{
    const int n = snprintf(words, GPU_HEALTH_WORDS_BYTES, "GPU %d (%.31s): ", sample->index, sample->pci);
    va_list args;

    va_start(args, format);
    vsnprintf(words + n, (size_t)(GPU_HEALTH_WORDS_BYTES - n), format, args);
    va_end(args);
}

static void count(struct gpu_state *gpu, const struct gpu_sample *sample)
{
    const int64_t used = sample->memory_used_bytes;

    gpu->n_samples++;
    gpu->n_throttled += (sample->throttle_reasons & harmful) != 0;
    if (sample->utilisation_percent > 0)
        gpu->utilisation_sum += sample->utilisation_percent;
    if (used < 0)
        return;
    if (gpu->least_used_bytes < 0 || used < gpu->least_used_bytes)
        gpu->least_used_bytes = used;
    if (used > gpu->most_used_bytes)
        gpu->most_used_bytes = used;
}

enum gpu_warning gpu_health_take(struct gpu_health *health, const struct gpu_sample *sample,
                                 char words[GPU_HEALTH_WORDS_BYTES])
{
    struct gpu_state *gpu;
    struct gpu_sample before;
    bool first;

    words[0] = '\0';
    if (sample->index < 0 || sample->index >= GPU_HEALTH_MAX)
        return GPU_FINE;
    gpu = &health->gpus[sample->index];
    if (sample->xid != 0) {
        gpu->n_xids++;
        gpu->last_xid = sample->xid;
        say(words, sample, "XID %d%s", sample->xid, xid_words(sample->xid));
        return GPU_XID;
    }
    if (sample->index >= health->n)
        health->n = sample->index + 1;
    first = !gpu->seen;
    before = gpu->last;
    if (first)
        gpu->least_used_bytes = gpu->most_used_bytes = -1;
    gpu->seen = true;
    gpu->last = *sample;
    count(gpu, sample);
    if (!first && before.ecc_uncorrected >= 0 && sample->ecc_uncorrected > before.ecc_uncorrected) {
        say(words, sample, "%" PRId64 " more uncorrected ECC errors",
            sample->ecc_uncorrected - before.ecc_uncorrected);
        return GPU_ECC;
    }
    if ((sample->throttle_reasons & harmful) != 0 && (first || (before.throttle_reasons & harmful) == 0)) {
        say(words, sample, "slowed down (reasons 0x%" PRIx64 ") at %d C", sample->throttle_reasons,
            sample->temperature_c);
        return GPU_THROTTLED;
    }
    return GPU_FINE;
}

bool gpu_health_memory_held(const struct gpu_health *health, int64_t margin_bytes)
{
    for (int i = 0; i < health->n; i++) {
        const struct gpu_state *gpu = &health->gpus[i];

        if (gpu->seen && gpu->last.memory_used_bytes >= 0 &&
            gpu->last.memory_used_bytes > gpu->least_used_bytes + margin_bytes)
            return true;
    }
    return false;
}

static void show(const struct gpu_state *gpu, struct fsdp_progress_gpu *page)
{
    const struct gpu_sample *last = &gpu->last;

    atomic_store_explicit(&page->n_xids, (uint32_t)gpu->n_xids, memory_order_relaxed);
    atomic_store_explicit(&page->last_xid, (uint32_t)gpu->last_xid, memory_order_relaxed);
    atomic_store_explicit(&page->utilisation_percent, last->utilisation_percent, memory_order_relaxed);
    atomic_store_explicit(&page->temperature_c, last->temperature_c, memory_order_relaxed);
    atomic_store_explicit(&page->memory_used_bytes, last->memory_used_bytes, memory_order_relaxed);
    atomic_store_explicit(&page->memory_total_bytes, last->memory_total_bytes, memory_order_relaxed);
    atomic_store_explicit(&page->ecc_uncorrected, last->ecc_uncorrected, memory_order_relaxed);
    atomic_store_explicit(&page->throttle_reasons, last->throttle_reasons, memory_order_relaxed);
    atomic_store_explicit(&page->n_samples, (uint64_t)gpu->n_samples, memory_order_release);
}

void gpu_health_show(const struct gpu_health *health, struct fsdp_progress *page)
{
    if (atomic_load_explicit(&page->gpu.named, memory_order_acquire) != 1)
        return;
    for (int i = 0; i < health->n; i++)
        if (health->gpus[i].seen && strncmp(page->gpu.id, health->gpus[i].last.pci, FSDP_GPU_ID_BYTES) == 0)
            show(&health->gpus[i], &page->gpu);
}

const char *gpu_warning_name(enum gpu_warning warning)
{
    return warning == GPU_XID         ? "xid"
           : warning == GPU_ECC       ? "ecc"
           : warning == GPU_THROTTLED ? "throttle"
                                      : "";
}
