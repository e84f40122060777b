#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/save/save_impl.h"
#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/clock.h"

enum fsdp_status save_create(struct save **out, uv_loop_t *loop, struct fsdp_io *io, const char *run_dir,
                             const struct save_handlers *handlers, struct fsdp_err *err)
{
    struct save *save = calloc(1, sizeof *save);

    *out = NULL;
    if (save == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    if (run_dir != NULL && handlers->directory != NULL)
        snprintf(save->directory, sizeof save->directory, "%s", handlers->directory);
    else if (run_dir != NULL && io_join(save->directory, run_dir, "checkpoints", err) != FSDP_OK) {
        free(save);
        return FSDP_ERR_ARG;
    }
    save->loop = loop;
    save->io = io;
    save->handlers = *handlers;
    save->known_step = -1;
    *out = save;
    return FSDP_OK;
}

static void free_collection(struct collection *collection)
{
    if (collection == NULL)
        return;
    if (collection->head_fd >= 0)
        close(collection->head_fd);
    free(collection);
}

static void add_last(struct collection **list, struct collection *collection)
{
    while (*list != NULL)
        list = &(*list)->next;
    *list = collection;
    collection->next = NULL;
}

/* Frees what is on the list, but for refused collections if there is a list for them. */
static void forget_list(struct collection **list, struct collection **refused)
{
    while (*list != NULL) {
        struct collection *collection = *list;

        *list = collection->next;
        if (refused != NULL && collection->refused)
            add_last(refused, collection);
        else
            free_collection(collection);
    }
}

/* Returns those that were refused, if they are wanted. */
static struct collection *forget(struct save *save, bool keep_refused)
{
    struct collection *refused = NULL;

    forget_list(&save->ready, keep_refused ? &refused : NULL);
    forget_list(&save->collecting, keep_refused ? &refused : NULL);
    save->n_lost = 0;
    return refused;
}

void save_destroy(struct save *save)
{
    if (save == NULL)
        return;
    (void)forget(save, false);
    directory_lock_release(&save->locks, save->io);
    save_own_free(save->own);
    free(save);
}

static void go_on(struct save *save);

void save_begin(struct save *save, uint32_t generation, int world_size, int64_t loaded_step)
{
    (void)forget(save, false);
    save->generation = generation;
    save->world_size = world_size;
    save->loaded_step = loaded_step;
    go_on(save);
}

bool save_idle(const struct save *save)
{
    return !save->working;
}

void save_when_idle(struct save *save, void (*idle)(void *arg), void *arg)
{
    save->idle = idle;
    save->idle_arg = arg;
}

static void tell(struct save *save, const struct save_own *own, int64_t step, const struct fsdp_err *err,
                 uint64_t size_bytes, double seconds, double blocked_s)
{
    struct fsdp_link_published published = { .step = step, .status = (uint32_t)err->status };

    if (err->status != FSDP_OK)
        snprintf(published.words, sizeof published.words, "%s", err->message);
    save->handlers.published(save->handlers.arg, &published, own != NULL ? own->path : "", size_bytes,
                             seconds, blocked_s);
}

/*
 * Tells every rank at once that the save has failed, so that no rank waits for the other reports.
 * `collection` may be NULL.
 */
static void refuse(struct save *save, struct collection *collection, int64_t step, enum fsdp_status status,
                   const char *words)
{
    struct fsdp_err err = { 0 };

    if (collection != NULL) {
        if (collection->refused)
            return;
        collection->refused = true;
    }
    fsdp_fail(&err, status, "%s", words);
    tell(save, collection != NULL ? collection->own : NULL, step, &err, 0, 0, 0.0);
}

/*
 * Reports the verdict on a collection to every rank, unless the collection was refused: then the ranks know
 * it.
 */
static void end_publish(struct save *save, const struct collection *collection, const struct fsdp_err *err,
                        uint64_t size_bytes, double seconds)
{
    const int64_t blocked_ns = collection->stalled_ns > 0   ? collection->stalled_ns
                               : collection->started_ns > 0 ? clock_now_ns() - collection->started_ns
                                                            : 0;

    if (err->status == FSDP_OK && collection->own == NULL && collection->step > save->known_step)
        save->known_step = collection->step;
    if (!collection->refused)
        tell(save, collection->own, collection->step, err, size_bytes, seconds, (double)blocked_ns * 1e-9);
}

static void end_prepare(struct save *save, int64_t step, const struct fsdp_err *err)
{
    save_prepared *done = save->prepared;

    save->prepared = NULL;
    if (!save->settles)
        save->known_step = step;
    done(save->prepared_arg, step, err);
}

static bool start_work(struct save *save, enum work_kind kind, struct collection *collection,
                       struct fsdp_err *err);

static void bring_lines(struct save *save, struct work *work)
{
    char *at = work->lines, *end;

    while ((end = strchr(at, '\n')) != NULL) {
        *end = '\0';
        save->handlers.line(save->handlers.arg, at);
        at = end + 1;
    }
}

static void work_done(uv_work_t *request, int status)
{
    struct work *work = request->data;
    struct save *save = work->save;
    struct collection *collection = work->collection;

    (void)status; /* never cancelled */
    save->working = false;
    search_watch_stop(save->watch);
    save->watch = NULL;
    bring_lines(save, work);
    /*
     * If the disk did not answer, on_silent() has reported that already. The end of a publication is an event
     * even if its generation is over.
     */
    if (work->kind == WORK_PUBLISH)
        end_publish(save, collection, &work->err, work->size_bytes, work->seconds);
    else if (work->kind == WORK_PREPARE && !work->given_up)
        end_prepare(save, work->err.status == FSDP_OK ? work->step : -1, &work->err);
    if (work->kind == WORK_PUBLISH && work->err.status == FSDP_OK && !collection->refused &&
        start_work(save, WORK_RETAIN, collection, NULL))
        collection =
            NULL; /* the work owns it; if the work could not start, the next save removes what is too old */
    free_collection(collection);
    free(work);
    go_on(save);
    if (!save->working && save->idle != NULL)
        save->idle(save->idle_arg);
}

/* The disk does not answer. The thread stays blocked in its call, and the run ends without it (run_end.c). */
static void on_silent(void *arg)
{
    struct work *work = arg;
    struct save *save = work->save;
    struct fsdp_err err = { 0 };

    work->given_up = true;
    fsdp_fail(&err, FSDP_ERR_IO, "the disk of %s has not answered for %.6g s (launch.hang_timeout_s)",
              work->at, (double)save->handlers.patience_ms / 1e3);
    end_prepare(save, -1, &err);
}

/*
 * Starts work on a thread. Returns false, with the reason in `err`, if it cannot start; `collection` is then
 * still the caller's.
 */
static bool start_work(struct save *save, enum work_kind kind, struct collection *collection,
                       struct fsdp_err *err)
{
    struct work *work = calloc(1, sizeof *work);

    if (work != NULL) {
        work->save = save;
        work->kind = kind;
        work->io = save->io;
        memcpy(work->directory, save->directory, sizeof work->directory);
        work->collection = collection;
        work->own = save->own;
        work->generation = save->generation;
        work->step = -1;
        work->request.data = work;
        work->at = work->directory;
        counting_io_init(&work->files, save->io, &work->n_done);
        save->working = uv_queue_work(save->loop, &work->request, save_do_work, work_done) == 0;
    }
    if (save->working) {
        if (kind == WORK_PREPARE && save->handlers.patience_ms > 0)
            save->watch =
                search_watch_start(save->loop, &work->n_done, save->handlers.patience_ms, on_silent, work);
        return true;
    }
    fsdp_fail(err, FSDP_ERR_NOMEM, "%s", work == NULL ? "out of memory" : "no thread can be started");
    free(work);
    return false;
}

static void go_on(struct save *save)
{
    struct collection *collection = save->ready;
    struct fsdp_err err = { 0 };

    if (save->working)
        return;
    if (collection == NULL && save->prepared != NULL && save->settles) {
        save->unclean = save->directory[0] != '\0';
        end_prepare(save, save->known_step, &err);
        return;
    }
    if (collection == NULL && save->prepared == NULL) {
        save->unclean =
            save->unclean && !start_work(save, save->is_over ? WORK_CLEAN_ALL : WORK_CLEAN, NULL, NULL);
        return;
    }
    if (collection != NULL)
        save->ready = collection->next;
    if (start_work(save, collection != NULL ? WORK_PUBLISH : WORK_PREPARE, collection, &err))
        return;
    if (collection != NULL)
        end_publish(save, collection, &err, 0, 0);
    else
        end_prepare(save, -1, &err);
    free_collection(collection);
    if (save->ready != NULL)
        go_on(save);
}

void save_abandon(struct save *save)
{
    save->ready = forget(save, true);
    go_on(save);
}

/* Is there no directory of checkpoints, or none yet? Then no thread need be started to look at it. */
static bool has_nothing(const struct save *save)
{
    const bool is_near = save->directory[0] != '\0' && !io_is_remote(save->directory);
    /*
     * With O_PATH, another disk that is mounted at this name is not asked. If the directory is in an object
     * store, the loop does not look at all.
     */
    const int fd = is_near ? save->io->open(save->io, save->directory, O_PATH | O_NOFOLLOW, 0) : -1;
    const bool is_missing = is_near && fd < 0 && errno == ENOENT;

    if (fd >= 0)
        (void)save->io->close(save->io, fd);
    return save->own == NULL && (save->directory[0] == '\0' || is_missing);
}

void save_prepare(struct save *save, save_prepared *done, void *arg)
{
    if (has_nothing(save)) {
        const struct fsdp_err fine = { 0 };

        done(arg, -1, &fine);
        return;
    }
    save->prepared = done;
    save->prepared_arg = arg;
    save->settles = save->unclean = false;
    go_on(save);
}

void save_end(struct save *save)
{
    save->is_over = true;
    save->unclean = !has_nothing(save);
    go_on(save);
}

bool save_settle(struct save *save, save_prepared *done, void *arg)
{
    if (save->own != NULL)
        return false;
    save->prepared = done;
    save->prepared_arg = arg;
    save->settles = true;
    go_on(save);
    return true;
}

int64_t save_known_step(const struct save *save)
{
    return save->known_step;
}

/*
 * Begins to collect the reports about a step. NULL: no memory. If reports of the step were lost before, every
 * rank was told that it failed, and the collection begins as refused.
 */
static struct collection *begin_collection(struct save *save, int64_t step)
{
    struct collection *collection =
        alloc_array(1, sizeof *collection + (size_t)save->world_size * sizeof *collection->parts);

    if (collection == NULL)
        return NULL;
    collection->step = step;
    collection->generation = save->generation;
    collection->world_size = save->world_size;
    collection->loaded_step = save->loaded_step;
    collection->head_fd = -1;
    collection->refused = save->n_lost > 0;
    collection->n_reported = save->n_lost;
    save->n_lost = 0;
    collection->next = save->collecting;
    save->collecting = collection;
    return collection;
}

/*
 * There is no memory for a report: the save fails on all ranks at once. Reports are still counted, because
 * the next save may only begin after the last one.
 */
static void lose_report(struct save *save, int64_t step)
{
    if (save->n_lost++ == 0)
        refuse(save, NULL, step, FSDP_ERR_NOMEM, "out of memory");
    save->lost_step = step;
    if (save->n_lost == save->world_size)
        save->n_lost = 0;
}

/* Adds a rank's report. Returns NULL, or a text about what does not fit the other ranks' reports. */
static const char *add_part(struct collection *collection, int rank, const struct save_own *own,
                            const struct fsdp_link_saved *saved, int *manifest_fd)
{
    struct part *part = &collection->parts[rank];

    if (part->reported)
        return "a rank reported the same save twice";
    part->reported = true;
    part->size_bytes = saved->size_bytes;
    memcpy(part->checksum, saved->checksum, sizeof part->checksum);
    memcpy(part->file, saved->file, sizeof part->file);
    collection->n_reported++;
    if (collection->temporary[0] == '\0') {
        snprintf(collection->temporary, sizeof collection->temporary, "%s", saved->temporary);
        collection->own = own;
    }
    if (saved->status != FSDP_OK || collection->refused)
        return NULL;
    if (strcmp(collection->temporary, saved->temporary) != 0 || collection->own != own)
        return "the ranks saved into different directories";
    if ((rank == 0) != (*manifest_fd >= 0))
        return rank == 0 ? "rank 0 sent no head of the manifest"
                         : "a rank other than 0 sent a head of the manifest";
    if (rank == 0) {
        collection->head_fd = *manifest_fd;
        *manifest_fd = -1;
        collection->keep = saved->keep;
        collection->started_ns = saved->started_ns;
        collection->stalled_ns = saved->stalled_ns;
        /* The ranks may have passed over the step that this agent had found, and loaded an older one. */
        if (own != NULL || saved->loaded_step >= 0)
            collection->loaded_step = saved->loaded_step;
    }
    return NULL;
}

static struct collection *find(const struct save *save, int64_t step)
{
    struct collection *collection = save->collecting;

    while (collection != NULL && collection->step != step)
        collection = collection->next;
    return collection;
}

/* Every rank has reported: the thread publishes it, or removes what was refused. */
static void complete(struct save *save, struct collection *collection)
{
    struct collection **at = &save->collecting;

    while (*at != collection)
        at = &(*at)->next;
    *at = collection->next;
    for (const struct collection *other = save->ready; other != NULL; other = other->next)
        if (!other->refused)
            refuse(save, collection, collection->step, FSDP_ERR_BUSY, "a save waits to be published already");
    add_last(&save->ready, collection);
    go_on(save);
}

/*
 * A rank whose part failed may report the next save before another one has written its part of this one: all
 * know that it has failed. So the reports of several saves may come in turns.
 */
static void take(struct save *save, int rank, const struct fsdp_link_saved *saved, int *manifest_fd)
{
    struct collection *collection = find(save, saved->step);
    const struct save_own *own;
    const bool known = save_own_find(&save->own, saved->directory, save->directory, &own);
    const char *wrong;

    if (collection == NULL && ((save->collecting != NULL && !save->collecting->refused) ||
                               (save->n_lost > 0 && save->lost_step != saved->step))) {
        refuse(save, NULL, saved->step, FSDP_ERR_BUSY, "the step before is not saved by every rank yet");
        return;
    }
    if (collection == NULL && (collection = begin_collection(save, saved->step)) == NULL) {
        lose_report(save, saved->step);
        return;
    }
    wrong = add_part(collection, rank, own, saved, manifest_fd);
    if (!known)
        refuse(save, collection, saved->step, FSDP_ERR_NOMEM, "out of memory");
    if (wrong != NULL)
        refuse(save, collection, saved->step, FSDP_ERR_MISMATCH, wrong);
    if (save->directory[0] == '\0' && saved->directory[0] == '\0')
        refuse(save, collection, saved->step, FSDP_ERR_CONFIG, "this run has no directory to save in");
    if (saved->status != FSDP_OK) {
        char words[FSDP_LINK_WORDS_BYTES + 32];

        snprintf(words, sizeof words, "rank %d: %s", rank, saved->words);
        refuse(save, collection, saved->step,
               saved->status < FSDP_STATUS_COUNT ? (enum fsdp_status)saved->status : FSDP_ERR_IO, words);
    }
    if (collection->n_reported == collection->world_size)
        complete(save, collection);
}

void save_take(struct save *save, uint32_t generation, int rank, const struct fsdp_link_saved *saved,
               int manifest_fd)
{
    if (generation == save->generation && rank >= 0 && rank < save->world_size)
        take(save, rank, saved, &manifest_fd);
    if (manifest_fd >= 0)
        close(manifest_fd);
}
