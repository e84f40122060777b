#include "agent/output/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "agent/os/deadlines.h"
#include "agent/output/output_impl.h"

enum fsdp_status output_create(struct output **out, uv_loop_t *loop, const struct output_spec *spec,
                               struct fsdp_err *err)
{
    struct output *output = calloc(1, sizeof *output);

    *out = NULL;
    if (output == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the output");
    output->loop = loop;
    logs_init(output, spec);
    relay_init(output, spec);
    *out = output;
    return FSDP_OK;
}

void output_handle_closed(struct output *output)
{
    if (--output->n_open_handles > 0 || !output->destroyed)
        return;
    logs_fini(&output->logs);
    relay_fini(&output->relay);
    free(output);
}

void output_destroy(struct output *output)
{
    if (output == NULL)
        return;
    output->destroyed = true;
    for (struct stream *stream = output->streams; stream != NULL; stream = stream->next) {
        stream_drop(stream);
        stream_close(stream);
    }
    stream_sweep(output);
    relay_close(output);
}

static bool is_captured(const struct stream_spec *spec)
{
    return spec->mode == OUTPUT_FILE || spec->mode == OUTPUT_TEE;
}

enum fsdp_status output_open_files(struct output *output, const struct stream_spec *spec,
                                   struct stream_files *files, struct fsdp_err *err)
{
    files->log = NULL;
    files->filtered = NULL;
    return is_captured(spec) ? logs_open_files(output, spec, files, err) : FSDP_OK;
}

void output_close_files(struct stream_files *files)
{
    log_file_destroy(files->log);
    filtered_release(files->filtered);
    files->log = NULL;
    files->filtered = NULL;
}

enum fsdp_status output_open(struct output *output, const struct stream_spec *spec,
                             struct stream_files *files, int *fd, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;

    *fd = -1;
    if (is_captured(spec))
        return logs_open(output, spec, files, fd, err);
    if (spec->which == RUNDIR_STDERR)
        status = relay_open(output, spec, fd, err);
    if (status != FSDP_OK || spec->mode == OUTPUT_INHERIT || *fd >= 0)
        return status;
    *fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    return *fd >= 0 ? FSDP_OK : fsdp_fail(err, FSDP_ERR_IO, "open /dev/null: %s", strerror(errno));
}

bool output_keeps_files(const struct output *output)
{
    return output->logs.captures && output->logs.rundir != NULL;
}

void output_tell(struct output *output, int rank, bool uncaught, struct errors_detail *detail)
{
    struct stream *newest = NULL;
    char bytes[LAST_WORDS_BYTES];
    bool cut = false;
    size_t n;

    for (struct stream *stream = output->streams; stream != NULL; stream = stream->next)
        if (stream->rank == rank && stream->which == RUNDIR_STDERR)
            newest = stream;
    if (newest == NULL)
        return;
    stream_read_held(newest);
    n = newest->sink->tail(newest, bytes, &cut, detail);
    last_words_tell(detail, bytes, n, cut, uncaught);
}

void output_end_generation(struct output *output)
{
    for (struct stream *stream = output->streams; stream != NULL; stream = stream->next) {
        stream->ended = true;
        stream_read_held(stream);
        if (!stream->sink->waits)
            stream_close(stream);
    }
    relay_bound(output);
    stream_sweep(output);
}

static void on_console_drained(uint64_t left, void *data)
{
    struct output *output = data;

    logs_report(output, left);
    relay_drain(output);
}

void output_drain(struct output *output, void (*done)(void *data), void *data)
{
    output->drained = done;
    output->drained_data = data;
    logs_give_up(output);
    if (output->logs.captures)
        console_drain(output->logs.console, OUTPUT_STALL_MS, OUTPUT_TERMINAL_MS, on_console_drained, output);
    else
        relay_drain(output);
}

uint64_t output_taken(const struct output *output)
{
    return output->taken;
}

uint64_t output_read(const struct output *output)
{
    return output->n_read;
}
