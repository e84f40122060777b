#include "agent/record/rundir_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shard_runtime/core/beneath.h"
#include "shard_runtime/core/holder.h"
#include "shard_runtime/shardfile/io_beneath.h"

static const char lock_name[] = "lock";

static enum fsdp_status set_path(char *path, struct fsdp_err *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static enum fsdp_status set_path(char *path, struct fsdp_err *err, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(path, RUNDIR_PATH_BYTES, format, args);
    va_end(args);
    if (n < 0 || n >= RUNDIR_PATH_BYTES)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "the run directory's path is longer than %d bytes",
                         RUNDIR_PATH_BYTES);
    return FSDP_OK;
}

/* "<dir>/<name>" from the root; slashes at the end of `dir` do not double. */
static enum fsdp_status absolute(char *path, const char *dir, const char *name, struct fsdp_err *err)
{
    char here[RUNDIR_PATH_BYTES] = "";
    size_t length = strlen(dir);

    while (length > 0 && dir[length - 1] == '/')
        length--;
    if (dir[0] != '/' && getcwd(here, sizeof here) == NULL)
        return fsdp_fail(err, FSDP_ERR_IO, "the working directory: %s", strerror(errno));
    return set_path(path, err, "%s%s%.*s/%s", here, dir[0] == '/' || length == 0 ? "" : "/", (int)length, dir,
                    name);
}

enum fsdp_status rundir_job_path(char *path, const char *dir, const char *name, struct fsdp_err *err)
{
    if (name[0] == '\0' || strchr(name, '/') != NULL || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "run.name: \"%s\" is not one path component", name);
    return absolute(path, dir, name, err);
}

enum fsdp_status rundir_named_path(char *path, const char *dir, struct fsdp_err *err)
{
    const enum fsdp_status status = absolute(path, dir, ".", err);

    if (status == FSDP_OK)
        path[strlen(path) - 2] = '\0'; /* "/." */
    if (status == FSDP_OK && path[0] == '\0')
        return fsdp_fail(err, FSDP_ERR_CONFIG, "/ cannot be a run directory");
    return status;
}

/* Make `path` and what leads to it. */
static enum fsdp_status make_folders(const char *path, struct fsdp_err *err)
{
    char part[RUNDIR_PATH_BYTES];
    struct stat stat_of;

    snprintf(part, sizeof part, "%s", path);
    for (char *slash = part + 1;; slash++) {
        const char kept = *slash;

        if (kept != '/' && kept != '\0')
            continue;
        *slash = '\0';
        if (mkdir(part, 0777) < 0 && errno != EEXIST) {
            const int error = errno;

            /* Some systems say EROFS or EACCES for a directory that is there. */
            if (stat(part, &stat_of) < 0)
                return fsdp_fail(err, error == ENOTDIR ? FSDP_ERR_CONFIG : FSDP_ERR_IO, "create %s: %s", part,
                                 strerror(error));
        }
        if (kept == '\0')
            break;
        *slash = '/';
    }
    if (stat(path, &stat_of) < 0)
        return fsdp_fail(err, errno == ENOTDIR ? FSDP_ERR_CONFIG : FSDP_ERR_IO, "%s: %s", path,
                         strerror(errno));
    if (!S_ISDIR(stat_of.st_mode))
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%s is no directory", path);
    return FSDP_OK;
}

const char *rundir_temporary(void)
{
    const char *named = getenv("TMPDIR");
    struct stat stat_of;

    return named != NULL && stat(named, &stat_of) == 0 && S_ISDIR(stat_of.st_mode) &&
                   access(named, W_OK | X_OK) == 0
               ? named
               : "/tmp";
}

enum fsdp_status rundir_program_path(char *path, const char *dir, const char *run_id, struct fsdp_err *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    char temporary[RUNDIR_PATH_BYTES], name[NAME_MAX + 1];
    enum fsdp_status status;

    if (dir == NULL) {
        status = absolute(temporary, rundir_temporary(), "fsdprun_XXXXXX", err);
        if (status != FSDP_OK)
            return status;
        if (mkdtemp(temporary) == NULL)
            return fsdp_fail(err, FSDP_ERR_IO, "create %s: %s", temporary, strerror(errno));
        dir = temporary;
    }
    for (int tries = 0; tries < 100; tries++) {
        unsigned char random[8];
        char suffix[sizeof random + 1] = "";

        if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
            return fsdp_fail(err, FSDP_ERR_IO, "getrandom: %s", strerror(errno));
        for (size_t i = 0; i < sizeof random; i++)
            suffix[i] = letters[random[i] % (sizeof letters - 1)];
        snprintf(name, sizeof name, "%.200s_%s", run_id, suffix);
        for (char *c = name; *c != '\0'; c++)
            if (*c == '/')
                *c = '_';
        status = absolute(path, dir, name, err);
        if (status != FSDP_OK)
            return status;
        if (tries == 0) { /* the parents: everything before the last slash */
            char *slash = strrchr(path, '/');

            *slash = '\0';
            status = make_folders(path, err);
            *slash = '/';
            if (status != FSDP_OK)
                return status;
        }
        if (mkdir(path, 0777) == 0)
            return FSDP_OK;
        if (errno != EEXIST)
            break;
    }
    return fsdp_fail(err, FSDP_ERR_IO, "create %s: %s", path, strerror(errno));
}

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

    status = beneath_open_record(&rundir->lock_fd, rundir->fd, lock_name, err);
    if (status != FSDP_OK) {
        fsdp_wrap(err, "run directory %s", rundir->path);
        return status;
    }
    if (flock(rundir->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK)
            return fsdp_fail(err, FSDP_ERR_IO, "lock %s/%s: %s", rundir->path, lock_name, strerror(errno));
        describe_holder(rundir->lock_fd, words, sizeof words);
        return fsdp_fail(err, FSDP_ERR_BUSY, "another live job%s holds the run directory %s", words,
                         rundir->path);
    }
    length = holder_words(words);
    /* Words for people: a full disk must not keep a lock that is held from being one. */
    if (ftruncate(rundir->lock_fd, 0) < 0 || pwrite(rundir->lock_fd, words, length, 0) < 0)
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
 * Every open below walks safely by itself; this says what is wrong before anything is started, with words for it. A FIFO
 * under the name of a record would hold its writer.
 */
static enum fsdp_status check_entries(const struct rundir *rundir, struct fsdp_err *err)
{
    /* Only records are looked at themselves: a folder may be on another disk, and that one may not answer. */
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

enum fsdp_status rundir_open(struct rundir **out, const struct rundir_spec *spec, struct fsdp_err *err)
{
    enum fsdp_status status;
    struct rundir *rundir = NULL;

    *out = NULL;
    if (spec->path == NULL || spec->path[0] != '/' || strlen(spec->path) >= RUNDIR_PATH_BYTES)
        return fsdp_fail(err, FSDP_ERR_ARG, "the run directory must be an absolute path");
    status = make_folders(spec->path, err);
    if (status != FSDP_OK)
        return status;
    rundir = calloc(1, sizeof *rundir);
    if (rundir == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the run directory");
    rundir->fd = rundir->lock_fd = -1;
    rundir->kind = spec->kind;
    rundir->temporary = spec->temporary;
    stamp(rundir->begun, sizeof rundir->begun);
    rundir->path = strdup(spec->path);
    if (rundir->path == NULL) {
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the run directory");
        goto done;
    }
    status = beneath_open_root(&rundir->fd, rundir->path, err);
    if (status == FSDP_OK)
        status = check_entries(rundir, err);
    if (status != FSDP_OK)
        goto done;
    rundir->io = io_beneath_create(rundir->path, rundir->fd);
    if (rundir->io == NULL) {
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the run directory");
        goto done;
    }
    if (spec->lock) {
        status = take_lock(rundir, err);
        if (status == FSDP_OK && rundir->kind == RUNDIR_NAMED)
            status = rundir_look_back(rundir, err);
        if (status != FSDP_OK)
            goto done;
    }
    *out = rundir;
    rundir = NULL;
done:
    rundir_close(rundir, false);
    return status;
}

static const char *const own_files[] = { "lock", "job.json", "events.jsonl" };

static bool has_only_own_files(int dir_fd)
{
    const int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    bool only = dir != NULL;
    struct dirent *entry;

    if (dir == NULL && fd >= 0)
        close(fd);
    while (only && (entry = readdir(dir)) != NULL) {
        bool known = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;

        for (size_t i = 0; i < sizeof own_files / sizeof *own_files; i++)
            known = known || strcmp(entry->d_name, own_files[i]) == 0;
        only = known;
    }
    if (dir != NULL)
        closedir(dir);
    return only;
}

/* Take away the empty folders below `name`, `depth` deep, and itself when nothing is left in it. */
static void remove_empty(int parent_fd, const char *name, int depth)
{
    const int fd = depth == 0 ? -1 : openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (dir == NULL && fd >= 0)
        close(fd);
    while (dir != NULL && (entry = readdir(dir)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            remove_empty(fd, entry->d_name, depth - 1);
    if (dir != NULL)
        closedir(dir);
    unlinkat(parent_fd, name, AT_REMOVEDIR); /* refuses a file and what is not empty */
}

/* The folders made for error files of generations that wrote none: attempt_<generation>/<local rank>. */
static void remove_empty_attempts(int dir_fd)
{
    char name[32];

    for (int generation = 0;; generation++) {
        snprintf(name, sizeof name, "attempt_%d", generation);
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
    /* Its parent is the fsdprun_<random> that rundir_program_path() made; rmdir() refuses what is not empty. */
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
    if (discard && rundir->temporary)
        remove_temporary(rundir);
    rundir_remove_mark(rundir);
    if (rundir->lock_fd >= 0)
        close(rundir->lock_fd);
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

int rundir_fd(const struct rundir *rundir)
{
    return rundir->fd;
}

struct fsdp_io *rundir_io(const struct rundir *rundir)
{
    return rundir->io;
}

static int write_all(int fd, const char *text, size_t length)
{
    while (length > 0) {
        const ssize_t n = write(fd, text, length);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        text += n;
        length -= (size_t)n;
    }
    return 0;
}

enum fsdp_status rundir_write(struct rundir *rundir, const char *name, const char *text, size_t length,
                              struct fsdp_err *err)
{
    char temporary[NAME_MAX + 1];
    const char *what = "create";
    int error = 0, fd;

    snprintf(temporary, sizeof temporary, ".%.200s.tmp", name);
    unlinkat(rundir->fd, temporary, 0); /* what a run that was killed left, or another user put there */
    fd = openat(rundir->fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        error = errno;
    } else {
        what = "write";
        error = write_all(fd, text, length);
        if (error == 0 && fsync(fd) < 0)
            error = errno;
        if (close(fd) < 0 && error == 0)
            error = errno;
        if (error == 0) {
            what = "rename to";
            error = renameat(rundir->fd, temporary, rundir->fd, name) < 0 ? errno : 0;
        }
        if (error != 0) {
            unlinkat(rundir->fd, temporary, 0);
        } else {
            what = "sync the directory of";
            error = fsync(rundir->fd) < 0 && errno != EINVAL ? errno : 0;
        }
    }
    if (error != 0)
        return fsdp_fail(err, FSDP_ERR_IO, "%s %s/%s: %s", what, rundir->path, name, strerror(error));
    return FSDP_OK;
}

/* Make the folder `path`, which begins with the run directory's own, and open it. */
static enum fsdp_status open_folder(const struct rundir *rundir, const char *path, int *fd,
                                    struct fsdp_err *err)
{
    *fd = beneath_make_folders(rundir->fd, path + strlen(rundir->path) + 1);
    return *fd >= 0 ? FSDP_OK : fsdp_fail(err, FSDP_ERR_IO, "create %s: %s", path, beneath_words(errno));
}

static enum fsdp_status set_rank_folder(const struct rundir *rundir, int generation, int rank, int local_rank,
                                        char *path, struct fsdp_err *err)
{
    return rundir->kind == RUNDIR_JOB
               ? set_path(path, err, "%s/logs/g%d/rank%d", rundir->path, generation, rank)
               : set_path(path, err, "%s/attempt_%d/%d", rundir->path, rundir->first_attempt + generation,
                          rundir->kind == RUNDIR_NAMED ? rank : local_rank);
}

enum fsdp_status rundir_rank_folder(struct rundir *rundir, int generation, int rank, int local_rank,
                                    char *path, struct fsdp_err *err)
{
    enum fsdp_status status = set_rank_folder(rundir, generation, rank, local_rank, path, err);
    int fd = -1;

    if (status == FSDP_OK)
        status = open_folder(rundir, path, &fd, err);
    if (fd >= 0)
        close(fd);
    return status;
}

/* The file `name` in the folder `path` (RUNDIR_PATH_BYTES), which becomes the file's path. */
static enum fsdp_status open_in(const struct rundir *rundir, char *path, const char *name, int flags, int *fd,
                                struct fsdp_err *err)
{
    const size_t length = strlen(path);
    enum fsdp_status status;
    int folder;

    *fd = -1;
    if (length + strlen(name) + 2 > RUNDIR_PATH_BYTES)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "the run directory's path is longer than %d bytes",
                         RUNDIR_PATH_BYTES);
    status = open_folder(rundir, path, &folder, err);
    if (status != FSDP_OK)
        return status;
    snprintf(path + length, RUNDIR_PATH_BYTES - length, "/%s", name);
    *fd = openat(folder, name, flags | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (*fd < 0)
        status = fsdp_fail(err, FSDP_ERR_IO, "open %s: %s", path, strerror(errno));
    close(folder);
    return status;
}

/* A log that an earlier run wrote is gone on with, behind a line that says so. */
static enum fsdp_status mark_new_run(struct rundir *rundir, int fd, const char *path, struct fsdp_err *err)
{
    struct stat stat;
    char last = '\n', line[128];
    int n, error;

    if (fstat(fd, &stat) < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(stat.st_mode))
        return fsdp_fail(err, FSDP_ERR_IO, "%s is no regular file", path);
    if (stat.st_size == 0)
        return FSDP_OK;
    if (pread(fd, &last, 1, stat.st_size - 1) < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "read %s: %s", path, strerror(errno));
    n = snprintf(line, sizeof line, "%s--- fsdprun: run of %s, pid %d ---\n", last == '\n' ? "" : "\n",
                 rundir->begun, (int)getpid());
    error = write_all(fd, line, (size_t)n);
    /* A full disk is met by the log itself, which says so and lets the worker live. */
    return error == 0 || error == ENOSPC || error == EDQUOT
               ? FSDP_OK
               : fsdp_fail(err, FSDP_ERR_IO, "write %s: %s", path, strerror(error));
}

enum fsdp_status rundir_open_log(struct rundir *rundir, int generation, int rank, int local_rank,
                                 enum rundir_stream stream, int *fd, char *path, struct fsdp_err *err)
{
    enum fsdp_status status = set_rank_folder(rundir, generation, rank, local_rank, path, err);

    *fd = -1;
    if (status == FSDP_OK)
        status =
            open_in(rundir, path, stream == RUNDIR_STDOUT ? "stdout.log" : "stderr.log", O_RDWR, fd, err);
    if (status == FSDP_OK)
        status = mark_new_run(rundir, *fd, path, err);
    if (status != FSDP_OK && *fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    return status;
}

enum fsdp_status rundir_open_shared(struct rundir *rundir, int generation, const char *name, int *fd,
                                    char *path, struct fsdp_err *err)
{
    const bool job = rundir->kind == RUNDIR_JOB;
    const enum fsdp_status status =
        set_path(path, err, "%s/%s%d", rundir->path, job ? "logs/g" : RUNDIR_ATTEMPT_PREFIX,
                 job ? generation : rundir->first_attempt + generation);

    *fd = -1;
    return status == FSDP_OK ? open_in(rundir, path, name, O_WRONLY, fd, err) : status;
}
