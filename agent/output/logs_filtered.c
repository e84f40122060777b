#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent/output/logs_impl.h"

/* A line that matched, written at once: lines of the ranks stand whole beside each other. */
static void keep_line(void *arg, const char *line, size_t length, size_t whole)
{
    struct stream *stream = arg;
    struct filtered *filtered = &stream->logs->filtered[stream->which];
    char end[RUNDIR_PATH_BYTES + 64] = "\n";
    struct iovec parts[] = { { stream->prefix, strlen(stream->prefix) },
                             { (void *)(uintptr_t)line, length },
                             { end, 1 } };
    ssize_t n;

    if (filtered->fd < 0 || filtered->generation != stream->generation)
        return;
    if (whole > length)
        parts[2].iov_len =
            (size_t)snprintf(end, sizeof end, "... [cut: %zu bytes in %s]\n", whole, stream->path);
    do
        n = writev(filtered->fd, parts, 3);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)(parts[0].iov_len + parts[1].iov_len + parts[2].iov_len) || filtered->said)
        return;
    filtered->said = true;
    console_say(stream->logs->console, "fsdprun: cannot write %s: %s; lines are missing in it",
                filtered->path, n < 0 ? strerror(errno) : "no space for a whole line");
}

static enum fsdp_status open_filtered(struct logs *logs, const struct stream *stream, struct fsdp_err *err)
{
    struct filtered *filtered = &logs->filtered[stream->which];

    if (filtered->fd >= 0 && filtered->generation == stream->generation)
        return FSDP_OK;
    if (filtered->fd >= 0)
        close(filtered->fd); /* of a generation that is over: its pipes are closed */
    filtered->generation = stream->generation;
    filtered->said = false;
    return rundir_open_shared(logs->rundir, stream->generation,
                              stream->which == RUNDIR_STDOUT ? "filtered_stdout.log" : "filtered_stderr.log",
                              &filtered->fd, filtered->path, err);
}

enum fsdp_status filtered_begin(struct stream *stream, char *const *words, struct fsdp_err *err)
{
    const enum fsdp_status status = open_filtered(stream->logs, stream, err);

    if (status != FSDP_OK)
        return status;
    stream->filter = log_filter_create(words, keep_line, stream);
    return stream->filter != NULL ? FSDP_OK : fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a filter");
}

void filtered_end(struct stream *stream)
{
    if (stream->filter == NULL)
        return;
    log_filter_end(stream->filter);
    log_filter_destroy(stream->filter);
    stream->filter = NULL;
}

void filtered_close(struct logs *logs)
{
    for (int i = 0; i < 2; i++)
        if (logs->filtered[i].fd >= 0)
            close(logs->filtered[i].fd);
}
