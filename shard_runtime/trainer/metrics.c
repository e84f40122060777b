#include "shard_runtime/trainer/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <fsdp/link.h>

#include "shard_runtime/core/beneath.h"
#include "shard_runtime/core/lines.h"

enum { NUMBER_BYTES = 32, GPU_BYTES = 320, HOST_BYTES = 40 };

static const char *number(char out[NUMBER_BYTES], double value, const char *format)
{
    if (isfinite(value))
        snprintf(out, NUMBER_BYTES, format, value);
    else
        memcpy(out, "null", sizeof "null");
    return out;
}

struct metrics_gpu metrics_read_gpu(const struct fsdp_progress *page)
{
    const struct fsdp_progress_gpu *gpu = &page->gpu;

    if (atomic_load_explicit(&gpu->n_samples, memory_order_acquire) == 0)
        return (struct metrics_gpu){ 0 };
    return (struct metrics_gpu){
        .known = true,
        .memory_bytes = atomic_load_explicit(&gpu->memory_used_bytes, memory_order_relaxed),
        .ecc_uncorrected = atomic_load_explicit(&gpu->ecc_uncorrected, memory_order_relaxed),
        .xids = atomic_load_explicit(&gpu->n_xids, memory_order_relaxed),
        .utilisation_percent = atomic_load_explicit(&gpu->utilisation_percent, memory_order_relaxed),
        .temperature_c = atomic_load_explicit(&gpu->temperature_c, memory_order_relaxed),
        .throttle_reasons = atomic_load_explicit(&gpu->throttle_reasons, memory_order_relaxed),
    };
}

static const char *count(char out[NUMBER_BYTES], int64_t value)
{
    if (value >= 0)
        snprintf(out, NUMBER_BYTES, "%" PRId64, value);
    else
        memcpy(out, "null", sizeof "null");
    return out;
}

/* Nothing, or what follows memory_bytes. */
static const char *format_gpu(char out[GPU_BYTES], const struct metrics_gpu *gpu)
{
    char memory[NUMBER_BYTES], busy[NUMBER_BYTES], heat[NUMBER_BYTES], ecc[NUMBER_BYTES], xids[NUMBER_BYTES];

    out[0] = '\0';
    if (gpu->known)
        snprintf(out, GPU_BYTES,
                 "\"gpu_memory_bytes\": %s, \"gpu_utilisation_percent\": %s, \"gpu_temperature_c\": %s, "
                 "\"gpu_ecc_uncorrected\": %s, \"gpu_xids\": %s, \"gpu_throttle_reasons\": %" PRIu64 ", ",
                 count(memory, gpu->memory_bytes), count(busy, gpu->utilisation_percent),
                 count(heat, gpu->temperature_c), count(ecc, gpu->ecc_uncorrected), count(xids, gpu->xids),
                 gpu->throttle_reasons);
    return out;
}

static const char *format_host(char out[HOST_BYTES], double host_s)
{
    out[0] = '\0';
    if (host_s > 0)
        snprintf(out, HOST_BYTES, "\"host_s\": %.9g, ", host_s);
    return out;
}

size_t metrics_format(char out[METRICS_LINE_BYTES], const struct metrics_record *record)
{
    char loss[NUMBER_BYTES], norm[NUMBER_BYTES], lr[NUMBER_BYTES], rate[NUMBER_BYTES], step_s[NUMBER_BYTES];
    char time[NUMBER_BYTES], gpu[GPU_BYTES], host[HOST_BYTES];
    const int length = snprintf(
        out, METRICS_LINE_BYTES,
        "{\"step\": %" PRIu64
        ", \"loss\": %s, \"grad_norm\": %s, \"lr\": %s, \"tokens_per_s\": %s, \"step_s\": %s, "
        "%s\"memory_bytes\": %" PRIu64 ", %s\"generation\": %d, \"time\": %s}\n",
        record->step, number(loss, record->loss, "%.9g"), number(norm, record->grad_norm, "%.9g"),
        number(lr, record->lr, "%.9g"), number(rate, record->tokens_per_s, "%.9g"),
        number(step_s, record->step_s, "%.9g"), format_host(host, record->host_s), record->memory_bytes,
        format_gpu(gpu, &record->gpu), record->generation, number(time, record->time, "%.6f"));

    return (size_t)length; /* sixteen numbers of bounded length: it always fits */
}

enum fsdp_status metrics_open(struct metrics *metrics, const char *run_dir, struct fsdp_err *err)
{
    enum fsdp_status status;
    int folder = -1;

    *metrics = (struct metrics){ .fd = -1 };
    status = beneath_open_root(&folder, run_dir, err);
    if (status != FSDP_OK)
        return status;
    status = beneath_open_record(&metrics->fd, folder, "metrics.jsonl", err);
    if (status == FSDP_ERR_IO && (errno == ENOSPC || errno == EDQUOT)) {
        status = FSDP_OK;
        fsdp_err_clear(err);
    } else if (status == FSDP_OK && !lines_drop_half(metrics->fd, METRICS_LINE_BYTES)) {
        status = fsdp_fail(err, FSDP_ERR_IO, "metrics.jsonl: %s", strerror(errno));
        metrics_close(metrics);
    }
    if (status != FSDP_OK)
        fsdp_wrap(err, "run directory %s", run_dir);
    (void)close(folder);
    return status;
}

enum fsdp_status metrics_write(struct metrics *metrics, const struct metrics_record *record,
                               struct fsdp_err *err)
{
    char line[METRICS_LINE_BYTES];
    const size_t length = metrics_format(line, record);
    int error = ENOSPC; /* of a file that could not be created, and of a line that was cut short */
    ssize_t n = -1;

    if (metrics->torn)
        metrics->torn = !lines_drop_half(metrics->fd, METRICS_LINE_BYTES);
    if (metrics->fd >= 0 && !metrics->torn) {
        do
            n = write(metrics->fd, line, length);
        while (n < 0 && errno == EINTR);
        if (n < 0)
            error = errno;
    }
    if (n == (ssize_t)length)
        return FSDP_OK;
    metrics->n_lost++;
    if (n > 0)
        metrics->torn = !lines_drop_half(metrics->fd, METRICS_LINE_BYTES);
    return fsdp_fail(err, FSDP_ERR_IO, "writing metrics.jsonl: %s", strerror(error));
}

void metrics_close(struct metrics *metrics)
{
    if (metrics->fd >= 0)
        (void)close(metrics->fd);
    metrics->fd = -1;
}
