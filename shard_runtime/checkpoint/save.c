#include "shard_runtime/checkpoint/save.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "shard_runtime/checkpoint/report.h"
#include "shard_runtime/checkpoint/shards.h"
#include "shard_runtime/comm/link_client.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/contents.h"
#include "shard_runtime/shardfile/directory_lock.h"
#include "shard_runtime/shardfile/io_anywhere.h"
#include "shard_runtime/shardfile/safetensors.h"
#include "shard_runtime/shardfile/temporary_lock.h"

enum fsdp_status checkpoint_head(const struct checkpoint_state *state, uint32_t generation, int W,
                                 const struct checkpoint_tensor *tensors, size_t n_tensors, char **text,
                                 size_t *length, struct fsdp_err *err)
{
    struct manifest head = { .step = (uint64_t)state->step,
                             .world_size = (uint64_t)W,
                             .generation = generation,
                             .seed = state->seed,
                             .cursor = state->cursor,
                             .optimizer_step = state->optimizer_step,
                             .numerics = state->numerics,
                             .job = state->job,
                             .extra = state->extra,
                             .n_tensors = n_tensors };
    enum fsdp_status status;

    *text = NULL;
    head.tensors = calloc(n_tensors + 1, sizeof *head.tensors);
    if (head.tensors == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu tensors", n_tensors);
    for (size_t i = 0; i < n_tensors; i++) {
        struct manifest_tensor *tensor = &head.tensors[i];

        tensor->name = tensors[i].name;
        tensor->dtype = tensors[i].dtype;
        tensor->n_dims = tensors[i].n_dims;
        memcpy(tensor->shape, tensors[i].shape, sizeof tensor->shape);
    }
    status = manifest_head_text(&head, text, length, err);
    free(head.tensors);
    return status;
}

enum fsdp_status checkpoint_write_part(struct fsdp_io *io, const char *directory, const char *temporary,
                                       const struct checkpoint_state *state, uint32_t generation, int W,
                                       int rank, const struct checkpoint_tensor *tensors, size_t n_tensors,
                                       struct checkpoint_part *part, struct fsdp_err *err)
{
    const struct shards_save save = { state->step, generation, W, rank };
    char folder[IO_PATH_BYTES], path[IO_PATH_BYTES];
    struct shards_marks marks;
    struct safetensors_tensor *shards;
    struct safetensors_written written = { 0 };
    enum fsdp_status status;
    size_t n_shards = 0;

    *part = (struct checkpoint_part){ 0 };
    shards_mark(&marks, &save);
    manifest_shard_name((uint32_t)rank, part->file);
    shards = calloc(n_tensors + 1, sizeof *shards);
    if (shards == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu tensors", n_tensors);
    status = shards_describe(tensors, n_tensors, W, rank, false, shards, &n_shards, err);
    if (status == FSDP_OK)
        status = commit_begin(io, directory, temporary, err);
    if (status == FSDP_OK)
        status = io_join(folder, directory, temporary, err);
    if (status == FSDP_OK)
        status = io_join(path, folder, part->file, err);
    if (status == FSDP_OK && n_shards > 0)
        status = safetensors_write(io, path, shards, n_shards, marks.list, SHARDS_MARKS,
                                   SAFETENSORS_ALIGNMENT, true, &written, err);
    part->size_bytes = written.size_bytes;
    memcpy(part->checksum, written.checksum, sizeof part->checksum);
    free(shards);
    return status;
}

/*
 * Makes the name of this save's temporary directory. All ranks under one agent derive the same name from the
 * generation's token. Without an agent the name is random, so no other process uses it.
 */
static enum fsdp_status name_temporary(const struct checkpoint_save_options *options,
                                       const struct commit_fence *fence, char temporary[COMMIT_NAME_BYTES],
                                       struct fsdp_err *err)
{
    const struct fsdp_link_hello *hello = link_hello(options->link);
    unsigned char random[16];
    ssize_t n;

    if (!link_alone(options->link)) {
        commit_temporary_name(fence, hello->token, sizeof hello->token, temporary);
        return FSDP_OK;
    }
    do
        n = getrandom(random, sizeof random, 0);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof random)
        return fsdp_fail(err, FSDP_ERR_IO, "getrandom: %s", strerror(errno));
    commit_temporary_name(fence, random, sizeof random, temporary);
    return FSDP_OK;
}

/*
 * Makes the directory and takes its lock. With the lock, removes unfinished saves of processes that have
 * ended; some file systems have no locks.
 */
static enum fsdp_status begin_alone(const struct checkpoint_save_options *options,
                                    struct directory_lock **locks, struct fsdp_io *io, const char *directory,
                                    struct fsdp_err *err)
{
    bool held = false;

    OK_OR_RETURN(io_make_directories(io, directory, err));
    OK_OR_RETURN(directory_lock_take(locks, io, directory, &held, err));
    return held ? commit_clean(io, directory, 0, options->log, err) : FSDP_OK;
}

static enum fsdp_status publish_alone(const struct checkpoint_save_options *options, struct fsdp_io *io,
                                      const char *directory, const char *temporary,
                                      const struct commit_fence *fence, const char *head, size_t head_length,
                                      const struct checkpoint_part *part, struct fsdp_err *err)
{
    const struct manifest_file file = { .name = part->file,
                                        .size_bytes = part->size_bytes,
                                        .checksum = { part->checksum[0], part->checksum[1] } };
    struct fsdp_err why = { 0 };

    OK_OR_RETURN(
        commit_publish(io, directory, temporary, fence, head, head_length, &file, part->size_bytes > 0, err));
    /* A failure to delete old checkpoints does not make this save fail. */
    if (commit_retain(io, directory, options->keep, fence->step, options->loaded_step, options->log, &why) !=
        FSDP_OK)
        verify_log_line(options->log, "event=checkpoint_retention_failed reason=\"%s\"", why.message);
    return FSDP_OK;
}

static enum fsdp_status publish_by_agent(const struct checkpoint_save_options *options, int64_t step,
                                         const char *temporary, const char *head, size_t head_length,
                                         const struct checkpoint_part *part, int64_t started_ns,
                                         enum fsdp_status status, struct fsdp_err *err)
{
    struct fsdp_link_saved saved = { .step = step,
                                     .keep = options->keep,
                                     .started_ns = started_ns,
                                     .loaded_step = options->loaded_step,
                                     .size_bytes = part->size_bytes };
    struct fsdp_err link_err = { 0 };

    memcpy(saved.checksum, part->checksum, sizeof saved.checksum);
    if (options->directory != NULL)
        snprintf(saved.directory, sizeof saved.directory, "%s", options->directory);
    snprintf(saved.temporary, sizeof saved.temporary, "%s", temporary);
    snprintf(saved.file, sizeof saved.file, "%s", part->file);
    saved.status = (uint32_t)status;
    if (status != FSDP_OK)
        snprintf(saved.words, sizeof saved.words, "%s", err->message);
    status = report_send(options->link, &saved, head, head_length, &link_err);
    if (status == FSDP_OK)
        status = report_wait(options->link, step, (enum fsdp_status)saved.status, &link_err);
    return status == FSDP_OK ? FSDP_OK : fsdp_fail(err, status, "%s", link_err.message);
}

static enum fsdp_status directory_of(const struct checkpoint_save_options *options, char out[IO_PATH_BYTES],
                                     struct fsdp_err *err)
{
    const char *named = options->directory;

    if (named == NULL)
        named = link_hello(options->link)->checkpoint_dir;
    if (named[0] == '\0')
        return fsdp_fail(err, FSDP_ERR_ARG, "there is no run directory to save in");
    if (snprintf(out, IO_PATH_BYTES, "%s", named) >= IO_PATH_BYTES)
        return fsdp_fail(err, FSDP_ERR_ARG, "the path of the checkpoints is too long");
    return FSDP_OK;
}

enum fsdp_status checkpoint_save(const struct checkpoint_save_options *options,
                                 const struct checkpoint_state *state,
                                 const struct checkpoint_tensor *tensors, size_t n_tensors,
                                 struct checkpoint_saved *saved, struct fsdp_err *err)
{
    const struct fsdp_link_hello *hello = link_hello(options->link);
    const struct commit_fence fence = { state->step, hello->generation, hello->world_size, hello->term };
    struct fsdp_io *io = options->io == NULL ? &io_anywhere : options->io;
    char directory[IO_PATH_BYTES], temporary[COMMIT_NAME_BYTES], *head = NULL;
    struct directory_lock *own_locks = NULL, **locks = options->locks == NULL ? &own_locks : options->locks;
    const bool alone = link_alone(options->link);
    const int64_t started_ns = clock_now_ns();
    struct checkpoint_part part = { 0 };
    struct fsdp_err why = { 0 };
    enum fsdp_status status;
    size_t head_length = 0;
    bool began = false;
    int hold_fd = -1;

    if (state->step < 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "step %lld", (long long)state->step);
    status = name_temporary(options, &fence, temporary, &why);
    if (status == FSDP_OK)
        status = tensors != NULL ? directory_of(options, directory, &why)
                                 : fsdp_fail(&why, FSDP_ERR_NOMEM, "out of memory");
    if (status == FSDP_OK && hello->rank == 0)
        status = checkpoint_head(state, hello->generation, (int)hello->world_size, tensors, n_tensors, &head,
                                 &head_length, &why);
    if (status == FSDP_OK && alone)
        status = begin_alone(options, locks, io, directory, &why);
    began = status == FSDP_OK;
    if (began)
        status = temporary_hold(io, directory, temporary, &hold_fd, &why);
    if (status == FSDP_OK)
        status =
            checkpoint_write_part(io, directory, temporary, state, hello->generation, (int)hello->world_size,
                                  (int)hello->rank, tensors, n_tensors, &part, &why);
    if (!alone) /* needed after a failure too: the coordinator waits for every rank */
        status = publish_by_agent(options, state->step, temporary, head, head_length, &part, started_ns,
                                  status, &why);
    else if (status == FSDP_OK)
        status = publish_alone(options, io, directory, temporary, &fence, head, head_length, &part, &why);
    else if (began)
        (void)commit_abort(io, directory, temporary, NULL);
    if (status == FSDP_OK && saved != NULL)
        *saved = (struct checkpoint_saved){ part.size_bytes, (double)(clock_now_ns() - started_ns) * 1e-9 };
    if (status != FSDP_OK)
        fsdp_fail(err, status, "saving step %lld: %s", (long long)state->step, why.message);
    if (hold_fd >= 0)
        (void)io->close(io, hold_fd);
    directory_lock_release(&own_locks, io);
    free(head);
    return status;
}
