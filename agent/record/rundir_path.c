#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/record/rundir_impl.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/require.h"

enum fsdp_status rundir_set_path(char *path, struct fsdp_err *err, const char *format, ...)
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
    return rundir_set_path(path, err, "%s%s%.*s/%s", here, dir[0] == '/' || length == 0 ? "" : "/",
                           (int)length, dir, name);
}

enum fsdp_status rundir_job_path(char *path, const char *dir, const char *name, struct fsdp_err *err)
{
    if (name[0] == '\0' || strchr(name, '/') != NULL || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "run.name: \"%s\" is not one path component", name);
    return absolute(path, dir, name, err);
}

enum fsdp_status rundir_named_path(char *path, const char *dir, struct fsdp_err *err)
{
    OK_OR_RETURN(absolute(path, dir, ".", err));
    path[strlen(path) - 2] = '\0'; /* "/." */
    return path[0] != '\0' ? FSDP_OK : fsdp_fail(err, FSDP_ERR_CONFIG, "/ cannot be a run directory");
}

enum fsdp_status rundir_make_folders(const char *path, struct fsdp_err *err)
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

            /*
             * Some systems report EROFS or EACCES when mkdir() is called for an existing directory, so first
             * see whether it exists.
             */
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

const char *rundir_temporary_of(const char *named)
{
    struct stat stat_of;

    return named != NULL && named[0] == '/' && stat(named, &stat_of) == 0 && S_ISDIR(stat_of.st_mode) &&
                   access(named, W_OK | X_OK) == 0
               ? named
               : "/tmp";
}

const char *rundir_temporary(void)
{
    return rundir_temporary_of(getenv("TMPDIR"));
}

/* "<run id>_<eight random letters>" as one name of a file. False: the system gives no random bytes. */
static bool make_name(char name[NAME_MAX + 1], const char *run_id)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    unsigned char random[8];
    char suffix[sizeof random + 1] = "";

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return false;
    for (size_t i = 0; i < sizeof random; i++)
        suffix[i] = letters[random[i] % (sizeof letters - 1)];
    snprintf(name, NAME_MAX + 1, "%.200s_%s", run_id, suffix);
    for (char *c = name; (c = strchr(c, '/')) != NULL;)
        *c = '_';
    return true;
}

enum fsdp_status rundir_program_path(char *path, const char *dir, const char *run_id, struct fsdp_err *err)
{
    char parent[RUNDIR_PATH_BYTES], name[NAME_MAX + 1];

    OK_OR_RETURN(
        absolute(parent, dir != NULL ? dir : rundir_temporary(), dir != NULL ? "." : "fsdprun_XXXXXX", err));
    if (dir == NULL && mkdtemp(parent) == NULL)
        return file_fail(err, "create", parent);
    if (dir != NULL)
        parent[strlen(parent) - 2] = '\0'; /* "/." */
    OK_OR_RETURN(rundir_make_folders(parent, err));
    for (int tries = 0; tries < 100; tries++) {
        if (!make_name(name, run_id))
            return fsdp_fail(err, FSDP_ERR_IO, "getrandom: %s", strerror(errno));
        OK_OR_RETURN(rundir_set_path(path, err, "%s/%s", parent, name));
        if (mkdir(path, 0777) == 0)
            return FSDP_OK;
        if (errno != EEXIST)
            break;
    }
    return file_fail(err, "create", path);
}
