#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/record/rundir_impl.h"
#include "shard_runtime/core/beneath.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/require.h"

/* Create `name` with this text, and sync it. Returns 0 or an errno; *what names the step that failed. */
static int write_new(int dir_fd, const char *name, const char *text, size_t length, const char **what)
{
    const int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int error;

    *what = fd < 0 ? "create" : "write";
    if (fd < 0)
        return errno;
    error = file_write(fd, text, length) && fsync(fd) == 0 ? 0 : errno;
    if (close(fd) < 0 && error == 0)
        error = errno;
    return error;
}

enum fsdp_status rundir_write(struct rundir *rundir, const char *name, const char *text, size_t length,
                              struct fsdp_err *err)
{
    char temporary[NAME_MAX + 1];
    const char *what;
    int error;

    snprintf(temporary, sizeof temporary, ".%.200s.tmp", name);
    /* a file of that name is left by a run that was killed, or was put there by another user */
    unlinkat(rundir->fd, temporary, 0);
    error = write_new(rundir->fd, temporary, text, length, &what);
    if (error == 0 && renameat(rundir->fd, temporary, rundir->fd, name) < 0) {
        what = "rename to";
        error = errno;
    }
    if (error != 0) {
        unlinkat(rundir->fd, temporary, 0);
    } else if (fsync(rundir->fd) < 0 && errno != EINVAL) {
        what = "sync the directory of";
        error = errno;
    }
    return error == 0
               ? FSDP_OK
               : fsdp_fail(err, FSDP_ERR_IO, "%s %s/%s: %s", what, rundir->path, name, strerror(error));
}

/* Make the folder `path`, which must be below the run directory, and open it. */
static enum fsdp_status open_folder(const struct rundir *rundir, const char *path, int *fd,
                                    struct fsdp_err *err)
{
    *fd = beneath_make_folders(rundir->fd, path + strlen(rundir->path) + 1);
    return *fd >= 0 ? FSDP_OK : fsdp_fail(err, FSDP_ERR_IO, "create %s: %s", path, beneath_words(errno));
}

enum fsdp_status rundir_rank_path(const struct rundir *rundir, int generation, int rank, int local_rank,
                                  char *path, struct fsdp_err *err)
{
    return rundir->kind == RUNDIR_JOB
               ? rundir_set_path(path, err, "%s/logs/g%d/rank%d", rundir->path, generation, rank)
               : rundir_set_path(path, err, "%s/" RUNDIR_ATTEMPT_PREFIX "%d/%d", rundir->path,
                                 rundir->first_attempt + generation,
                                 rundir->kind == RUNDIR_NAMED ? rank : local_rank);
}

enum fsdp_status rundir_rank_folder(struct rundir *rundir, int generation, int rank, int local_rank,
                                    char *path, struct fsdp_err *err)
{
    enum fsdp_status status = rundir_rank_path(rundir, generation, rank, local_rank, path, err);
    int fd = -1;

    if (status == FSDP_OK)
        status = open_folder(rundir, path, &fd, err);
    if (fd >= 0)
        close(fd);
    return status;
}

/* Open the file `name` in the folder `path` (RUNDIR_PATH_BYTES). `path` then becomes the path of the file. */
static enum fsdp_status open_in(const struct rundir *rundir, char *path, const char *name, int flags, int *fd,
                                struct fsdp_err *err)
{
    const size_t length = strlen(path);
    enum fsdp_status status = FSDP_OK;
    int folder;

    *fd = -1;
    if (length + strlen(name) + 2 > RUNDIR_PATH_BYTES)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "the run directory's path is longer than %d bytes",
                         RUNDIR_PATH_BYTES);
    OK_OR_RETURN(open_folder(rundir, path, &folder, err));
    snprintf(path + length, RUNDIR_PATH_BYTES - length, "/%s", name);
    *fd = openat(folder, name, flags | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (*fd < 0)
        status = file_fail(err, "open", path);
    close(folder);
    return status;
}

/* If an earlier run wrote to the log, append a line that says that a new run begins. */
static enum fsdp_status mark_new_run(struct rundir *rundir, int fd, const char *path, struct fsdp_err *err)
{
    struct stat stat;
    char last = '\n', line[128];
    int n;

    if (fstat(fd, &stat) < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(stat.st_mode))
        return fsdp_fail(err, FSDP_ERR_IO, "%s is no regular file", path);
    if (stat.st_size == 0)
        return FSDP_OK;
    if (pread(fd, &last, 1, stat.st_size - 1) < 0)
        return file_fail(err, "read", path);
    n = snprintf(line, sizeof line, "%s--- fsdprun: run of %s, pid %d ---\n", last == '\n' ? "" : "\n",
                 rundir->begun, (int)getpid());
    /*
     * If the disk is full, the worker is started all the same; its log then meets the full disk and reports
     * it.
     */
    return file_write(fd, line, (size_t)n) || errno == ENOSPC || errno == EDQUOT
               ? FSDP_OK
               : file_fail(err, "write", path);
}

enum fsdp_status rundir_open_log(struct rundir *rundir, int generation, int rank, int local_rank,
                                 enum rundir_stream stream, int *fd, char *path, struct fsdp_err *err)
{
    enum fsdp_status status = rundir_rank_path(rundir, generation, rank, local_rank, path, err);

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
        rundir_set_path(path, err, "%s/%s%d", rundir->path, job ? "logs/g" : RUNDIR_ATTEMPT_PREFIX,
                        job ? generation : rundir->first_attempt + generation);

    *fd = -1;
    return status == FSDP_OK ? open_in(rundir, path, name, O_WRONLY, fd, err) : status;
}
