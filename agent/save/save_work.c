#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/save/save_impl.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/io_beneath.h"
#include "shard_runtime/shardfile/manifest.h"
#include "shard_runtime/shardfile/verify.h"

static void keep_line(void *context, const char *words)
{
    struct work *work = context;
    int n = snprintf(work->lines + work->lines_bytes, sizeof work->lines - work->lines_bytes, "%s\n", words);

    if (n > 0 && (size_t)n < sizeof work->lines - work->lines_bytes)
        work->lines_bytes += (size_t)n;
    else
        work->lines[work->lines_bytes] = '\0'; /* no room: the first lines say enough */
}

/* The head must be a file, because a pipe could block this thread for as long as the worker likes. */
static enum fsdp_status read_head(int fd, char **out, size_t *length, struct fsdp_err *err)
{
    struct stat stat = { 0 };
    enum fsdp_status status;

    if (fstat(fd, &stat) < 0 || !S_ISREG(stat.st_mode) || stat.st_size <= 0 ||
        stat.st_size > MANIFEST_MAX_BYTES)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "the manifest's head is no file, or has %lld bytes",
                         (long long)stat.st_size);
    status = file_read(fd, (size_t)stat.st_size, out, length);
    return status == FSDP_OK ? FSDP_OK : fsdp_fail(err, status, "the manifest's head cannot be read");
}

/*
 * Takes the lock of the checkpoints' directory. The run directory has a lock of its own, but a process
 * without an agent may save to the same checkpoints. If another process only cleans there, waits for
 * `wait_ms` at most. A leader that was replaced may be stopped, and still hold the lock.
 */
static enum fsdp_status lock_directory(struct work *work, int wait_ms, bool *held)
{
    struct fsdp_io *io = work->kind == WORK_PREPARE ? &work->files.base : work->io;
    const enum fsdp_status status =
        directory_lock_take_within(&work->save->locks, io, work->directory, wait_ms, held, &work->err);

    if (status != FSDP_ERR_BUSY || !work->save->handlers.replaces)
        return status;
    fsdp_err_clear(&work->err);
    return FSDP_OK;
}

/*
 * Cleans every directory that the program has named, since the ranks may have named several. After a
 * generation, when no rank writes, it removes all that is unfinished (`temporary` NULL). After a refused save
 * it removes only what has that save's name.
 */
static void clean_own(struct work *work, const char *temporary)
{
    const struct verify_log log = { keep_line, work };

    for (const struct save_own *own = work->own; own != NULL; own = own->next) {
        struct counting_io files;
        struct fsdp_io *root;
        bool held;

        work->at = own->path;
        if (io_beneath_open(&root, own->path, NULL) != FSDP_OK)
            continue;
        counting_io_init(&files, root, &work->n_done);
        if (temporary != NULL)
            (void)commit_abort(root, own->path, temporary, NULL);
        else if (directory_lock_take(&work->save->locks, &files.base, own->path, &held, NULL) == FSDP_OK &&
                 held)
            (void)commit_clean(&files.base, own->path, work->save->handlers.term, &log, NULL);
        io_beneath_destroy(root);
    }
}

static void publish(struct work *work)
{
    struct collection *collection = work->collection;
    const struct commit_fence fence = { .step = collection->step,
                                        .generation = collection->generation,
                                        .world_size = (uint32_t)collection->world_size,
                                        .term = work->save->handlers.term };
    const char *temporary = collection->temporary;
    const struct verify_log log = { keep_line, work };
    struct manifest_file *files = calloc((size_t)collection->world_size, sizeof *files);
    size_t n_files = 0, head_length = 0;
    char *head = NULL;
    bool held;

    if (collection->refused) {
        if (work->directory[0] != '\0')
            commit_abort(work->io, work->directory, temporary, NULL);
        clean_own(work, temporary);
        goto done;
    }
    if (files == NULL) {
        fsdp_fail(&work->err, FSDP_ERR_NOMEM, "out of memory");
        goto done;
    }
    for (int rank = 0; rank < collection->world_size; rank++) {
        const struct part *part = &collection->parts[rank];

        if (part->size_bytes == 0)
            continue; /* it owns no rows */
        files[n_files++] = (struct manifest_file){ .name = part->file,
                                                   .rank = (uint32_t)rank,
                                                   .size_bytes = part->size_bytes,
                                                   .checksum = { part->checksum[0], part->checksum[1] } };
        work->size_bytes += part->size_bytes;
    }
    if (lock_directory(work, DIRECTORY_LOCK_WAIT_MS, &held) != FSDP_OK ||
        commit_take_over(work->io, work->directory, fence.term, &log, &work->err) != FSDP_OK ||
        read_head(collection->head_fd, &head, &head_length, &work->err) != FSDP_OK) {
        commit_abort(work->io, work->directory, temporary, NULL);
    } else if (commit_publish(work->io, work->directory, temporary, &fence, head, head_length, files, n_files,
                              &work->err) == FSDP_OK) {
        work->seconds = (double)(clock_now_ns() - collection->started_ns) * 1e-9;
    }
done:
    free(files);
    free(head);
}

/*
 * Removes checkpoints that are too old now: the collection's step is published, and the ranks know it.
 * Removes what earlier generations left, too: a process of theirs may have made it after the last time. Only
 * the lock tells it from files of other runs, except in the run's own directory.
 */
static void retain(struct work *work)
{
    const struct collection *collection = work->collection;
    const struct verify_log log = { keep_line, work };
    struct fsdp_err err = { 0 };
    bool held;

    if (commit_retain(work->io, work->directory, collection->keep, collection->step, collection->loaded_step,
                      &log, &err) != FSDP_OK)
        verify_log_line(&log, "event=retain_failed reason=\"%s\"", err.message);
    if (lock_directory(work, 0, &held) == FSDP_OK && (held || collection->own == NULL))
        (void)commit_clean_before(work->io, work->directory, work->save->handlers.term,
                                  collection->generation, &log, NULL);
}

/*
 * Calls `function` for a directory that the program named. Symbolic links are followed by the rule of
 * core/beneath.h.
 */
static void work_in(struct work *work, const struct save_own *own, void (*function)(struct work *work))
{
    struct fsdp_io *root;

    if (io_beneath_open(&root, own->path, &work->err) != FSDP_OK)
        return;
    work->io = root;
    snprintf(work->directory, sizeof work->directory, "%s", own->path);
    function(work);
    io_beneath_destroy(root);
}

/*
 * Chooses how thoroughly the search verifies a step. After certain steps nothing is trained, so perhaps no
 * rank loads them; they are verified completely here.
 */
static enum fsdp_status choose_depth(const struct work *work, struct fsdp_io *io, enum verify_depth *depth,
                                     struct fsdp_err *err)
{
    int64_t *steps;
    size_t n_steps;

    OK_OR_RETURN(verify_list_steps(io, work->directory, &steps, &n_steps, err));
    *depth = n_steps > 0 && steps[0] >= work->save->handlers.last_step ? VERIFY_CHECKSUMS : VERIFY_SIZES;
    free(steps);
    return FSDP_OK;
}

/*
 * Removes what earlier saves left unfinished, while no rank of this run saves. Returns false if that could
 * not be done, or there is no directory; work->err says what failed.
 */
static bool clean_all(struct work *work)
{
    const struct save_handlers *handlers = &work->save->handlers;
    const struct verify_log log = { keep_line, work };
    struct fsdp_io *io = &work->files.base;
    bool held;

    clean_own(work, NULL);
    work->at = work->directory;
    if (work->directory[0] == '\0')
        return false;
    /*
     * A directory that may only be read has nothing to clean, but a run can resume from it. The wait is
     * without limit: no rank waits here, and search_watch.h ends a run whose disk does not answer.
     */
    if (lock_directory(work, INT_MAX, &held) == FSDP_ERR_BUSY)
        return false;
    fsdp_err_clear(&work->err);
    return commit_take_over(io, work->directory, handlers->term, &log, &work->err) == FSDP_OK &&
           commit_clean(io, work->directory, handlers->term, &log, &work->err) == FSDP_OK;
}

static void prepare(struct work *work)
{
    const struct save_handlers *handlers = &work->save->handlers;
    const struct verify_log log = { keep_line, work };
    struct fsdp_io *io = &work->files.base;
    enum verify_depth depth = VERIFY_SIZES;

    if (clean_all(work) && choose_depth(work, io, &depth, &work->err) == FSDP_OK &&
        verify_newest(io, work->directory, depth, &work->step, &log, &work->err) == FSDP_OK &&
        work->step >= 0 && handlers->weigh != NULL)
        (void)handlers->weigh(handlers->arg, io, work->directory, work->step, &work->err);
}

/* Cleans while a generation runs, which may be saving already: removes only what earlier generations left. */
static void clean(struct work *work)
{
    const struct verify_log log = { keep_line, work };

    (void)commit_clean_before(work->io, work->directory, work->save->handlers.term, work->generation, &log,
                              NULL);
}

void save_do_work(uv_work_t *request)
{
    struct work *work = request->data;

    void (*const function)(struct work * work) = work->kind == WORK_RETAIN ? retain : publish;

    if (work->kind == WORK_PREPARE)
        prepare(work);
    else if (work->kind == WORK_CLEAN_ALL)
        (void)clean_all(work);
    else if (work->kind == WORK_CLEAN)
        clean(work);
    else if (work->collection->own != NULL && !work->collection->refused)
        work_in(work, work->collection->own, function);
    else
        function(work);
}
