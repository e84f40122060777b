#include "agent/snapshot/persist.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/snapshot/entry_files.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/require.h"

enum { COPY_BYTES = 4 << 20, TOKEN_TEXT = 17 };

static const char link_prefix[] = ".persist-", part_prefix[] = ".fsdprun-part-",
                  mark_prefix[] = ".fsdprun-node-";

/* An entry that waits, or is being written. */
struct job {
    struct job *next;
    struct persist_seat seat;
    char name[ENTRY_NAME_BYTES], link[32];
    struct fsdp_err err;
};

struct persist {
    uv_work_t work;
    uv_loop_t *loop;
    int folder_fd;
    char to[PATH_MAX];
    struct persist_handlers handlers;
    struct persist_seat seat;
    struct job *jobs; /* the oldest first; the first one is being written */
    unsigned n_links;
    bool is_closed;
};

bool persist_is_link(const char *name)
{
    return strncmp(name, link_prefix, strlen(link_prefix)) == 0;
}

/* Links */

static enum fsdp_status link_all(int from_fd, const char *from, int to_fd, const char *to,
                                 struct fsdp_err *err)
{
    struct dirent *entry;
    enum fsdp_status status = FSDP_OK;
    struct stat at;
    DIR *listing;
    int in, out;

    if (fstatat(from_fd, from, &at, AT_SYMLINK_NOFOLLOW) < 0)
        return file_fail(err, "look at", from);
    if (!S_ISDIR(at.st_mode))
        return !S_ISREG(at.st_mode) || linkat(from_fd, from, to_fd, to, 0) == 0
                   ? FSDP_OK
                   : file_fail(err, "link", from);
    if (mkdirat(to_fd, to, 0700) < 0)
        return file_fail(err, "create", to);
    in = openat(from_fd, from, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    out = openat(to_fd, to, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    listing = in < 0 ? NULL : fdopendir(in);
    if (listing == NULL || out < 0)
        status = file_fail(err, "open", from);
    while (status == FSDP_OK && (entry = readdir(listing)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = link_all(in, entry->d_name, out, entry->d_name, err);
    if (listing != NULL)
        closedir(listing);
    else if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    return status;
}

/* Files, on the thread */

static bool read_whole(int fd, char *bytes, size_t *n)
{
    ssize_t got = 1;

    for (*n = 0; *n < COPY_BYTES && got > 0;) {
        got = read(fd, bytes + *n, COPY_BYTES - *n);
        if (got > 0)
            *n += (size_t)got;
        else if (got < 0 && errno == EINTR)
            got = 1;
    }
    return got >= 0;
}

static bool copy_bytes(int in, int out, char *buffer)
{
    size_t n = COPY_BYTES;

    while (n == COPY_BYTES)
        if (!read_whole(in, buffer, &n) || !file_write(out, buffer, n))
            return false;
    return fsync(out) == 0;
}

/* Have both the same bytes? */
static bool is_same_file(int in, int in_fd, const char *name, char *buffer)
{
    const int other = openat(in_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    size_t n = COPY_BYTES, m = COPY_BYTES;
    bool same = other >= 0 && lseek(in, 0, SEEK_SET) == 0;

    while (same && n == COPY_BYTES)
        same = read_whole(in, buffer, &n) && read_whole(other, buffer + COPY_BYTES, &m) && n == m &&
               memcmp(buffer, buffer + COPY_BYTES, n) == 0;
    if (other >= 0)
        close(other);
    return same;
}

/* Where a walk over two trees is. */
struct pair {
    int from_fd, to_fd;
    /* `mark`: part of the names of unfinished files, so that each node has its own */
    const char *from, *to, *mark;
    char *buffer;
};

typedef enum fsdp_status pair_visitor(const struct pair *at, struct fsdp_err *err);

/* Calls `visit` for each file below at->from, with its counterpart; makes missing directories if `makes`. */
static enum fsdp_status walk_pair(const struct pair *at, bool makes, pair_visitor *visit,
                                  struct fsdp_err *err)
{
    struct pair below = *at;
    enum fsdp_status status = FSDP_OK;
    struct dirent *entry;
    struct stat info;
    DIR *listing;

    if (fstatat(at->from_fd, at->from, &info, AT_SYMLINK_NOFOLLOW) < 0)
        return file_fail(err, "look at", at->from);
    if (!S_ISDIR(info.st_mode))
        return visit(at, err);
    if (makes && mkdirat(at->to_fd, at->to, 0777) < 0 && errno != EEXIST)
        return file_fail(err, "create", at->to);
    below.from_fd = openat(at->from_fd, at->from, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    below.to_fd = openat(at->to_fd, at->to, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    listing = below.from_fd < 0 ? NULL : fdopendir(below.from_fd);
    if (listing == NULL || below.to_fd < 0)
        status = file_fail(err, "open", at->to);
    while (status == FSDP_OK && (entry = readdir(listing)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            below.from = below.to = entry->d_name;
            status = walk_pair(&below, makes, visit, err);
        }
    if (status == FSDP_OK && makes && fsync(below.to_fd) < 0)
        status = file_fail(err, "sync", at->to);
    if (listing != NULL)
        closedir(listing);
    else if (below.from_fd >= 0)
        close(below.from_fd);
    if (below.to_fd >= 0)
        close(below.to_fd);
    return status;
}

static enum fsdp_status copy_file(const struct pair *at, struct fsdp_err *err)
{
    char part[NAME_MAX + 1];
    const int in = openat(at->from_fd, at->from, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    enum fsdp_status status = FSDP_OK;
    int out;

    if (in < 0)
        return file_fail(err, "open", at->from);
    snprintf(part, sizeof part, "%s.part", at->mark);
    (void)unlinkat(at->to_fd, part, 0);
    out = openat(at->to_fd, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (out < 0 || !copy_bytes(in, out, at->buffer))
        status = file_fail(err, "write", at->to);
    else if (linkat(at->to_fd, part, at->to_fd, at->to, 0) < 0 &&
             (errno != EEXIST || !is_same_file(in, at->to_fd, at->to, at->buffer)))
        status = errno != EEXIST ? file_fail(err, "write", at->to)
                                 : fsdp_fail(err, FSDP_ERR_MISMATCH, "%s differs between two nodes", at->to);
    (void)unlinkat(at->to_fd, part, 0);
    if (out >= 0)
        close(out);
    close(in);
    return status;
}

static enum fsdp_status compare_file(const struct pair *at, struct fsdp_err *err)
{
    const int in = openat(at->from_fd, at->from, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const bool same = in >= 0 && is_same_file(in, at->to_fd, at->to, at->buffer);

    if (in >= 0)
        close(in);
    return same ? FSDP_OK : fsdp_fail(err, FSDP_ERR_MISMATCH, "%s is another one there", at->to);
}

/* The marks by which nodes say that they have written their part, and the rename to the final name */

static bool has_all_marks(int to_fd, const char *part, int n_nodes)
{
    char mark[ENTRY_NAME_BYTES + 96];

    for (int i = 0; i < n_nodes; i++) {
        snprintf(mark, sizeof mark, "%s/%s%d", part, mark_prefix, i);
        if (faccessat(to_fd, mark, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
            return false;
    }
    return true;
}

static void remove_marks(int to_fd, const char *part, int n_nodes)
{
    char mark[ENTRY_NAME_BYTES + 96];

    for (int i = 0; i < n_nodes; i++) {
        snprintf(mark, sizeof mark, "%s/%s%d", part, mark_prefix, i);
        (void)unlinkat(to_fd, mark, 0);
    }
}

/*
 * Publishes an entry that all nodes have written. If another node does so at the same moment, this one finds
 * nothing left to do.
 */
static enum fsdp_status publish(int to_fd, const char *part, const struct job *job, char *buffer,
                                struct fsdp_err *err)
{
    char whole[2 * ENTRY_NAME_BYTES + 96];
    const struct pair pair = { to_fd, to_fd, whole, job->name, NULL, buffer };

    remove_marks(to_fd, part, job->seat.n_nodes);
    snprintf(whole, sizeof whole, "%s/%s", part, job->name);
    if (renameat2(to_fd, whole, to_fd, job->name, RENAME_NOREPLACE) < 0 &&
        (errno != EINVAL || faccessat(to_fd, job->name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
         renameat(to_fd, whole, to_fd, job->name) < 0)) {
        if (errno == ENOENT)
            return FSDP_OK;
        OK_OR_RETURN(walk_pair(&pair, false, compare_file, err));
        entry_remove(to_fd, whole);
    }
    (void)unlinkat(to_fd, part, AT_REMOVEDIR);
    return fsync(to_fd) == 0 ? FSDP_OK : file_fail(err, "sync", job->name);
}

static enum fsdp_status write_entry(int folder_fd, int to_fd, const struct job *job, char *buffer,
                                    struct fsdp_err *err)
{
    char part[ENTRY_NAME_BYTES + 64], mark[32], token[TOKEN_TEXT];
    struct pair pair = { folder_fd, -1, job->link, job->name, mark, buffer };
    enum fsdp_status status;
    int fd;

    for (size_t i = 0; i < sizeof job->seat.token; i++)
        snprintf(token + 2 * i, 3, "%02x", job->seat.token[i]);
    snprintf(part, sizeof part, "%s%s-%s", part_prefix, token, job->name);
    snprintf(mark, sizeof mark, "%s%d", mark_prefix, job->seat.node_rank);
    if (mkdirat(to_fd, part, 0777) < 0 && errno != EEXIST)
        return file_fail(err, "create", part);
    pair.to_fd = openat(to_fd, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (pair.to_fd < 0)
        return file_fail(err, "open", part);
    status = walk_pair(&pair, true, copy_file, err);
    fd = status != FSDP_OK ? -1 : openat(pair.to_fd, mark, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (status == FSDP_OK && (fd < 0 || fsync(pair.to_fd) < 0))
        status = file_fail(err, "write", mark);
    if (fd >= 0)
        close(fd);
    close(pair.to_fd);
    return status == FSDP_OK && has_all_marks(to_fd, part, job->seat.n_nodes)
               ? publish(to_fd, part, job, buffer, err)
               : status;
}

/* Removes what runs that were killed have left unfinished. */
static void remove_parts(const char *to)
{
    DIR *listing = opendir(to);
    struct dirent *entry;

    while (listing != NULL && (entry = readdir(listing)) != NULL)
        if (strncmp(entry->d_name, part_prefix, strlen(part_prefix)) == 0)
            entry_remove(dirfd(listing), entry->d_name);
    if (listing != NULL)
        closedir(listing);
}

static void do_write(uv_work_t *work)
{
    const struct persist *persist = work->data;
    struct job *job = persist->jobs;
    char *buffer = malloc(2 * COPY_BYTES);
    int to_fd;

    if (job->name[0] == '\0') {
        remove_parts(persist->to);
        free(buffer);
        return;
    }
    if (mkdir(persist->to, 0777) < 0 && errno != EEXIST)
        (void)file_fail(&job->err, "create", persist->to);
    to_fd = open(persist->to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (buffer == NULL)
        (void)fsdp_fail(&job->err, FSDP_ERR_NOMEM, "out of memory");
    else if (to_fd < 0)
        (void)file_fail(&job->err, "open", persist->to);
    else
        (void)write_entry(persist->folder_fd, to_fd, job, buffer, &job->err);
    if (to_fd >= 0)
        close(to_fd);
    entry_remove(persist->folder_fd, job->link);
    free(buffer);
}

/* On the loop */

static void on_written(uv_work_t *work, int status);

static void free_if_over(struct persist *persist)
{
    if (!persist->is_closed || persist->jobs != NULL)
        return;
    close(persist->folder_fd);
    free(persist);
}

static void proceed(struct persist *persist)
{
    if (persist->jobs != NULL)
        (void)uv_queue_work(persist->loop, &persist->work, do_write, on_written);
}

static void on_written(uv_work_t *work, int status)
{
    struct persist *persist = work->data;
    struct job *job = persist->jobs;

    (void)status;
    if (persist->is_closed && job->err.status != FSDP_OK)
        fprintf(stderr, "fsdprun: snapshot %s: %s\n", job->name, job->err.message);
    else if (!persist->is_closed && job->err.status != FSDP_OK)
        persist->handlers.line(persist->handlers.arg, job->name, job->err.message);
    else if (!persist->is_closed && job->name[0] != '\0')
        persist->handlers.synced(persist->handlers.arg, job->name);
    persist->jobs = job->next;
    free(job);
    proceed(persist);
    free_if_over(persist);
}

static void add_job(struct persist *persist, struct job *job)
{
    struct job **at = &persist->jobs;
    const bool idle = *at == NULL;

    while (*at != NULL)
        at = &(*at)->next;
    *at = job;
    if (idle)
        proceed(persist);
}

struct persist *persist_create(uv_loop_t *loop, int folder_fd, const char *to,
                               const struct persist_handlers *handlers)
{
    struct persist *persist = calloc(1, sizeof *persist);

    if (persist == NULL)
        return NULL;
    persist->loop = loop;
    persist->work.data = persist;
    persist->handlers = *handlers;
    persist->folder_fd = fcntl(folder_fd, F_DUPFD_CLOEXEC, 0);
    snprintf(persist->to, sizeof persist->to, "%s", to);
    if (persist->folder_fd >= 0)
        return persist;
    free(persist);
    return NULL;
}

void persist_begin(struct persist *persist, const struct persist_seat *seat)
{
    struct job *job;

    persist->seat = *seat;
    if (!seat->is_first || seat->node_rank != 0)
        return;
    job = calloc(1, sizeof *job); /* without a name: removes what is unfinished */
    if (job != NULL)
        add_job(persist, job);
}

void persist_add(struct persist *persist, const char *name)
{
    struct job *job = calloc(1, sizeof *job);
    struct fsdp_err err = { 0 };

    if (job == NULL) {
        persist->handlers.line(persist->handlers.arg, name, "out of memory");
        return;
    }
    job->seat = persist->seat;
    snprintf(job->name, sizeof job->name, "%s", name);
    snprintf(job->link, sizeof job->link, "%s%u", link_prefix, persist->n_links++);
    if (link_all(persist->folder_fd, name, persist->folder_fd, job->link, &err) == FSDP_OK) {
        add_job(persist, job);
        return;
    }
    entry_remove(persist->folder_fd, job->link);
    free(job);
    persist->handlers.line(persist->handlers.arg, name, err.message);
}

void persist_close(struct persist *persist)
{
    if (persist == NULL)
        return;
    persist->is_closed = true;
    free_if_over(persist);
}
