#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/output/output_impl.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/shardfile/io_beneath.h"

enum { PIPE_BYTES = 256 * 1024, FILES_LEAST = 8, FILES_MOST = 4096 };

/*
 * Returns how many rotated files may stay open because the console has not shown them: a quarter of the file
 * descriptors.
 */
static size_t held_most(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur / 4 < FILES_LEAST)
        return FILES_LEAST;
    return limit.rlim_cur / 4 > FILES_MOST ? FILES_MOST : (size_t)(limit.rlim_cur / 4);
}

void logs_init(struct output *output, const struct output_spec *spec)
{
    struct logs *logs = &output->logs;

    *logs = (struct logs){ .rundir = spec->rundir,
                           .disk = spec->disk,
                           .console = spec->console,
                           .limit_bytes = spec->limit_bytes,
                           .n_rotated = spec->n_rotated,
                           .captures = spec->captures,
                           .n_held_most = held_most() };
    if (spec->captures)
        signal(SIGXFSZ, SIG_IGN);
}

/*
 * Returns the file access for logs, made when it is first needed, because the run directory may be opened
 * after the output. It is not rundir_io(), because logs are closed in close callbacks, when the run directory
 * may be closed already. Thread: the one that opens files.
 */
static struct fsdp_io *io_of(struct logs *logs)
{
    if (logs->rundir == NULL)
        return &io_posix;
    if (logs->io == NULL)
        logs->io = io_beneath_create(rundir_path(logs->rundir), rundir_fd(logs->rundir));
    return logs->io;
}

void logs_fini(struct logs *logs)
{
    for (int i = 0; i < 2; i++)
        filtered_release(logs->filtered[i]);
    io_beneath_destroy(logs->io);
}

static void on_shown(void *data)
{
    struct stream *stream = data;

    stream->source = NULL;
    stream_sweep(stream->output);
}

void logs_say_lost(struct stream *stream, const struct log_file_result *result)
{
    struct logs *logs = &stream->output->logs;

    logs->lost += result->lost;
    if (logs->said_full)
        return;
    logs->said_full = true;
    console_say(logs->console,
                "fsdprun: cannot write %s: %s; output goes on being read, what does not fit is lost",
                stream->path, strerror(result->error));
}

/*
 * Shows bytes that no file took as lines of our own on stderr, as far as that queue has room. The console
 * cannot copy them from a file.
 */
static void show_lost(const struct stream *stream, const char *bytes, size_t n)
{
    while (n > 0) {
        const char *newline = memchr(bytes, '\n', n);
        const size_t length = newline != NULL ? (size_t)(newline - bytes) : n;

        console_say(stream->output->logs.console, "%s%.*s", stream->prefix, (int)length, bytes);
        bytes += length + (newline != NULL);
        n -= length + (newline != NULL);
    }
}

static void say_unrotated(struct stream *stream, int error)
{
    if (stream->said_unrotated)
        return;
    stream->said_unrotated = true;
    console_say(stream->output->logs.console, "fsdprun: cannot rotate %s: %s; it goes on growing",
                stream->path, strerror(error));
}

static size_t count_held(const struct output *output)
{
    size_t n = 0;

    for (const struct stream *stream = output->streams; stream != NULL; stream = stream->next)
        if (stream->file != NULL)
            n += log_file_n_held(stream->file);
    return n;
}

/*
 * Closes rotated files: those that the console has taken completely, and the oldest ones while too many are
 * open.
 */
static void let_go(struct stream *stream)
{
    const struct output *output = stream->output;
    struct log_file *file = stream->file;
    size_t n_held;

    log_file_release(file, stream->source != NULL ? console_taken(stream->source) : log_file_end(file));
    for (n_held = count_held(output); n_held > output->logs.n_held_most && log_file_n_held(file) > 0;
         n_held--) {
        const uint64_t end = log_file_oldest_end(file);

        log_file_release(file, end);
        if (stream->source != NULL)
            console_skip(stream->source, end);
    }
}

static void say_unfiltered(struct stream *stream)
{
    if (stream->unfiltered[0] != '\0')
        console_say(stream->output->logs.console, "fsdprun: %s", stream->unfiltered);
    stream->unfiltered[0] = '\0';
}

void logs_written(struct stream *stream, const char *bytes, size_t n)
{
    const struct log_file_result result = stream->result;

    log_file_show(stream->file);
    if (result.lost > 0) {
        logs_say_lost(stream, &result);
        if (stream->source != NULL)
            show_lost(stream, bytes + n - result.lost, (size_t)result.lost);
    } else if (result.gap_ended) {
        stream->output->logs.said_full = false;
    }
    if (result.lost == 0 && result.error != 0)
        say_unrotated(stream, result.error);
    say_unfiltered(stream);
    if (stream->source != NULL)
        console_grew(stream->source, log_file_end(stream->file));
    log_file_settle(stream->file);
    if (result.rotated)
        let_go(stream);
}

void logs_ended(struct stream *stream)
{
    log_filter_destroy(stream->filter);
    filtered_release(stream->filtered);
    stream->filter = NULL;
    stream->filtered = NULL;
    say_unfiltered(stream);
    if (stream->source != NULL)
        console_end(stream->source);
}

static size_t copy_tail(struct stream *stream, char bytes[LAST_WORDS_BYTES], bool *cut,
                        struct errors_detail *detail)
{
    if (stream->output->logs.rundir != NULL)
        snprintf(detail->log, sizeof detail->log, "%s", stream->path);
    *cut = stream->words.n > LAST_WORDS_BYTES;
    return last_words_copy(&stream->words, bytes);
}

const struct stream_sink logs_sink = {
    .read_bytes = OUTPUT_READ_BYTES,
    .held_bytes = 4 * PIPE_BYTES,
    .n_reads = 1,
    .take = logs_take,
    .tail = copy_tail,
};

/* A temporary file without a name, for a run that keeps no logs. */
static enum fsdp_status open_nameless(int *fd, char *path, struct fsdp_err *err)
{
    const char *dir = rundir_temporary();

    snprintf(path, RUNDIR_PATH_BYTES, "a file that is not kept");
    *fd = open(dir, O_TMPFILE | O_RDWR | O_APPEND | O_CLOEXEC, 0600);
    if (*fd < 0) {
        char name[RUNDIR_PATH_BYTES];
        const int n = snprintf(name, sizeof name, "%s/fsdprun_XXXXXX", dir);

        *fd = n < (int)sizeof name ? mkostemp(name, O_APPEND | O_CLOEXEC) : -1;
        if (*fd >= 0)
            unlink(name);
    }
    return *fd >= 0 ? FSDP_OK : file_fail(err, "a temporary file in", dir);
}

static enum fsdp_status open_log(struct logs *logs, const struct stream_spec *spec,
                                 struct stream_files *files, struct fsdp_err *err)
{
    struct log_file_spec file = {
        .fd = -1, .limit_bytes = logs->limit_bytes, .n_rotated = logs->n_rotated, .io = io_of(logs)
    };
    enum fsdp_status status =
        file.io == NULL        ? file_fail(err, "open", rundir_path(logs->rundir))
        : logs->rundir == NULL ? open_nameless(&file.fd, files->path, err)
                               : rundir_open_log(logs->rundir, spec->generation, spec->rank, spec->local_rank,
                                                 spec->which, &file.fd, files->path, err);

    if (status != FSDP_OK)
        return status;
    file.path = logs->rundir == NULL ? NULL : files->path;
    status = log_file_create(&files->log, &file, err);
    if (status != FSDP_OK)
        close(file.fd);
    return status;
}

static bool is_filtered(const struct logs *logs, const struct stream_spec *spec)
{
    return spec->filters != NULL && spec->filters[0] != NULL && logs->rundir != NULL;
}

enum fsdp_status logs_open_files(struct output *output, const struct stream_spec *spec,
                                 struct stream_files *files, struct fsdp_err *err)
{
    struct logs *logs = &output->logs;
    enum fsdp_status status = open_log(logs, spec, files, err);

    if (status == FSDP_OK && is_filtered(logs, spec))
        status = filtered_open(logs, spec, &files->filtered, err);
    if (status != FSDP_OK)
        output_close_files(files);
    return status;
}

static const char *look_at_log(void *data, uint64_t offset, char *room, size_t want, size_t *n)
{
    const struct stream *stream = data;

    return log_file_look(stream->file, offset, room, want, n);
}

static enum fsdp_status show(struct stream *stream, struct fsdp_err *err)
{
    const struct console_source_spec source = {
        .look = look_at_log,
        .offset = log_file_end(stream->file),
        .path = stream->path,
        .prefix = stream->prefix,
        .sink = stream->which == RUNDIR_STDOUT ? CONSOLE_OUT : CONSOLE_ERR,
        .shown = on_shown,
        .data = stream,
    };

    return console_add(stream->output->logs.console, &stream->source, &source, err);
}

enum fsdp_status logs_open(struct output *output, const struct stream_spec *spec, struct stream_files *files,
                           int *fd, struct fsdp_err *err)
{
    struct stream *stream = stream_create(&logs_sink, output, spec);
    enum fsdp_status status = FSDP_OK;
    int error;

    if (stream == NULL) {
        output_close_files(files);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a log");
    }
    stream->file = files->log;
    stream->filtered = files->filtered;
    files->log = NULL;
    files->filtered = NULL;
    snprintf(stream->path, sizeof stream->path, "%s", files->path);
    snprintf(stream->prefix, sizeof stream->prefix, "%s", spec->prefix != NULL ? spec->prefix : "");
    if (spec->mode == OUTPUT_TEE)
        status = show(stream, err);
    if (status == FSDP_OK && is_filtered(&output->logs, spec))
        status = filtered_begin(stream, spec->filters, err);
    error = status == FSDP_OK ? stream_connect(stream, -1, PIPE_BYTES, fd) : 0;
    if (error != 0)
        status = fsdp_fail(err, FSDP_ERR_IO, "pipe: %s", strerror(error));
    if (status != FSDP_OK) {
        stream_free(stream);
        return status;
    }
    stream_add(stream);
    stream_resume(stream);
    return FSDP_OK;
}

void logs_give_up(const struct output *output)
{
    for (const struct stream *stream = output->streams; stream != NULL; stream = stream->next)
        if (stream->writing && stream->source != NULL)
            console_end(stream->source);
}

static uint64_t count_waiting(const struct output *output)
{
    uint64_t n = 0;

    for (const struct stream *stream = output->streams; stream != NULL; stream = stream->next)
        n += stream->n_waiting;
    return n;
}

void logs_report(const struct output *output, uint64_t left)
{
    const struct logs *logs = &output->logs;
    const uint64_t waiting = count_waiting(output);
    /* after a rotation some of the files may be gone, so the words name them differently */
    const char *where = logs->rundir == NULL    ? ""
                        : logs->limit_bytes > 0 ? "; what is kept of it is in "
                                                : "; all of it is in ";

    if (left > 0)
        console_say(logs->console, "fsdprun: %" PRIu64 " bytes of output were not shown%s%s", left, where,
                    logs->rundir != NULL ? rundir_path(logs->rundir) : "");
    if (logs->lost > 0)
        console_say(logs->console,
                    "fsdprun: %" PRIu64 " bytes of output were lost: a log file could not be written",
                    logs->lost);
    if (waiting > 0)
        console_say(logs->console,
                    "fsdprun: %" PRIu64 " bytes of output were lost: the disk did not take them", waiting);
}
