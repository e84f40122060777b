#include "launcher/follow.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/log_since.h"
#include "launcher/log_tail.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/json.h"

enum { READ_BYTES = 65536, LINE_BYTES = 65536, PREFIX_BYTES = 64, MOST_ROTATED = 1000 };

struct file {
    char path[PATH_MAX], prefix[PREFIX_BYTES];
    FILE *out;
    bool json;   /* see follow_as_json() */
    ino_t inode; /* inode of the file that was read last; 0: nothing was read yet */
    off_t offset;
    char *part; /* (LINE_BYTES) a line that has begun but not ended; NULL: there was none yet */
    size_t n_part;
    size_t n_tail; /* lines that follow_tail() has left to be printed */
};

struct follow {
    int fd;           /* inotify descriptor; -1: nothing is watched */
    int64_t since_ms; /* files that are added from now on are printed since this time; 0: whole */
    bool json;        /* of the same files: see follow_as_json() */
    struct file **files;
    size_t n, capacity;
};

enum fsdp_status follow_create(struct follow **out, bool watches, struct fsdp_err *err)
{
    struct follow *follow = calloc(1, sizeof *follow);

    *out = NULL;
    if (follow == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    follow->fd = watches ? inotify_init1(IN_CLOEXEC | IN_NONBLOCK) : -1;
    if (watches && follow->fd < 0) {
        free(follow);
        return fsdp_fail(err, FSDP_ERR_IO, "inotify: %s", strerror(errno));
    }
    *out = follow;
    return FSDP_OK;
}

void follow_destroy(struct follow *follow)
{
    if (follow == NULL)
        return;
    for (size_t i = 0; i < follow->n; i++) {
        free(follow->files[i]->part);
        free(follow->files[i]);
    }
    if (follow->fd >= 0)
        close(follow->fd);
    free(follow->files);
    free(follow);
}

void follow_watch(struct follow *follow, const char *path)
{
    if (follow->fd >= 0) /* if the path is watched already, this call changes nothing */
        (void)inotify_add_watch(follow->fd, path, IN_CREATE | IN_MOVED_TO | IN_MODIFY);
}

enum fsdp_status follow_add(struct follow *follow, const char *path, const char *prefix, FILE *out,
                            struct fsdp_err *err)
{
    struct file *file;

    for (size_t i = 0; i < follow->n; i++)
        if (strcmp(follow->files[i]->path, path) == 0)
            return FSDP_OK;
    if (follow->n == follow->capacity) {
        const size_t capacity = follow->capacity == 0 ? 16 : follow->capacity * 2;
        struct file **files = realloc(follow->files, capacity * sizeof *files);

        if (files == NULL)
            return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
        follow->files = files;
        follow->capacity = capacity;
    }
    file = calloc(1, sizeof *file);
    if (file == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    snprintf(file->path, sizeof file->path, "%s", path);
    snprintf(file->prefix, sizeof file->prefix, "%s", prefix);
    file->out = out;
    file->json = follow->json;
    if (follow->since_ms > 0)
        log_since_find(path, follow->since_ms, &file->inode, &file->offset);
    follow->files[follow->n++] = file;
    return FSDP_OK;
}

void follow_since(struct follow *follow, int64_t since_ms)
{
    follow->since_ms = since_ms;
}

void follow_tail(struct follow *follow, size_t n_lines)
{
    for (size_t i = follow->n; i-- > 0;) {
        struct file *file = follow->files[i];
        size_t left = n_lines;

        for (size_t k = i + 1; k < follow->n; k++)
            if (follow->files[k]->out == file->out && strcmp(follow->files[k]->prefix, file->prefix) == 0)
                left -= follow->files[k]->n_tail;
        file->n_tail = log_tail_find(file->path, left, &file->inode, &file->offset);
    }
}

void follow_as_json(struct follow *follow)
{
    follow->json = true;
}

/* Prints a line as a JSON string, with its prefix and "}". Returns false if there is no memory. */
static bool print_json(struct file *file, const char *bytes, size_t n)
{
    char *line = malloc(file->n_part + n + 1);
    struct json_text text = { 0 };
    bool good;

    if (line == NULL)
        return false;
    if (file->n_part > 0)
        memcpy(line, file->part, file->n_part);
    memcpy(line + file->n_part, bytes, n);
    n += file->n_part;
    for (size_t i = 0; i < n; i++)
        if (line[i] == '\0')
            line[i] = '\xff'; /* is no UTF-8, so json_add_string() writes U+FFFD, and the text goes on */
    line[n] = '\0';
    json_add_string(&text, line);
    good = !text.failed;
    if (good)
        fprintf(file->out, "%s%s}\n", file->prefix, text.bytes);
    json_text_free(&text);
    free(line);
    file->n_part = 0;
    return good;
}

/* Prints the stored part of a line, and `n` more bytes. Returns false if there is no memory. */
static bool print_line(struct file *file, const char *bytes, size_t n)
{
    if (file->json)
        return print_json(file, bytes, n);
    fputs(file->prefix, file->out);
    if (file->n_part > 0)
        fwrite(file->part, 1, file->n_part, file->out);
    fwrite(bytes, 1, n, file->out);
    fputc('\n', file->out);
    file->n_part = 0;
    return true;
}

/*
 * Stores the beginning of a line whose end has not been read. After LINE_BYTES bytes it is printed as a line.
 * Returns false if there is no memory.
 */
static bool keep_part(struct file *file, const char *bytes, size_t n)
{
    if (file->part == NULL && (file->part = malloc(LINE_BYTES)) == NULL)
        return false;
    while (n > 0) {
        const size_t room = LINE_BYTES - file->n_part, taken = n < room ? n : room;

        memcpy(file->part + file->n_part, bytes, taken);
        file->n_part += taken;
        bytes += taken;
        n -= taken;
        if (file->n_part == LINE_BYTES && !print_line(file, "", 0))
            return false;
    }
    return true;
}

static bool print_bytes(struct file *file, const char *bytes, size_t n)
{
    while (n > 0) {
        const char *newline = memchr(bytes, '\n', n);
        const size_t length = newline == NULL ? n : (size_t)(newline - bytes);

        if (newline == NULL)
            return keep_part(file, bytes, n);
        if (!print_line(file, bytes, length))
            return false;
        bytes += length + 1;
        n -= length + 1;
    }
    return true;
}

/* Prints one open file from *offset to its end. *offset moves to that end. */
static enum fsdp_status print_rest(struct file *file, int fd, off_t *offset, struct fsdp_err *err)
{
    char bytes[READ_BYTES];
    ssize_t n;

    while ((n = pread(fd, bytes, sizeof bytes, *offset)) > 0) {
        *offset += n;
        if (!print_bytes(file, bytes, (size_t)n))
            return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    }
    return n == 0 ? FSDP_OK : file_fail(err, "read", file->path);
}

/*
 * Opens the file of a log: PATH for number 0, else PATH.<number>, a rotated one. Returns -1 if there is no
 * such regular file.
 */
static int open_number(const struct file *file, int number, ino_t *inode)
{
    char path[PATH_MAX + 16];
    struct stat at;
    int fd;

    snprintf(path, sizeof path, number == 0 ? "%s" : "%s.%d", file->path, number);
    fd = file_open_regular(path);
    if (fd >= 0 && fstat(fd, &at) == 0)
        *inode = at.st_ino;
    return fd;
}

/*
 * Returns the number of the rotated file that was read last. If it does not exist any more, or nothing was
 * read yet, returns the number of the oldest file.
 */
static int find_last(const struct file *file)
{
    int number = 0;
    ino_t inode;

    for (int fd; number < MOST_ROTATED && (fd = open_number(file, number, &inode)) >= 0; number++) {
        close(fd);
        if (inode == file->inode)
            return number;
    }
    return number == 0 ? 0 : number - 1;
}

static enum fsdp_status print_file(struct file *file, bool all, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;

    for (int number = find_last(file); number >= 0 && status == FSDP_OK; number--) {
        ino_t inode;
        const int fd = open_number(file, number, &inode);

        if (fd < 0)
            continue;
        if (inode != file->inode)
            file->offset = 0;
        file->inode = inode;
        status = print_rest(file, fd, &file->offset, err);
        close(fd);
    }
    if (all && file->n_part > 0 && !print_line(file, "", 0))
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    return status;
}

enum fsdp_status follow_print(struct follow *follow, bool all, struct fsdp_err *err)
{
    for (size_t i = 0; i < follow->n; i++) {
        const enum fsdp_status status = print_file(follow->files[i], all, err);

        if (status != FSDP_OK)
            return status;
        if (fflush(follow->files[i]->out) != 0)
            return fsdp_fail(err, FSDP_ERR_IO, "write: %s", strerror(errno));
    }
    return FSDP_OK;
}

bool follow_wait(struct follow *follow, int ended_fd)
{
    struct pollfd fds[2] = { { .fd = follow->fd, .events = POLLIN }, { .fd = ended_fd, .events = POLLIN } };
    char events[4096];

    while (poll(fds, 2, -1) < 0)
        if (errno != EINTR)
            return false;
    while (fds[0].revents != 0 && read(follow->fd, events, sizeof events) > 0)
        continue;
    return fds[1].revents == 0;
}
