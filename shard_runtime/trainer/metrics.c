#include "shard_runtime/trainer/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

/*
 * A full disk, or a kill between two pages, may have cut the last line of an earlier run: it goes, or no
 * reader of JSON lines gets past it. What is longer than a line of ours is not ours to cut: it is only ended.
 */
static bool drop_half_a_line(int fd)
{
    const off_t size = lseek(fd, 0, SEEK_END);
    const size_t tail = size < METRICS_LINE_BYTES ? (size_t)(size < 0 ? 0 : size) : METRICS_LINE_BYTES;
    char bytes[METRICS_LINE_BYTES];
    size_t n = tail;

    if (size < 0 || pread(fd, bytes, tail, size - (off_t)tail) != (ssize_t)tail)
        return false;
    while (n > 0 && bytes[n - 1] != '\n')
        n--;
    if (n == tail)
        return true;
    if (n == 0 && tail == METRICS_LINE_BYTES)
        return write(fd, "\n", 1) == 1;
    return ftruncate(fd, size - (off_t)(tail - n)) == 0;
}

enum fsdp_status metrics_open(int *fd, const char *run_dir, struct fsdp_err *err)
{
    char path[4096 + sizeof "/metrics.jsonl"];

    snprintf(path, sizeof path, "%s/metrics.jsonl", run_dir);
    *fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (*fd < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "%s: %s", path, strerror(errno));
    if (!drop_half_a_line(*fd)) {
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
