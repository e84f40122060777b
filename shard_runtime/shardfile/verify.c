#include "shard_runtime/shardfile/verify.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/files.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/contents.h"
#include "shard_runtime/shardfile/file_sum.h"

void verify_log_line(const struct verify_log *log, const char *format, ...)
{
    char words[1024];
    va_list args;

    if (log == NULL || log->line == NULL)
        return;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    log->line(log->context, words);
}

static enum fsdp_status verify_file(struct fsdp_io *io, const char *step_directory,
                                    const struct manifest_file *file, struct file_sum *sum,
                                    struct fsdp_err *err)
{
    char path[IO_PATH_BYTES];
    enum fsdp_status status;
    uint64_t size_bytes;
    int fd;

    OK_OR_RETURN(io_join(path, step_directory, file->name, err));
    OK_OR_RETURN(io_open_read(io, path, &fd, &size_bytes, err));
    file_sum_begin(sum);
    status = file_sum_read(sum, io, fd, size_bytes, path, err);
    io->close(io, fd);
    return status == FSDP_OK ? file_sum_check(sum, file, path, err) : status;
}

static enum fsdp_status verify_checksums(struct fsdp_io *io, const char *step_directory, struct fsdp_err *err)
{
    struct manifest manifest;
    struct file_sum *sum;
    enum fsdp_status status;

    OK_OR_RETURN(manifest_read(io, step_directory, &manifest, err));
    status = file_sum_create(&sum, err);
    for (size_t i = 0; i < manifest.n_files && status == FSDP_OK; i++)
        status = verify_file(io, step_directory, &manifest.files[i], sum, err);
    file_sum_destroy(sum);
    manifest_free(&manifest);
    return status;
}

enum fsdp_status verify_step(struct fsdp_io *io, const char *step_directory, enum verify_depth depth,
                             struct manifest *manifest, struct fsdp_err *err)
{
    struct contents contents = { 0 };

    if (manifest != NULL)
        *manifest = (struct manifest){ 0 };
    /*
     * Verify checksums first: a wrong checksum names the damaged file. Headers may only show that two files
     * contradict each other.
     */
    if (depth == VERIFY_CHECKSUMS)
        OK_OR_RETURN(verify_checksums(io, step_directory, err));
    if (depth == VERIFY_SIZES)
        OK_OR_RETURN(contents_read_sizes(io, step_directory, &contents.manifest, err));
    else
        OK_OR_RETURN(contents_read(io, step_directory, &contents, err));
    if (manifest != NULL) {
        *manifest = contents.manifest;
        contents.manifest = (struct manifest){ 0 };
    }
    contents_free(&contents);
    return FSDP_OK;
}

static int newest_first(const void *a, const void *b)
{
    const int64_t one = *(const int64_t *)a, two = *(const int64_t *)b;

    return (one < two) - (one > two);
}

enum fsdp_status verify_list_steps(struct fsdp_io *io, const char *directory, int64_t **steps,
                                   size_t *n_steps, struct fsdp_err *err)
{
    struct io_names names;
    int64_t *found;
    size_t n = 0;

    *steps = NULL;
    *n_steps = 0;
    if (io->list(io, directory, &names) < 0) {
        if (errno == ENOENT)
            return FSDP_OK;
        return file_fail(err, "list", directory);
    }
    found = calloc(names.n + 1, sizeof *found);
    if (found == NULL) {
        io_names_free(&names);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu names", names.n);
    }
    for (size_t i = 0; i < names.n; i++) {
        const int64_t step = commit_parse_step(names.names[i]);

        if (step >= 0)
            found[n++] = step;
    }
    io_names_free(&names);
    qsort(found, n, sizeof *found, newest_first);
    *steps = found;
    *n_steps = n;
    return FSDP_OK;
}

enum fsdp_status verify_named_step(struct fsdp_io *io, const char *directory, int64_t step,
                                   enum verify_depth depth, struct fsdp_err *err)
{
    char path[IO_PATH_BYTES];
    struct manifest manifest;
    enum fsdp_status status = commit_step_path(directory, step, path, err);

    if (status == FSDP_OK)
        status = verify_step(io, path, depth, &manifest, err);
    if (status != FSDP_OK)
        return status;
    if (manifest.step != (uint64_t)step)
        status =
            fsdp_fail(err, FSDP_ERR_FORMAT, "%s holds step %llu", path, (unsigned long long)manifest.step);
    manifest_free(&manifest);
    return status;
}

enum fsdp_status verify_newest(struct fsdp_io *io, const char *directory, enum verify_depth depth,
                               int64_t *step, const struct verify_log *log, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;
    struct fsdp_err why = { 0 };
    int64_t *steps;
    size_t n_steps;

    *step = -1;
    OK_OR_RETURN(verify_list_steps(io, directory, &steps, &n_steps, err));
    for (size_t i = 0; i < n_steps && *step < 0; i++) {
        struct fsdp_err reason = { 0 };

        status = verify_named_step(io, directory, steps[i], depth, &reason);
        if (status == FSDP_ERR_NOMEM) {
            /* running out of memory says nothing about the checkpoint */
            fsdp_fail(err, status, "%s", reason.message);
            goto done;
        }
        if (status == FSDP_OK)
            *step = steps[i];
        else
            verify_log_line(log, "event=checkpoint_skipped step=%lld reason=\"%s\"", (long long)steps[i],
                            reason.message);
        if (i == 0)
            why = reason;
    }
    status = FSDP_OK;
    if (*step < 0 && n_steps > 0)
        status =
            fsdp_fail(err, FSDP_ERR_FORMAT, "none of the %zu checkpoints in %s can be used; the newest: %s",
                      n_steps, directory, why.message);
done:
    free(steps);
    return status;
}
