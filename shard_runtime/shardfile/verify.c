#include "shard_runtime/shardfile/verify.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "shard_runtime/core/files.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/contents.h"

enum { BUFFER_BYTES = 4 << 20 };

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

/* State for hashing files: each file is read through `buffer`. */
struct hasher {
    XXH3_state_t *state;
    unsigned char *buffer;
    size_t buffer_bytes;
};

/* Hashes a whole file into hasher->state; *size_bytes receives its size. */
static enum fsdp_status hash_file(struct fsdp_io *io, const char *path, const struct hasher *hasher,
                                  uint64_t *size_bytes, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;
    int fd;

    OK_OR_RETURN(io_open_read(io, path, &fd, size_bytes, err));
    XXH3_128bits_reset(hasher->state);
    for (uint64_t at = 0; at < *size_bytes && status == FSDP_OK;) {
        const uint64_t left = *size_bytes - at;
        const size_t n = left < hasher->buffer_bytes ? (size_t)left : hasher->buffer_bytes;

        status = io_read_all(io, fd, hasher->buffer, n, at, path, err);
        if (status == FSDP_OK)
            XXH3_128bits_update(hasher->state, hasher->buffer, n);
        at += n;
    }
    io->close(io, fd);
    return status;
}

static enum fsdp_status verify_file(struct fsdp_io *io, const char *step_directory,
                                    const struct manifest_file *file, const struct hasher *hasher,
                                    struct fsdp_err *err)
{
    char path[IO_PATH_BYTES];
    uint64_t size_bytes = 0;
    XXH128_hash_t hash;

    OK_OR_RETURN(io_join(path, step_directory, file->name, err));
    OK_OR_RETURN(hash_file(io, path, hasher, &size_bytes, err));
    hash = XXH3_128bits_digest(hasher->state);
    if (size_bytes != file->size_bytes || hash.low64 != file->checksum[0] || hash.high64 != file->checksum[1])
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%s: the checksum does not hold: the file is damaged", path);
    return FSDP_OK;
}

/* Verifies the checksums of file `part` and of every n_parts-th file after it. */
static enum fsdp_status verify_checksums(struct fsdp_io *io, const char *step_directory, size_t part,
                                         size_t n_parts, struct fsdp_err *err)
{
    struct hasher hasher = { .buffer_bytes = 4096 };
    struct manifest manifest;
    enum fsdp_status status = FSDP_OK;

    OK_OR_RETURN(manifest_read(io, step_directory, &manifest, err));
    for (size_t i = part; i < manifest.n_files; i += n_parts)
        while (hasher.buffer_bytes < manifest.files[i].size_bytes && hasher.buffer_bytes < BUFFER_BYTES)
            hasher.buffer_bytes *= 2;
    hasher.buffer = malloc(hasher.buffer_bytes);
    hasher.state = XXH3_createState();
    if (hasher.buffer == NULL || hasher.state == NULL)
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "%zu bytes to verify with", hasher.buffer_bytes);
    for (size_t i = part; i < manifest.n_files && status == FSDP_OK; i += n_parts)
        status = verify_file(io, step_directory, &manifest.files[i], &hasher, err);
    manifest_free(&manifest);
    XXH3_freeState(hasher.state);
    free(hasher.buffer);
    return status;
}

enum fsdp_status verify_step(struct fsdp_io *io, const char *step_directory, enum verify_depth depth,
                             struct manifest *manifest, struct fsdp_err *err)
{
    struct contents contents;

    if (manifest != NULL)
        *manifest = (struct manifest){ 0 };
    /*
     * Verify checksums first: a wrong checksum names the damaged file. Headers may only show that two files
     * contradict each other.
     */
    if (depth == VERIFY_CHECKSUMS) {
        OK_OR_RETURN(verify_checksums(io, step_directory, 0, 1, err));
    }
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

enum fsdp_status verify_named_part(struct fsdp_io *io, const char *directory, int64_t step, size_t part,
                                   size_t n_parts, struct fsdp_err *err)
{
    char path[IO_PATH_BYTES];
    enum fsdp_status status = commit_step_path(directory, step, path, err);

    if (status == FSDP_OK)
        status = verify_checksums(io, path, part, n_parts, err);
    return status != FSDP_OK ? status : verify_named_step(io, directory, step, VERIFY_STRUCTURE, err);
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
            fsdp_fail(err, status, "%s", reason.message); /* no statement about the checkpoint */
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
