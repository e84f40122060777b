#include "shard_runtime/shardfile/commit.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "shard_runtime/core/files.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/contents.h"
#include "shard_runtime/shardfile/temporary_lock.h"

/* Names */

void commit_step_name(int64_t step, char out[COMMIT_NAME_BYTES])
{
    assert(step >= 0);
    snprintf(out, COMMIT_NAME_BYTES, "step-%08lld", (long long)step);
}

enum fsdp_status commit_step_path(const char *directory, int64_t step, char out[IO_PATH_BYTES],
                                  struct fsdp_err *err)
{
    char name[COMMIT_NAME_BYTES];

    commit_step_name(step, name);
    return io_join(out, directory, name, err);
}

/*
 * Reads the whole number at *at and moves *at to the byte after it; returns -1 if no digit is there. Accepts
 * leading zeros and numbers that are too large. Callers detect these: they write the name again from the
 * numbers and compare it with the input.
 */
static int64_t read_number(const char **at, int base)
{
    char *end;
    long long number;

    if (!isxdigit((unsigned char)**at))
        return -1;
    number = strtoll(*at, &end, base);
    *at = end;
    return number;
}

/*
 * Moves *at past the text `words` and returns true. Returns false if the text at *at does not begin with
 * `words`.
 */
static bool read_words(const char **at, const char *words)
{
    const size_t length = strlen(words);

    if (strncmp(*at, words, length) != 0)
        return false;
    *at += length;
    return true;
}

int64_t commit_parse_step(const char *name)
{
    char again[COMMIT_NAME_BYTES];
    const char *at = name;
    int64_t step;

    if (!read_words(&at, "step-") || (step = read_number(&at, 10)) < 0)
        return -1;
    commit_step_name(step, again);
    return strcmp(name, again) == 0 ? step : -1;
}

static void write_temporary_name(const struct commit_fence *save, uint32_t hash, char out[COMMIT_NAME_BYTES])
{
    char term[24] = "";

    if (save->term > 0)
        snprintf(term, sizeof term, ".t%llu", (unsigned long long)save->term);
    snprintf(out, COMMIT_NAME_BYTES, ".step-%08lld%s.g%lu.%08lx", (long long)save->step, term,
             (unsigned long)save->generation, (unsigned long)hash);
}

void commit_temporary_name(const struct commit_fence *save, const void *secret, size_t secret_bytes,
                           char out[COMMIT_NAME_BYTES])
{
    /* 32 bits of the secret's hash: enough to tell saves apart, far too few to recover the secret. */
    const uint64_t hash =
        XXH3_64bits_withSeed(secret, secret_bytes, (uint64_t)save->step ^ (uint64_t)save->generation << 40);

    assert(save->step >= 0);
    write_temporary_name(save, (uint32_t)(hash >> 32), out);
}

bool commit_parse_temporary(const char *name, struct commit_fence *save)
{
    int64_t step, term = 0, generation, hash;
    struct commit_fence found;
    char again[COMMIT_NAME_BYTES];
    const char *at = name;

    if (!read_words(&at, ".step-") || (step = read_number(&at, 10)) < 0 ||
        (read_words(&at, ".t") && (term = read_number(&at, 10)) < 0) || !read_words(&at, ".g") ||
        (generation = read_number(&at, 10)) < 0 || !read_words(&at, ".") ||
        (hash = read_number(&at, 16)) < 0 || generation > UINT32_MAX || hash > UINT32_MAX)
        return false;
    found = (struct commit_fence){ .step = step, .generation = (uint32_t)generation, .term = (uint64_t)term };
    write_temporary_name(&found, (uint32_t)hash, again);
    if (strcmp(name, again) != 0)
        return false;
    *save = found;
    return true;
}

/* Removing */

/*
 * Removes a directory and the files in it. We never write subdirectories into it; the function does not
 * remove one, and fails.
 */
static enum fsdp_status remove_directory(struct fsdp_io *io, const char *path, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;
    struct io_names names;
    struct io_stat stat;

    if (io->stat(io, path, &stat) < 0)
        return errno == ENOENT ? FSDP_OK : file_fail(err, "stat", path);
    /* A link has one of our names: remove the link itself, never its target. */
    if (stat.kind != IO_DIRECTORY) {
        if (io->unlink(io, path) < 0 && errno != ENOENT)
            return file_fail(err, "remove", path);
        return FSDP_OK;
    }
    if (io->list(io, path, &names) < 0)
        return file_fail(err, "list", path);
    for (size_t i = 0; i < names.n && status == FSDP_OK; i++) {
        char child[IO_PATH_BYTES];

        if (snprintf(child, sizeof child, "%s/%s", path, names.names[i]) >= (int)sizeof child)
            status =
                fsdp_fail(err, FSDP_ERR_ARG, "the path of %s in %.64s... is too long", names.names[i], path);
        else if (io->unlink(io, child) < 0 && errno != ENOENT)
            status = file_fail(err, "remove", child);
    }
    io_names_free(&names);
    if (status == FSDP_OK && io->rmdir(io, path) < 0 && errno != ENOENT)
        status = file_fail(err, "remove", path);
    return status;
}

/*
 * Renames directory/name to a trash name and syncs the rename, so that no reader finds it again. Deletes no
 * file. Another process may have removed it.
 */
static enum fsdp_status move_to_trash(struct fsdp_io *io, const char *directory, const char *name,
                                      char trash[IO_PATH_BYTES], struct fsdp_err *err)
{
    char trash_name[sizeof COMMIT_TRASH_PREFIX + COMMIT_NAME_BYTES], path[IO_PATH_BYTES];

    snprintf(trash_name, sizeof trash_name, COMMIT_TRASH_PREFIX "%s", name);
    OK_OR_RETURN(io_join(path, directory, name, err));
    OK_OR_RETURN(io_join(trash, directory, trash_name, err));
    OK_OR_RETURN(remove_directory(io, trash, err)); /* left by an interrupted deletion */
    if (io->rename(io, path, trash) < 0 && errno != ENOENT)
        return file_fail(err, "rename", path);
    return io_sync_directory(io, directory, err);
}

enum fsdp_status commit_abort(struct fsdp_io *io, const char *directory, const char *temporary,
                              struct fsdp_err *err)
{
    struct commit_fence save;
    char path[IO_PATH_BYTES];

    if (!commit_parse_temporary(temporary, &save))
        return fsdp_fail(err, FSDP_ERR_ARG, "\"%.80s\" is no temporary name of a checkpoint", temporary);
    OK_OR_RETURN(io_join(path, directory, temporary, err));
    return remove_directory(io, path, err);
}

/* Removes a leftover directory. If a save still needs it, keeps it and returns FSDP_ERR_BUSY. */
static enum fsdp_status remove_leftover(struct fsdp_io *io, const char *path, struct fsdp_err *err)
{
    int fd;
    enum fsdp_status status = temporary_claim(io, path, &fd, err);

    if (status == FSDP_OK)
        status = remove_directory(io, path, err);
    if (fd >= 0)
        (void)io->close(io, fd);
    return status;
}

static bool is_leftover(const char *name)
{
    struct commit_fence save;

    return commit_parse_temporary(name, &save) ||
           strncmp(name, COMMIT_TRASH_PREFIX, sizeof COMMIT_TRASH_PREFIX - 1) == 0;
}

static enum fsdp_status check_term(const char *name, uint64_t term, struct fsdp_err *err)
{
    struct commit_fence save;

    if (term == 0 || !commit_parse_temporary(name, &save) || save.term <= term)
        return FSDP_OK;
    return fsdp_fail(err, FSDP_ERR_BUSY, "it is of term %llu, after term %llu", (unsigned long long)save.term,
                     (unsigned long long)term);
}

/* Lists the names in `directory`. If it does not exist, the list is empty. */
static enum fsdp_status list_names(struct fsdp_io *io, const char *directory, struct io_names *names,
                                   struct fsdp_err *err)
{
    *names = (struct io_names){ 0 };
    if (io->list(io, directory, names) == 0 || errno == ENOENT)
        return FSDP_OK;
    return file_fail(err, "list", directory);
}

enum fsdp_status commit_take_over(struct fsdp_io *io, const char *directory, uint64_t term,
                                  const struct verify_log *log, struct fsdp_err *err)
{
    struct io_names names;

    if (term == 0)
        return FSDP_OK;
    OK_OR_RETURN(list_names(io, directory, &names, err));
    for (size_t i = 0; i < names.n; i++) {
        struct fsdp_err why = { 0 };
        char trash[IO_PATH_BYTES];
        struct commit_fence save;

        if (!commit_parse_temporary(names.names[i], &save) || save.term == 0 || save.term >= term)
            continue;
        if (move_to_trash(io, directory, names.names[i], trash, &why) == FSDP_OK)
            verify_log_line(log, "event=checkpoint_taken_over name=%s", names.names[i]);
        else
            verify_log_line(log, "event=checkpoint_not_taken_over name=%s reason=\"%s\"", names.names[i],
                            why.message);
    }
    io_names_free(&names);
    return FSDP_OK;
}

#define EVERY_GENERATION UINT64_MAX

/*
 * Removes leftovers, but keeps temporary directories of `generation` or a later one: they may belong to saves
 * that are still running.
 */
static enum fsdp_status clean(struct fsdp_io *io, const char *directory, uint64_t term, uint64_t generation,
                              const struct verify_log *log, struct fsdp_err *err)
{
    struct io_names names;
    bool synced = false;

    OK_OR_RETURN(list_names(io, directory, &names, err));
    for (size_t i = 0; i < names.n; i++) {
        struct fsdp_err why = { 0 };
        struct commit_fence save;
        char path[IO_PATH_BYTES];

        if (!is_leftover(names.names[i]) ||
            (commit_parse_temporary(names.names[i], &save) && save.generation >= generation))
            continue;
        /*
         * Sync before removing. A save that could not sync its swap of two names may have left this directory
         * with another name on the disk.
         */
        if (!synced && io_sync_directory(io, directory, &why) == FSDP_OK)
            synced = true;
        if (synced && check_term(names.names[i], term, &why) == FSDP_OK &&
            io_join(path, directory, names.names[i], &why) == FSDP_OK &&
            remove_leftover(io, path, &why) == FSDP_OK)
            verify_log_line(log, "event=checkpoint_cleaned name=%s", names.names[i]);
        else if (why.status != FSDP_ERR_BUSY || generation == EVERY_GENERATION)
            verify_log_line(log, "event=checkpoint_not_cleaned name=%s reason=\"%s\"", names.names[i],
                            why.message);
    }
    io_names_free(&names);
    return FSDP_OK;
}

enum fsdp_status commit_clean(struct fsdp_io *io, const char *directory, uint64_t term,
                              const struct verify_log *log, struct fsdp_err *err)
{
    return clean(io, directory, term, EVERY_GENERATION, log, err);
}

enum fsdp_status commit_clean_before(struct fsdp_io *io, const char *directory, uint64_t term,
                                     uint32_t generation, const struct verify_log *log, struct fsdp_err *err)
{
    return clean(io, directory, term, generation, log, err);
}

/* Publishing */

enum fsdp_status commit_begin(struct fsdp_io *io, const char *directory, const char *temporary,
                              struct fsdp_err *err)
{
    char path[IO_PATH_BYTES];

    OK_OR_RETURN(io_join(path, directory, temporary, err));
    OK_OR_RETURN(io_make_directories(io, directory, err));
    if (io->mkdir(io, path, 0777) < 0) {
        const int error = errno;
        struct io_stat stat;

        if (error != EEXIST || io->stat(io, path, &stat) < 0 || stat.kind != IO_DIRECTORY)
            return fsdp_fail(err, FSDP_ERR_IO, "create %s: %s", path, file_error_words(error));
    }
    return FSDP_OK;
}

static enum fsdp_status check_fence(const char *temporary, const struct commit_fence *fence, const char *head,
                                    size_t head_length, struct fsdp_err *err)
{
    struct manifest manifest;
    enum fsdp_status status = FSDP_OK;
    struct commit_fence save;

    if (!commit_parse_temporary(temporary, &save))
        return fsdp_fail(err, FSDP_ERR_ARG, "\"%.80s\" is no temporary name of a checkpoint", temporary);
    if (save.step != fence->step || save.generation != fence->generation || save.term != fence->term)
        return fsdp_fail(err, FSDP_ERR_MISMATCH, "%s is not of step %lld, generation %lu, term %llu",
                         temporary, (long long)fence->step, (unsigned long)fence->generation,
                         (unsigned long long)fence->term);
    OK_OR_RETURN(manifest_parse_head(&manifest, head, head_length, err));
    if (manifest.step != (uint64_t)fence->step || manifest.generation != fence->generation ||
        manifest.world_size != fence->world_size)
        status =
            fsdp_fail(err, FSDP_ERR_MISMATCH,
                      "a head of step %llu, generation %llu, %llu ranks, where %lld, %lu, %lu are current",
                      (unsigned long long)manifest.step, (unsigned long long)manifest.generation,
                      (unsigned long long)manifest.world_size, (long long)fence->step,
                      (unsigned long)fence->generation, (unsigned long)fence->world_size);
    manifest_free(&manifest);
    return status;
}

/* Writes the manifest into the temporary directory, reads the whole directory back, and syncs it. */
static enum fsdp_status complete(struct fsdp_io *io, const char *path, const char *text, size_t length,
                                 struct fsdp_err *err)
{
    char manifest_path[IO_PATH_BYTES];
    enum fsdp_status status;
    struct contents contents;

    OK_OR_RETURN(io_join(manifest_path, path, MANIFEST_FILE, err));
    /* the files' names are durable before the manifest names them */
    OK_OR_RETURN(io_sync_directory(io, path, err));
    if (io->unlink(io, manifest_path) < 0 && errno != ENOENT)
        return file_fail(err, "remove", manifest_path);
    status = io_write_file(io, manifest_path, text, length, err);
    if (status == FSDP_OK)
        status = contents_read(io, path, &contents, err);
    if (status == FSDP_ERR_NOT_FOUND)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%s", err != NULL ? err->message : "");
    OK_OR_RETURN(status);
    contents_free(&contents);
    return io_sync_directory(io, path, err);
}

/*
 * Syncs `directory` after the step got its final name. An error must report that state: nothing may be
 * removed any more.
 */
static enum fsdp_status sync_names(struct fsdp_io *io, const char *directory, const char *final_path,
                                   const char *replaced, struct fsdp_err *err)
{
    const enum fsdp_status status = io_sync_directory(io, directory, err);

    if (status != FSDP_OK)
        fsdp_wrap(err, "%s is complete and in place%s%s, but a power failure may still undo that", final_path,
                  replaced == NULL ? "" : ", and what it replaced is kept as ",
                  replaced == NULL ? "" : replaced);
    return status;
}

/*
 * Publishes over an existing checkpoint of the same step, valid or damaged. Sets *in_place as publish() does,
 * even on failure.
 */
static enum fsdp_status replace(struct fsdp_io *io, const char *directory, const char *path,
                                const char *final_name, const char *final_path, bool *in_place,
                                struct fsdp_err *err)
{
    char trash[IO_PATH_BYTES];
    enum fsdp_status status;

    if (io->exchange(io, path, final_path) == 0) {
        *in_place = true;
        status = sync_names(io, directory, final_path, path, err);
        /* `path` now names the older checkpoint. commit_clean() later removes what may remain of it. */
        if (status == FSDP_OK)
            (void)remove_directory(io, path, NULL);
        return status;
    }
    if (errno != EINVAL)
        return fsdp_fail(err, FSDP_ERR_IO, "swap %s and %s: %s", path, final_path, file_error_words(errno));
    if (verify_step(io, final_path, VERIFY_CHECKSUMS, NULL, NULL) == FSDP_OK)
        return fsdp_fail(err, FSDP_ERR_BUSY,
                         "%s is there already, and this file system cannot swap directories", final_path);
    OK_OR_RETURN(move_to_trash(io, directory, final_name, trash, err));
    if (io->rename(io, path, final_path) < 0)
        return file_fail(err, "rename", path);
    *in_place = true;
    OK_OR_RETURN(sync_names(io, directory, final_path, NULL, err));
    (void)remove_directory(io, trash, NULL);
    return FSDP_OK;
}

/*
 * Sets *in_place once the temporary directory has the step's final name, even if the status is not FSDP_OK.
 */
static enum fsdp_status publish(struct fsdp_io *io, const char *directory, const char *temporary,
                                const struct commit_fence *fence, const char *head, size_t head_length,
                                const struct manifest_file *files, size_t n_files, bool *in_place,
                                struct fsdp_err *err)
{
    char path[IO_PATH_BYTES], final_path[IO_PATH_BYTES], final_name[COMMIT_NAME_BYTES], *text = NULL;
    enum fsdp_status status;
    size_t length = 0;

    OK_OR_RETURN(check_fence(temporary, fence, head, head_length, err));
    commit_step_name(fence->step, final_name);
    OK_OR_RETURN(io_join(path, directory, temporary, err));
    OK_OR_RETURN(io_join(final_path, directory, final_name, err));
    OK_OR_RETURN(manifest_compose(head, head_length, files, n_files, &text, &length, err));
    status = complete(io, path, text, length, err);
    free(text);
    if (status != FSDP_OK)
        return status;
    if (io->rename(io, path, final_path) == 0) {
        *in_place = true;
        return sync_names(io, directory, final_path, NULL, err);
    }
    if (errno == EEXIST || errno == ENOTDIR)
        return replace(io, directory, path, final_name, final_path, in_place, err);
    return file_fail(err, "rename", path);
}

enum fsdp_status commit_publish(struct fsdp_io *io, const char *directory, const char *temporary,
                                const struct commit_fence *fence, const char *head, size_t head_length,
                                const struct manifest_file *files, size_t n_files, struct fsdp_err *err)
{
    bool in_place = false;
    const enum fsdp_status status =
        publish(io, directory, temporary, fence, head, head_length, files, n_files, &in_place, err);

    if (status != FSDP_OK && !in_place)
        (void)commit_abort(io, directory, temporary, NULL);
    return status;
}

/* Retention */

static void delete_step(struct fsdp_io *io, const char *directory, int64_t step, const struct verify_log *log)
{
    char name[COMMIT_NAME_BYTES], trash[IO_PATH_BYTES];
    struct fsdp_err why = { 0 };

    commit_step_name(step, name);
    /* A deletion is routine and gets no line; a failed one is logged, because it fills the disk. */
    if (move_to_trash(io, directory, name, trash, &why) != FSDP_OK ||
        remove_directory(io, trash, &why) != FSDP_OK)
        verify_log_line(log, "event=checkpoint_not_deleted step=%lld reason=\"%s\"", (long long)step,
                        why.message);
}

enum fsdp_status commit_retain(struct fsdp_io *io, const char *directory, uint32_t keep,
                               int64_t published_step, int64_t loaded_step, const struct verify_log *log,
                               struct fsdp_err *err)
{
    uint32_t n_kept = 0;
    int64_t *steps;
    size_t n_steps;

    if (keep == 0)
        return FSDP_OK;
    OK_OR_RETURN(verify_list_steps(io, directory, &steps, &n_steps, err));
    for (size_t i = 0; i < n_steps; i++) {
        if (steps[i] > published_step)
            continue;
        if (n_kept == keep) {
            if (steps[i] != loaded_step)
                delete_step(io, directory, steps[i], log);
        } else if (verify_named_step(io, directory, steps[i], VERIFY_SIZES, NULL) == FSDP_OK) {
            n_kept++; /* a broken one does not count: the run could not resume from it */
        }
    }
    free(steps);
    return FSDP_OK;
}
