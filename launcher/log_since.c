#include "launcher/log_since.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/output/log_times.h"
#include "shard_runtime/core/files.h"

enum { TIMES_BYTES = 64 << 20 };

static bool read_ago(const char *text, int64_t *ago_ms)
{
    static const struct {
        const char *unit;
        int64_t ms;
    } units[] = { { "", 1000 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 } };
    char *end;
    long number;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    number = strtol(text, &end, 10);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (errno == 0 && strcmp(end, units[i].unit) == 0 && number <= INT64_MAX / units[i].ms) {
            *ago_ms = number * units[i].ms;
            return true;
        }
    return false;
}

static bool read_date(const char *text, int64_t *ms)
{
    static const char *const forms[] = { "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M" };

    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct tm parts = { .tm_isdst = -1 };
        const char *end = strptime(text, forms[i], &parts);

        if (end == NULL || (strcmp(end, "") != 0 && strcmp(end, "Z") != 0))
            continue;
        *ms = (int64_t)(*end == 'Z' ? timegm(&parts) : mktime(&parts)) * 1000;
        return true;
    }
    return false;
}

enum fsdp_status log_since_read(const char *text, int64_t now_ms, int64_t *since_ms, struct fsdp_err *err)
{
    int64_t ago_ms;

    if (read_date(text, since_ms))
        return FSDP_OK;
    if (!read_ago(text, &ago_ms))
        return fsdp_fail(
            err, FSDP_ERR_CONFIG,
            "--since takes a time ago, such as 90s, 10m, 2h or 1d, or one as 2026-11-28T15:04:05, "
            "not \"%.40s\"",
            text);
    *since_ms = now_ms > ago_ms ? now_ms - ago_ms : 0;
    return FSDP_OK;
}

/* One row of the file with the times (agent/output/log_times.h): at that time the log had that length. */
struct row {
    int64_t ms;
    uint64_t inode, offset;
};

/*
 * Reads the row at *text, and moves *text to the next row. Returns false if there is none, or it is damaged.
 */
static bool read_row(const char **text, struct row *row)
{
    char *end;

    row->ms = strtoll(*text, &end, 10);
    if (end == *text || *end != ' ')
        return false;
    row->inode = strtoull(end, &end, 10);
    if (*end != ' ')
        return false;
    row->offset = strtoull(end, &end, 10);
    if (*end != '\n')
        return false;
    *text = end + 1;
    return true;
}

/*
 * Finds the first row that is less than a second older than `since_ms`, or newer. Bytes before its offset
 * were written earlier than `since_ms`. Returns false if there is no such row.
 *   found  receives that row. Zero if the first row of all is newer than `since_ms`: then the whole log is
 *          wanted. Without such a row it receives the last one, or zero if there is no row.
 */
static bool find_row(const char *text, int64_t since_ms, struct row *found)
{
    const char *at = text;
    struct row row;

    *found = (struct row){ 0 };
    for (bool first = true; read_row(&at, &row); first = false) {
        if (first && row.ms > since_ms)
            return true;
        *found = row;
        if (row.ms + LOG_TIMES_APART_MS > since_ms)
            return true;
    }
    return false;
}

/* Moves *offset back to the beginning of its line, but at most by the size of one read. */
static void go_to_line(const char *path, ino_t inode, off_t *offset)
{
    char bytes[65536];
    const off_t from = *offset > (off_t)sizeof bytes ? *offset - (off_t)sizeof bytes : 0;
    char name[PATH_MAX + 16];
    struct stat at;
    bool same = false;

    for (int number = 0; !same; number++) {
        int fd;
        ssize_t n;

        snprintf(name, sizeof name, number == 0 ? "%s" : "%s.%d", path, number);
        fd = file_open_regular(name);
        if (fd < 0)
            return;
        same = fstat(fd, &at) == 0 && at.st_ino == inode;
        n = same ? pread(fd, bytes, (size_t)(*offset - from), from) : 0;
        close(fd);
        if (n > 0) {
            const char *newline = memrchr(bytes, '\n', (size_t)n);

            *offset = newline != NULL ? from + (newline - bytes) + 1 : from;
        }
    }
}

void log_since_find(const char *path, int64_t since_ms, ino_t *inode, off_t *offset)
{
    char name[PATH_MAX], *text = NULL;
    struct row row = { 0 };
    bool found;
    struct stat at;
    size_t length;
    int fd = -1;

    *inode = 0;
    *offset = 0;
    if (stat(path, &at) < 0)
        return; /* the log does not exist yet, so all of it is wanted */
    if (log_times_path(name, sizeof name, path))
        fd = file_open_regular(name);
    if (fd >= 0 && file_read(fd, TIMES_BYTES, &text, &length) != FSDP_OK)
        text = NULL;
    if (fd >= 0)
        close(fd);
    found = text != NULL && find_row(text, since_ms, &row);
    free(text);
    if (!found && (int64_t)at.st_mtim.tv_sec * 1000 + at.st_mtim.tv_nsec / 1000000 < since_ms) {
        *inode = at.st_ino;
        *offset = at.st_size;
    } else if (row.inode != 0) {
        *inode = (ino_t)row.inode;
        *offset = (off_t)row.offset;
        go_to_line(path, *inode, offset);
    }
}
