#include "agent/record/rundir_impl.h"
#include "shard_runtime/core/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

static const char attempt_prefix[] = RUNDIR_ATTEMPT_PREFIX, mark_prefix[] = ".nodes-";

/* Returns the number of an attempt's folder; -1: the name is not that of one. */
static int attempt_of(const char *name)
{
    const char *digits = name + sizeof attempt_prefix - 1;
    char *end;
    long number;

    if (strncmp(name, attempt_prefix, sizeof attempt_prefix - 1) != 0 || *digits < '0' || *digits > '9')
        return -1;
    errno = 0;
    number = strtol(digits, &end, 10);
    return *end == '\0' && errno == 0 && number < INT_MAX / 2 ? (int)number : -1;
}

DIR *rundir_list(int parent_fd, const char *name)
{
    const int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (dir == NULL && fd >= 0) {
        const int error = errno;

        close(fd);
        errno = error;
    }
    return dir;
}

enum fsdp_status rundir_look_back(struct rundir *rundir, struct fsdp_err *err)
{
    DIR *dir = rundir_list(rundir->fd, ".");
    struct dirent *entry;

    if (dir == NULL)
        return file_fail(err, "list", rundir->path);
    while ((entry = readdir(dir)) != NULL) {
        const int attempt = attempt_of(entry->d_name);

        if (attempt >= rundir->first_attempt)
            rundir->first_attempt = attempt + 1;
        if (strncmp(entry->d_name, mark_prefix, sizeof mark_prefix - 1) == 0)
            unlinkat(rundir->fd, entry->d_name, 0);
    }
    closedir(dir);
    return FSDP_OK;
}

void rundir_remove_mark(struct rundir *rundir)
{
    if (rundir->mark[0] != '\0')
        unlinkat(rundir->fd, rundir->mark, 0);
    rundir->mark[0] = '\0';
}

int rundir_first_attempt(const struct rundir *rundir)
{
    return rundir->first_attempt;
}

void rundir_set_first_attempt(struct rundir *rundir, int first_attempt)
{
    if (rundir->first_attempt != first_attempt) /* the disk's thread may be reading it */
        rundir->first_attempt = first_attempt;
}

/*
 * The name of the mark is a hash of the token, because the token is a secret. It is new in each generation,
 * so no node has cached that there is no such name.
 */
static void name_mark(const unsigned char token[32], char out[32])
{
    snprintf(out, 32, "%s%016llx", mark_prefix, (unsigned long long)XXH3_64bits(token, 32));
}

enum fsdp_status rundir_mark(struct rundir *rundir, const unsigned char token[32], struct fsdp_err *err)
{
    char name[32];
    int fd;

    name_mark(token, name);
    fd = openat(rundir->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "create %s/%s: %s", rundir->path, name, strerror(errno));
    close(fd);
    rundir_remove_mark(rundir);
    snprintf(rundir->mark, sizeof rundir->mark, "%s", name);
    return FSDP_OK;
}

enum fsdp_status rundir_find_mark(const struct rundir *rundir, const unsigned char token[32],
                                  struct fsdp_err *err)
{
    char name[32];

    name_mark(token, name);
    return faccessat(rundir->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0
               ? FSDP_OK
               : fsdp_fail(err, FSDP_ERR_CONFIG,
                           "--run-dir: this node does not see the directory of the node that hosts, and all "
                           "nodes must share it: %s",
                           rundir->path);
}
