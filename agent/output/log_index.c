#include "agent/output/log_index.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/os/json_text.h"

enum { HOST_BYTES = 6 * 256 + 3, LINE_BYTES = 4096 };

/* "FOLDER/NAME" as JSON, or null. */
static void put_path(char out[64], const struct log_index_entry *entry, const char *name, bool there)
{
    if (!there)
        snprintf(out, 64, "null");
    else if (entry->of_job)
        snprintf(out, 64, "\"rank%d/%s\"", entry->rank, name);
    else
        snprintf(out, 64, "\"%d/%s\"", entry->shared ? entry->rank : entry->local_rank, name);
}

size_t log_index_line(char *out, size_t size, const struct log_index_entry *entry, double time_s)
{
    char host[HOST_BYTES], standard[64], errors[64], file[64];
    const size_t length = strnlen(entry->host, 255);
    int n;

    json_quote(host, sizeof host, entry->host, length);
    put_path(standard, entry, "stdout.log", entry->has_stdout);
    put_path(errors, entry, "stderr.log", entry->has_stderr);
    put_path(file, entry, "error.json", !entry->of_job);
    n = snprintf(
        out, size,
        "{\"time\": %.6f, \"rank\": %d, \"local_rank\": %d, \"node_rank\": %d, \"host\": %s, \"pid\": %d, "
        "\"stdout\": %s, \"stderr\": %s, \"error_file\": %s}\n",
        time_s, entry->rank, entry->local_rank, entry->node_rank, host, entry->pid, standard, errors, file);
    return n > 0 && (size_t)n < size ? (size_t)n : 0;
}

enum fsdp_status log_index_add(struct rundir *rundir, const struct log_index_entry *entry,
                               struct fsdp_err *err)
{
    char name[64] = "index.jsonl", path[RUNDIR_PATH_BYTES], line[LINE_BYTES];
    struct timespec now;
    enum fsdp_status status;
    size_t n;
    int fd;

    if ((entry->of_job || entry->shared) && entry->node_rank != 0)
        snprintf(name, sizeof name, "index.node%d.jsonl", entry->node_rank);
    status = rundir_open_shared(rundir, entry->generation, name, &fd, path, err);
    if (status != FSDP_OK)
        return status;
    clock_gettime(CLOCK_REALTIME, &now);
    n = log_index_line(line, sizeof line, entry, (double)now.tv_sec + (double)now.tv_nsec / 1e9);
    if (write(fd, line, n) !=
        (ssize_t)n) /* one write: a line is there whole, or not at all, or the disk is full */
        status = fsdp_fail(err, FSDP_ERR_IO, "write %s: %s", path, strerror(errno));
    close(fd);
    return status;
}
