#include "shard_runtime/trainer/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/core/lines.h"

enum { NUMBER_BYTES = 32 };

static const char *number(char out[NUMBER_BYTES], double value, const char *format)
{
    if (isfinite(value))
        snprintf(out, NUMBER_BYTES, format, value);
    else
        memcpy(out, "null", sizeof "null");
    return out;
}

size_t metrics_format(char out[METRICS_LINE_BYTES], const struct metrics_record *record)
{
    char loss[NUMBER_BYTES], norm[NUMBER_BYTES], lr[NUMBER_BYTES], rate[NUMBER_BYTES], step_s[NUMBER_BYTES];
    char time[NUMBER_BYTES];
    const int length =
        snprintf(out, METRICS_LINE_BYTES,
                 "{\"step\": %" PRIu64
                 ", \"loss\": %s, \"grad_norm\": %s, \"lr\": %s, \"tokens_per_s\": %s, \"step_s\": %s, "
                 "\"memory_bytes\": %" PRIu64 ", \"generation\": %d, \"time\": %s}\n",
                 record->step, number(loss, record->loss, "%.9g"), number(norm, record->grad_norm, "%.9g"),
                 number(lr, record->lr, "%.9g"), number(rate, record->tokens_per_s, "%.9g"),
                 number(step_s, record->step_s, "%.9g"), record->memory_bytes, record->generation,
                 number(time, record->time, "%.6f"));

    return (size_t)length; /* nine numbers of bounded length: it always fits */
}

enum fsdp_status metrics_open(int *fd, const char *run_dir, struct fsdp_err *err)
{
    char path[4096 + sizeof "/metrics.jsonl"];

    snprintf(path, sizeof path, "%s/metrics.jsonl", run_dir);
    *fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (*fd < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "%s: %s", path, strerror(errno));
    if (!lines_drop_half(*fd, METRICS_LINE_BYTES)) {
        (void)fsdp_fail(err, FSDP_ERR_IO, "%s: %s", path, strerror(errno));
        (void)close(*fd);
        *fd = -1;
        return FSDP_ERR_IO;
    }
    return FSDP_OK;
}

enum fsdp_status metrics_write(int fd, const struct metrics_record *record, struct fsdp_err *err)
{
    char line[METRICS_LINE_BYTES];
    const size_t length = metrics_format(line, record);
    ssize_t n;

    do
        n = write(fd, line, length);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "writing metrics.jsonl: %s", strerror(errno));
    if ((size_t)n < length)
        return fsdp_fail(err, FSDP_ERR_IO, "writing metrics.jsonl: only %zd of %zu bytes were taken", n,
                         length);
    return FSDP_OK;
}
