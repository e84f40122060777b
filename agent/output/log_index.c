#include "agent/output/log_index.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/json.h"
#include "shard_runtime/core/require.h"

enum { LINE_BYTES = 4096 };

/* A member "FOLDER/NAME", or null. */
static void put_path(struct json_text *out, const char *key, const struct log_index_entry *entry,
                     const char *name, bool there)
{
    if (!there)
        json_field(out, key, "null");
    else if (entry->of_job)
        json_field(out, key, "\"rank%d/%s\"", entry->rank, name);
    else
        json_field(out, key, "\"%d/%s\"", entry->shared ? entry->rank : entry->local_rank, name);
}

size_t log_index_line(char *out, size_t size, const struct log_index_entry *entry, double time_s)
{
    struct json_text line = json_text_fixed(out, size);
    char host[256];

    snprintf(host, sizeof host, "%s", entry->host);
    json_open(&line, NULL, '{');
    json_field(&line, "time", "%.6f", time_s);
    json_field(&line, "rank", "%d", entry->rank);
    json_field(&line, "local_rank", "%d", entry->local_rank);
    json_field(&line, "node_rank", "%d", entry->node_rank);
    json_field_string(&line, "host", host);
    json_field(&line, "pid", "%d", entry->pid);
    put_path(&line, "stdout", entry, "stdout.log", entry->has_stdout);
    put_path(&line, "stderr", entry, "stderr.log", entry->has_stderr);
    put_path(&line, "error_file", entry, "error.json", !entry->of_job);
    json_add(&line, "}\n");
    return line.failed ? 0 : line.length;
}

enum fsdp_status log_index_add(struct rundir *rundir, const struct log_index_entry *entry,
                               struct fsdp_err *err)
{
    char name[64] = "index.jsonl", path[RUNDIR_PATH_BYTES], line[LINE_BYTES];
    enum fsdp_status status = FSDP_OK;
    size_t n;
    int fd;

    if ((entry->of_job || entry->shared) && entry->node_rank != 0)
        snprintf(name, sizeof name, "index.node%d.jsonl", entry->node_rank);
    OK_OR_RETURN(rundir_open_shared(rundir, entry->generation, name, &fd, path, err));
    n = log_index_line(line, sizeof line, entry, clock_epoch_s());
    /* one write per line, so a line is in the file completely or not at all, unless the disk is full */
    if (write(fd, line, n) != (ssize_t)n)
        status = file_fail(err, "write", path);
    close(fd);
    return status;
}
