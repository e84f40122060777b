#include "agent/output/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct segment {
    int fd;
    /* offsets in the log; the first file begins at 0, even if an earlier run left bytes in it */
    uint64_t begin, end;
};

struct log_file {
    struct fsdp_io *io;
    char *path;
    uint64_t limit_bytes;
    int n_rotated;
    uint64_t begin;

    /* The writer's. */
    struct segment *segments; /* the last is the file in use */
    size_t n_segments, room;
    uint64_t next_limit; /* the file is rotated when it has reached this size */
    uint64_t lost_now;   /* bytes not taken since some last were */
    const char *last;    /* what was taken of the last write */
    size_t n_last;

    /* What the reader sees: a copy of the writer's members, made by log_file_show(). */
    struct segment *shown;
    size_t n_shown, shown_room;
    const char *recent; /* the bytes of the last write, as long as they may be read in memory */
    uint64_t recent_at;
    size_t n_recent;
};

static bool reserve(struct segment **segments, size_t *room, size_t n)
{
    size_t more = *room == 0 ? 4 : *room;
    struct segment *grown;

    if (n <= *room)
        return true;
    while (more < n)
        more *= 2;
    grown = realloc(*segments, more * sizeof *grown);
    if (grown == NULL)
        return false;
    *segments = grown;
    *room = more;
    return true;
}

static bool reserve_segment(struct log_file *file)
{
    return reserve(&file->segments, &file->room, file->n_segments + 1);
}

static void push_segment(struct log_file *file, int fd, uint64_t begin)
{
    file->segments[file->n_segments++] = (struct segment){ .fd = fd, .begin = begin, .end = begin };
}

static struct segment *in_use(const struct log_file *file)
{
    return &file->segments[file->n_segments - 1];
}

enum fsdp_status log_file_create(struct log_file **out, const struct log_file_spec *spec,
                                 struct fsdp_err *err)
{
    struct log_file *file = calloc(1, sizeof *file);
    struct io_stat stat;

    *out = NULL;
    if (file == NULL || !reserve_segment(file) || !reserve(&file->shown, &file->shown_room, 1) ||
        (spec->path != NULL && (file->path = strdup(spec->path)) == NULL)) {
        fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a log");
        goto failed;
    }
    file->io = spec->io;
    if (file->io->fstat(file->io, spec->fd, &stat) < 0) {
        fsdp_fail(err, FSDP_ERR_IO, "stat %s: %s", spec->path == NULL ? "a log" : spec->path,
                  strerror(errno));
        goto failed;
    }
    file->limit_bytes = file->next_limit = spec->path == NULL ? 0 : spec->limit_bytes;
    file->n_rotated = spec->n_rotated;
    push_segment(file, spec->fd, 0);
    file->begin = in_use(file)->end = stat.size_bytes;
    log_file_show(file);
    *out = file;
    return FSDP_OK;
failed:
    log_file_destroy(file); /* the descriptor stays the caller's */
    return err != NULL ? err->status : FSDP_ERR_IO;
}

void log_file_destroy(struct log_file *file)
{
    if (file == NULL)
        return;
    for (size_t i = 0; i < file->n_segments; i++)
        file->io->close(file->io, file->segments[i].fd);
    free(file->segments);
    free(file->shown);
    free(file->path);
    free(file);
}

/*
 * Write as many of the bytes as the file takes, and return their number. *error is set if it does not take
 * all.
 */
static size_t write_some(struct log_file *file, const char *bytes, size_t n, int *error)
{
    struct segment *segment = in_use(file);
    size_t done = 0;

    while (done < n) {
        const ssize_t now =
            file->io->pwrite(file->io, segment->fd, bytes + done, n - done, segment->end - segment->begin);

        if (now < 0 && errno == EINTR)
            continue;
        if (now <= 0) {
            *error = now < 0 ? errno : ENOSPC;
            break;
        }
        done += (size_t)now;
        segment->end += (uint64_t)now;
    }
    return done;
}

/* Call it when the file may take bytes again: writes a line into it that says how many bytes are missing. */
static bool close_gap(struct log_file *file, int *error)
{
    char line[128];
    const int n =
        snprintf(line, sizeof line, "\n[fsdprun: %" PRIu64 " bytes were lost here]\n", file->lost_now);

    if (write_some(file, line, (size_t)n, error) < (size_t)n)
        return false;
    file->lost_now = 0;
    return true;
}

/* Returns how many of the bytes belong into the current file. *full: the file must be rotated after them. */
static size_t fitting(const struct log_file *file, const char *bytes, size_t n, bool *full)
{
    const uint64_t size = in_use(file)->end - in_use(file)->begin, limit = file->next_limit;
    const size_t from = size + 1 >= limit ? 0 : (size_t)(limit - size - 1 < n ? limit - size - 1 : n);
    const uint64_t most = limit + LOG_FILE_LINE_BYTES > size ? limit + LOG_FILE_LINE_BYTES - size : 0;
    const size_t to = most < n ? (size_t)most : n;
    const char *newline = from < to ? memchr(bytes + from, '\n', to - from) : NULL;

    *full = newline != NULL || to < n || most == n;
    return newline != NULL ? (size_t)(newline - bytes) + 1 : to;
}

static int rename_to(struct log_file *file, const char *from, int number)
{
    char to[IO_PATH_BYTES + 16];

    snprintf(to, sizeof to, "%s.%d", file->path, number);
    return file->io->rename(file->io, from, to) < 0 ? errno : 0;
}

/*
 * Rename PATH.1 to PATH.2 and so on. Begin with the oldest, so that a failure never overwrites a file that is
 * kept.
 */
static int shift(struct log_file *file)
{
    char from[IO_PATH_BYTES + 16];

    for (int i = file->n_rotated - 1; i >= 1; i--) {
        int error;

        snprintf(from, sizeof from, "%s.%d", file->path, i);
        error = rename_to(file, from, i + 1);
        if (error != 0 && error != ENOENT)
            return error;
    }
    return 0;
}

/*
 * Create the new file first, under a temporary name: if that fails, nothing has changed. Returns 0 or an
 * errno.
 */
static int rotate(struct log_file *file)
{
    char made[IO_PATH_BYTES + 16], kept[IO_PATH_BYTES + 16];
    struct fsdp_io *io = file->io;
    int error, fd;

    if (!reserve_segment(file))
        return ENOMEM;
    snprintf(made, sizeof made, "%s.new", file->path);
    snprintf(kept, sizeof kept, "%s.1", file->path);
    fd = io->open(io, made, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (fd < 0)
        return errno;
    error = shift(file);
    if (error == 0 && file->n_rotated > 0)
        error = rename_to(file, file->path, 1);
    if (error == 0 && io->rename(io, made, file->path) < 0) {
        error = errno;
        if (file->n_rotated > 0)
            /* gives the current file its name back, because the log goes on in it */
            io->rename(io, kept, file->path);
    }
    if (error == 0) {
        push_segment(file, fd, in_use(file)->end);
        return 0;
    }
    io->close(io, fd);
    io->unlink(io, made);
    return error;
}

static void try_to_rotate(struct log_file *file, struct log_file_result *result)
{
    const int error = rotate(file);

    if (error != 0) {
        result->error = error;
        file->next_limit = in_use(file)->end - in_use(file)->begin + file->limit_bytes;
        return;
    }
    result->rotated = true;
    file->next_limit = file->limit_bytes;
}

struct log_file_result log_file_write(struct log_file *file, const char *bytes, size_t n)
{
    struct log_file_result result = { 0 };
    size_t done = 0;
    int error = 0;

    if (file->lost_now > 0 && close_gap(file, &error))
        result.gap_ended = true;
    while (done < n && error == 0) {
        bool full = false;
        const size_t piece = file->limit_bytes == 0 ? n - done : fitting(file, bytes + done, n - done, &full);

        done += write_some(file, bytes + done, piece, &error);
        if (full && error == 0)
            try_to_rotate(file, &result);
    }
    if (done < n) {
        result.lost = n - done;
        result.error = error;
        file->lost_now += n - done;
    }
    file->last = bytes;
    file->n_last = done;
    return result;
}

bool log_file_place(const struct log_file *file, struct log_file_place *out)
{
    const struct segment *segment = in_use(file);
    struct io_stat stat;

    if (file->io->fstat(file->io, segment->fd, &stat) < 0 || stat.kind != IO_FILE)
        return false;
    *out = (struct log_file_place){
        .path = file->path, .io = file->io, .inode = stat.inode, .offset = segment->end - segment->begin
    };
    return true;
}

void log_file_show(struct log_file *file)
{
    if (!reserve(&file->shown, &file->shown_room, file->n_segments))
        return; /* out of memory: the new bytes are shown by the next call */
    memcpy(file->shown, file->segments, file->n_segments * sizeof *file->shown);
    file->n_shown = file->n_segments;
    file->recent = file->last;
    file->n_recent = file->n_last;
    file->recent_at = log_file_end(file) - file->n_last;
}

void log_file_settle(struct log_file *file)
{
    file->n_recent = 0;
}

uint64_t log_file_end(const struct log_file *file)
{
    return file->shown[file->n_shown - 1].end;
}

/* Read from file number `i` of the row, up to its end. Returns 0 if it cannot be read. */
static size_t read_at(struct log_file *file, size_t i, uint64_t offset, char *room, size_t want)
{
    const struct segment *segment = &file->shown[i];
    const uint64_t rest = segment->end - offset;
    ssize_t n;

    do
        n = file->io->pread(file->io, segment->fd, room, rest < want ? (size_t)rest : want,
                            offset - segment->begin);
    while (n < 0 && errno == EINTR);
    return n > 0 ? (size_t)n : 0;
}

const char *log_file_look(struct log_file *file, uint64_t offset, char *room, size_t want, size_t *n)
{
    if (file->n_recent > 0 && offset >= file->recent_at && offset < file->recent_at + file->n_recent) {
        *n = (size_t)(file->recent_at + file->n_recent - offset);
        return file->recent + (offset - file->recent_at);
    }
    *n = 0;
    for (size_t i = 0; i < file->n_shown && *n < want; i++)
        while (*n < want && offset + *n >= file->shown[i].begin && offset + *n < file->shown[i].end) {
            const size_t now = read_at(file, i, offset + *n, room + *n, want - *n);

            if (now == 0)
                return room;
            *n += now;
        }
    return room;
}

void log_file_release(struct log_file *file, uint64_t offset)
{
    size_t n = 0;

    /* The reader's list of files is the same as the writer's, or its beginning. */
    while (n + 1 < file->n_shown && file->shown[n].end <= offset)
        file->io->close(file->io, file->shown[n++].fd);
    memmove(file->segments, file->segments + n, (file->n_segments - n) * sizeof *file->segments);
    file->n_segments -= n;
    memmove(file->shown, file->shown + n, (file->n_shown - n) * sizeof *file->shown);
    file->n_shown -= n;
}

size_t log_file_n_held(const struct log_file *file)
{
    return file->n_shown - 1;
}

uint64_t log_file_oldest_end(const struct log_file *file)
{
    return file->n_shown > 1 ? file->shown[0].end : file->begin;
}
