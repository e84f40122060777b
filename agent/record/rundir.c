#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/record/rundir_impl.h"
#include "shard_runtime/core/beneath.h"
#include "shard_runtime/core/holder.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/io.h"
#include "shard_runtime/shardfile/io_beneath.h"

static const char lock_name[] = "lock";

static void describe_holder(int fd, char *out, size_t size)
{
    char text[256] = "";
    const ssize_t n = pread(fd, text, sizeof text - 1, 0);

    if (n > 0)
        text[strcspn(text, "\n")] = '\0';
    snprintf(out, size, "%s%s%s", n > 0 && text[0] != '\0' ? " (" : "", text,
             n > 0 && text[0] != '\0' ? ")" : "");
}

static enum fsdp_status take_lock(struct rundir *rundir, struct fsdp_err *err)
{
    char words[HOLDER_BYTES];
    enum fsdp_status status;
    size_t length;
    int fd;

    status = beneath_open_record(&fd, rundir->fd, lock_name, err);
    if (status != FSDP_OK) {
        fsdp_wrap(err, "run directory %s", rundir->path);
        return status;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno == EWOULDBLOCK) {
            describe_holder(fd, words, sizeof words);
            status = fsdp_fail(err, FSDP_ERR_BUSY, "another live job%s holds the run directory %s", words,
                               rundir->path);
        } else {
            status = fsdp_fail(err, FSDP_ERR_IO, "lock %s/%s: %s", rundir->path, lock_name, strerror(errno));
        }
        close(fd);
        return status;
    }
    rundir->lock_fd = fd;
    length = holder_words(words);
    /* The words are for people only. If a full disk refuses them, the lock is held all the same. */
    if (ftruncate(fd, 0) < 0 || pwrite(fd, words, length, 0) < 0)
        errno = 0;
    return FSDP_OK;
}

static void stamp(char *out, size_t size)
{
    struct tm tm;
    time_t now = time(NULL);

    gmtime_r(&now, &tm);
    strftime(out, size, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

/*
 * Checks the names in the run directory before anything is started, so that a problem gets a clear message.
 * Opening them later is safe by itself. A FIFO in place of a record would block its writer.
 */
static enum fsdp_status check_entries(const struct rundir *rundir, struct fsdp_err *err)
{
    /* Only the records are opened for the check. A folder may be on another disk, which may not answer. */
    enum { N_RECORDS = 3 };
    static const char *const names[] = { "metrics.jsonl", "events.jsonl", lock_name, "checkpoints",
                                         "logs",          "export",       "offload" };
    enum fsdp_status status = FSDP_OK;
    struct stat info;

    for (size_t i = 0; i < sizeof names / sizeof *names && status == FSDP_OK; i++) {
        status = beneath_check_link(rundir->fd, names[i], err);
        if (i < N_RECORDS && status == FSDP_OK && fstatat(rundir->fd, names[i], &info, 0) == 0 &&
            S_ISFIFO(info.st_mode))
            status = fsdp_fail(err, FSDP_ERR_CONFIG, "%s is no regular file", names[i]);
    }
    if (status != FSDP_OK)
        fsdp_wrap(err, "run directory %s", rundir->path);
    return status;
}

enum fsdp_status rundir_lock(struct rundir *rundir, bool begins, struct fsdp_err *err)
{
    if (rundir->lock_fd >= 0)
        return FSDP_OK;
    OK_OR_RETURN(take_lock(rundir, err));
    return begins && rundir->kind == RUNDIR_NAMED ? rundir_look_back(rundir, err) : FSDP_OK;
}

void rundir_unlock(struct rundir *rundir)
{
    if (rundir->lock_fd >= 0)
        close(rundir->lock_fd);
    rundir->lock_fd = -1;
}

enum fsdp_status rundir_create(struct rundir **out, const struct rundir_spec *spec, struct fsdp_err *err)
{
    struct rundir *rundir;

    *out = NULL;
    if (spec->path == NULL || spec->path[0] != '/' || strlen(spec->path) >= RUNDIR_PATH_BYTES)
        return fsdp_fail(err, FSDP_ERR_ARG, "the run directory must be an absolute path");
    rundir = calloc(1, sizeof *rundir);
    if (rundir == NULL || (rundir->path = strdup(spec->path)) == NULL) {
        free(rundir);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the run directory");
    }
    rundir->fd = rundir->lock_fd = -1;
    rundir->kind = spec->kind;
    rundir->temporary = spec->temporary;
    stamp(rundir->begun, sizeof rundir->begun);
    *out = rundir;
    return FSDP_OK;
}

enum fsdp_status rundir_begin(struct rundir *rundir, struct fsdp_err *err)
{
    enum fsdp_status status;

    if (rundir->fd >= 0)
        return FSDP_OK;
    OK_OR_RETURN(rundir_make_folders(rundir->path, err));
    status = beneath_open_root(&rundir->fd, rundir->path, err);
    if (status == FSDP_OK)
        status = check_entries(rundir, err);
    if (status == FSDP_OK && (rundir->io = io_beneath_create(rundir->path, rundir->fd)) == NULL)
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the run directory");
    if (status != FSDP_OK && rundir->fd >= 0) {
        close(rundir->fd);
        rundir->fd = -1;
    }
    return status;
}

enum fsdp_status rundir_open(struct rundir **out, const struct rundir_spec *spec, struct fsdp_err *err)
{
    enum fsdp_status status = rundir_create(out, spec, err);

    if (status == FSDP_OK)
        status = rundir_begin(*out, err);
    if (status == FSDP_OK && spec->lock)
        status = rundir_lock(*out, true, err);
    if (status == FSDP_OK)
        return FSDP_OK;
    rundir_close(*out, false);
    *out = NULL;
    return status;
}

static const char *const own_files[] = { "lock", "job.json", "events.jsonl" };

static bool is_own_file(const char *name)
{
    bool own = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;

    for (size_t i = 0; i < sizeof own_files / sizeof *own_files; i++)
        own |= strcmp(name, own_files[i]) == 0;
    return own;
}

static bool has_only_own_files(int dir_fd)
{
    DIR *dir = rundir_list(dir_fd, ".");
    bool only = dir != NULL;
    struct dirent *entry;

    while (only && (entry = readdir(dir)) != NULL)
        only = is_own_file(entry->d_name);
    if (dir != NULL)
        closedir(dir);
    return only;
}

/* Remove the empty folders below `name`, down to `depth` levels, and `name` itself if it is empty then. */
static void remove_empty(int parent_fd, const char *name, int depth)
{
    DIR *dir = depth == 0 ? NULL : rundir_list(parent_fd, name);
    struct dirent *entry;

    while (dir != NULL && (entry = readdir(dir)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            remove_empty(dirfd(dir), entry->d_name, depth - 1);
    if (dir != NULL)
        closedir(dir);
    unlinkat(parent_fd, name, AT_REMOVEDIR); /* fails, as it should, if it is a file or is not empty */
}

/*
 * Remove the folders that were made for error files, if no error file was written:
 * attempt_<generation>/<local rank>.
 */
static void remove_empty_attempts(int dir_fd)
{
    char name[32];

    for (int generation = 0;; generation++) {
        snprintf(name, sizeof name, RUNDIR_ATTEMPT_PREFIX "%d", generation);
        if (faccessat(dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
            return;
        remove_empty(dir_fd, name, 2);
    }
}

static void remove_temporary(struct rundir *rundir)
{
    char *slash;

    remove_empty_attempts(rundir->fd);
    if (!has_only_own_files(rundir->fd))
        return;
    for (size_t i = 0; i < sizeof own_files / sizeof *own_files; i++)
        unlinkat(rundir->fd, own_files[i], 0);
    if (rmdir(rundir->path) < 0)
        return;
    /*
     * Removes the parent folder too, the fsdprun_<random> that rundir_program_path() made. rmdir() refuses it
     * if it is not empty.
     */
    slash = strrchr(rundir->path, '/');
    *slash = '\0';
    slash = strrchr(rundir->path, '/');
    if (slash != NULL && strncmp(slash + 1, "fsdprun_", 8) == 0)
        rmdir(rundir->path);
}

void rundir_close(struct rundir *rundir, bool discard)
{
    if (rundir == NULL)
        return;
    if (discard && rundir->temporary && rundir_begin(rundir, NULL) == FSDP_OK)
        remove_temporary(rundir);
    rundir_remove_mark(rundir);
    rundir_unlock(rundir);
    if (rundir->fd >= 0)
        close(rundir->fd);
    io_beneath_destroy(rundir->io);
    free(rundir->path);
    free(rundir);
}

const char *rundir_path(const struct rundir *rundir)
{
    return rundir->path;
}

void rundir_checkpoints(const struct rundir *rundir, const char *apart, char out[RUNDIR_PATH_BYTES])
{
    if (apart != NULL)
        snprintf(out, RUNDIR_PATH_BYTES, "%s", apart);
    else
        (void)io_join(out, rundir->path, "checkpoints", NULL);
}

bool rundir_is_gone(const struct rundir *rundir)
{
    char path[RUNDIR_PATH_BYTES];

    return rundir_set_path(path, NULL, "%s/%s", rundir->path, lock_name) == FSDP_OK &&
           faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && (errno == ENOENT || errno == ENOTDIR);
}

int rundir_fd(const struct rundir *rundir)
{
    return rundir->fd;
}

int rundir_lock_fd(const struct rundir *rundir)
{
    return rundir->lock_fd > 0 ? rundir->lock_fd : 0;
}

struct fsdp_io *rundir_io(const struct rundir *rundir)
{
    return rundir->io;
}
