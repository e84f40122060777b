#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent/output/output_impl.h"
#include "shard_runtime/core/require.h"

/* Append a matching line by one write, so that lines of several ranks do not mix. */
static void keep_line(void *arg, const char *line, size_t length, size_t whole)
{
    struct stream *stream = arg;
    struct filtered *filtered = stream->filtered;
    char end[RUNDIR_PATH_BYTES + 64] = "\n";
    struct iovec parts[] = { { stream->prefix, strlen(stream->prefix) },
                             { (void *)(uintptr_t)line, length },
                             { end, 1 } };
    ssize_t n;

    if (whole > length)
        parts[2].iov_len =
            (size_t)snprintf(end, sizeof end, "... [cut: %zu bytes in %s]\n", whole, stream->path);
    do
        n = writev(filtered->fd, parts, 3);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)(parts[0].iov_len + parts[1].iov_len + parts[2].iov_len) || filtered->said)
        return;
    filtered->said = true;
    snprintf(stream->unfiltered, sizeof stream->unfiltered, "cannot write %s: %s; lines are missing in it",
             filtered->path, n < 0 ? strerror(errno) : "no space for a whole line");
}

void filtered_release(struct filtered *filtered)
{
    if (filtered == NULL || atomic_fetch_sub(&filtered->n_users, 1) > 1)
        return;
    close(filtered->fd);
    free(filtered);
}

static enum fsdp_status open_filtered(struct rundir *rundir, const struct stream_spec *spec,
                                      struct filtered **out, struct fsdp_err *err)
{
    struct filtered *filtered = calloc(1, sizeof *filtered);
    enum fsdp_status status =
        filtered == NULL
            ? fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for filtered lines")
            : rundir_open_shared(rundir, spec->generation,
                                 spec->which == RUNDIR_STDOUT ? "filtered_stdout.log" : "filtered_stderr.log",
                                 &filtered->fd, filtered->path, err);

    if (status != FSDP_OK) {
        free(filtered);
        return status;
    }
    filtered->generation = spec->generation;
    atomic_init(&filtered->n_users, 1);
    *out = filtered;
    return FSDP_OK;
}

enum fsdp_status filtered_open(struct logs *logs, const struct stream_spec *spec, struct filtered **out,
                               struct fsdp_err *err)
{
    struct filtered **newest = &logs->filtered[spec->which];

    if (*newest == NULL || (*newest)->generation != spec->generation) {
        /* streams of the old generation that still write to the file keep it open */
        filtered_release(*newest);
        *newest = NULL;
        OK_OR_RETURN(open_filtered(logs->rundir, spec, newest, err));
    }
    atomic_fetch_add(&(*newest)->n_users, 1);
    *out = *newest;
    return FSDP_OK;
}

enum fsdp_status filtered_begin(struct stream *stream, char *const *words, struct fsdp_err *err)
{
    stream->filter = log_filter_create(words, keep_line, stream);
    return stream->filter != NULL ? FSDP_OK : fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a filter");
}
