#include "agent/output/log_times.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool log_times_path(char *out, size_t size, const char *path)
{
    const char *slash = strrchr(path, '/');
    const int folder = slash != NULL ? (int)(slash + 1 - path) : 0;
    const int n = snprintf(out, size, "%.*s.%s.times", folder, path, path + folder);

    return n > 0 && (size_t)n < size;
}

static void append(const struct log_file_place *place, const char *rows, size_t n)
{
    struct fsdp_io *io = place->io;
    char name[IO_PATH_BYTES + 16];
    struct io_stat stat;
    int fd;

    if (place->path == NULL || !log_times_path(name, sizeof name, place->path))
        return;
    fd = io->open(io, name, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (fd < 0)
        return;
    if (io->fstat(io, fd, &stat) == 0 && stat.kind == IO_FILE)
        (void)io->pwrite(io, fd, rows, n, stat.size_bytes);
    io->close(io, fd);
}

static size_t print_row(char *out, size_t size, int64_t ms, const struct log_file_place *place)
{
    return (size_t)snprintf(out, size, "%" PRId64 " %" PRIu64 " %" PRIu64 "\n", ms, place->inode,
                            place->offset);
}

void log_times_note(struct log_times *times, const struct log_file *log, int64_t now_ms)
{
    bool first = times->last_ms == 0;
    struct log_file_place place;
    char rows[2 * 64];
    size_t n = 0;

    /* A clock may be set back. */
    if (!first && now_ms >= times->last_ms && now_ms < times->last_ms + LOG_TIMES_APART_MS)
        return;
    if (!log_file_place(log, &place))
        return;
    if (times->waits)
        n = print_row(rows, sizeof rows, times->last_ms, &times->last);
    n += print_row(rows + n, sizeof rows - n, now_ms, &place);
    first = first && place.offset == 0; /* an earlier run has written into the file if its offset is not 0 */
    if (!first)
        append(&place, rows, n);
    *times = (struct log_times){ .last_ms = now_ms, .last = place, .waits = first };
}
