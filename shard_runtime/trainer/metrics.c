#include "shard_runtime/trainer/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include <fsdp/link.h>

#include "shard_runtime/core/beneath.h"
#include "shard_runtime/core/json.h"
#include "shard_runtime/core/lines.h"
#include "shard_runtime/core/require.h"

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

/* Writes a number of the GPU; a negative one is not known and becomes null. */
static void put_count(struct json_text *line, const char *key, int64_t value)
{
    json_field(line, key, value >= 0 ? "%" PRId64 : "null", value);
}

static void put_gpu(struct json_text *line, const struct metrics_gpu *gpu)
{
    put_count(line, "gpu_memory_bytes", gpu->memory_bytes);
    put_count(line, "gpu_utilisation_percent", gpu->utilisation_percent);
    put_count(line, "gpu_temperature_c", gpu->temperature_c);
    put_count(line, "gpu_ecc_uncorrected", gpu->ecc_uncorrected);
    put_count(line, "gpu_xids", gpu->xids);
    json_field(line, "gpu_throttle_reasons", "%" PRIu64, gpu->throttle_reasons);
}

size_t metrics_format(char out[METRICS_LINE_BYTES], const struct metrics_record *record)
{
    struct json_text line = json_text_fixed(out, METRICS_LINE_BYTES);

    json_open(&line, NULL, '{');
    json_field(&line, "step", "%" PRIu64, record->step);
    json_field_real(&line, "loss", "%.9g", record->loss);
    json_field_real(&line, "grad_norm", "%.9g", record->grad_norm);
    json_field_real(&line, "lr", "%.9g", record->lr);
    json_field_real(&line, "tokens_per_s", "%.9g", record->tokens_per_s);
    json_field_real(&line, "step_s", "%.9g", record->step_s);
    if (record->host_s > 0)
        json_field_real(&line, "host_s", "%.9g", record->host_s);
    json_field(&line, "memory_bytes", "%" PRIu64, record->memory_bytes);
    if (record->gpu.known)
        put_gpu(&line, &record->gpu);
    json_field(&line, "generation", "%d", record->generation);
    if (record->term > 0)
        json_field(&line, "term", "%" PRIu64, record->term);
    json_field_real(&line, "time", "%.6f", record->time);
    json_add(&line, "}\n");
    return line.length; /* the line always fits: at most seventeen numbers of bounded length */
}

enum fsdp_status metrics_open(struct metrics *metrics, const char *run_dir, struct fsdp_err *err)
{
    enum fsdp_status status;
    int folder = -1;

    *metrics = (struct metrics){ .fd = -1 };
    OK_OR_RETURN(beneath_open_root(&folder, run_dir, err));
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
    const int error = lines_write(metrics->fd, line, length, METRICS_LINE_BYTES, &metrics->torn);

    if (error == 0)
        return FSDP_OK;
    metrics->n_lost++;
    return fsdp_fail(err, FSDP_ERR_IO, "writing metrics.jsonl: %s", strerror(error));
}

void metrics_close(struct metrics *metrics)
{
    if (metrics->fd >= 0)
        (void)close(metrics->fd);
    metrics->fd = -1;
}
