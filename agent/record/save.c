#include "agent/record/save.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/record/save_own.h"
#include "agent/record/search_watch.h"
#include "shard_runtime/core/alloc.h"
#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/directory_lock.h"
#include "shard_runtime/shardfile/io_beneath.h"
#include "shard_runtime/shardfile/manifest.h"
#include "shard_runtime/shardfile/verify.h"

enum { LINES_BYTES = 8192 };

/* One step that is being collected, or published. */
struct part {
    bool reported;
    uint64_t size_bytes, checksum[2];
    char file[FSDP_LINK_NAME_BYTES];
};

struct collection {
    int64_t step;
    uint32_t generation;
    int world_size, n_reported;
    int64_t loaded_step;
    uint32_t keep;
    int64_t started_ns;         /* by rank 0 */
    const struct save_own *own; /* NULL: in the run's */
    bool refused;               /* every rank was told; when all have reported, what they wrote is removed */
    int head_fd;                /* rank 0's; -1 until it came */
    char temporary[FSDP_LINK_NAME_BYTES]; /* empty until one named it */
    struct part parts[];
};

/* What a thread does, with all it needs, so that it touches nothing of the loop's. */
struct work {
    uv_work_t request;
    struct save *save;
    struct fsdp_io *io;
    char directory[IO_PATH_BYTES];
    struct collection *collection; /* publishing; NULL: preparing */
    const struct save_own *own;    /* preparing: all that are known; what they point to does not change */
    struct fsdp_err err;
    struct counting_io files; /* of preparing: signs of life */
    _Atomic uint64_t n_done;  /* their count, with those in the directories of the program's own */
    const char *_Atomic at;   /* preparing: the directory whose disk is being asked */
    bool given_up;            /* the loop's: its disk does not answer, and what it finds counts no more */
    int64_t step;             /* prepared */
    uint64_t size_bytes;
    double seconds;
    char lines[LINES_BYTES]; /* said by the thread, each ended by a newline, brought out on the loop */
    size_t lines_bytes;
};

struct save {
    uv_loop_t *loop;
    struct fsdp_io *io;
    char directory[IO_PATH_BYTES]; /* RUN/checkpoints; empty: none */
    struct save_handlers handlers;
    uint32_t generation;
    int world_size;
    int64_t loaded_step;
    struct collection *collecting; /* of this generation, at most one */
    struct collection *ready;      /* complete, waiting for the thread */
    int64_t lost_step;             /* of the reports for which there was no memory */
    int n_lost;                    /* their number; 0: none */
    struct directory_lock *locks;  /* the thread's while `working`; held until the end */
    struct save_own *own;
    bool working;
    void (*idle)(void *arg); /* NULL: nobody waits for that */
    void *idle_arg;
    save_prepared *prepared; /* asked for, not begun or not done yet */
    void *prepared_arg;
    struct search_watch *watch; /* over what is being prepared; NULL: nothing is, or it may take any time */
};

enum fsdp_status save_create(struct save **out, uv_loop_t *loop, struct fsdp_io *io, const char *run_dir,
                             const struct save_handlers *handlers, struct fsdp_err *err)
{
    struct save *save = calloc(1, sizeof *save);

    *out = NULL;
    if (save == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    if (run_dir != NULL && io_join(save->directory, run_dir, "checkpoints", err) != FSDP_OK) {
        free(save);
        return FSDP_ERR_ARG;
    }
    save->loop = loop;
    save->io = io;
    save->handlers = *handlers;
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

void save_abandon(struct save *save)
{
    free_collection(save->collecting);
    free_collection(save->ready);
    save->collecting = save->ready = NULL;
    save->n_lost = 0;
}

void save_destroy(struct save *save)
{
    if (save == NULL)
        return;
    save_abandon(save);
    directory_lock_release(&save->locks, save->io);
    save_own_free(save->own);
    free(save);
}

void save_begin(struct save *save, uint32_t generation, int world_size, int64_t loaded_step)
{
    save_abandon(save);
    save->generation = generation;
    save->world_size = world_size;
    save->loaded_step = loaded_step;
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
                 uint64_t size_bytes, double seconds)
{
    struct fsdp_link_published published = { .step = step, .status = (uint32_t)err->status };

    if (err->status != FSDP_OK)
        snprintf(published.words, sizeof published.words, "%s", err->message);
    save->handlers.published(save->handlers.arg, &published, own != NULL ? own->path : "", size_bytes,
                             seconds);
}

/* At once: nobody need wait for the rest of a save that cannot be. */
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
    tell(save, collection != NULL ? collection->own : NULL, step, &err, 0, 0);
}

/* --- on a thread -------------------------------------------------------------------------------------------------- */

static void keep_line(void *context, const char *words)
{
    struct work *work = context;
    int n = snprintf(work->lines + work->lines_bytes, sizeof work->lines - work->lines_bytes, "%s\n", words);

    if (n > 0 && (size_t)n < sizeof work->lines - work->lines_bytes)
        work->lines_bytes += (size_t)n;
    else
        work->lines[work->lines_bytes] = '\0'; /* no room: the first lines say enough */
}

static enum fsdp_status read_head(int fd, char **out, size_t *length, struct fsdp_err *err)
{
    off_t size = lseek(fd, 0, SEEK_END);
    char *text;
    off_t at = 0;

    *out = NULL;
    if (size <= 0 || size > MANIFEST_MAX_BYTES)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "the manifest's head has %lld bytes", (long long)size);
    text = malloc((size_t)size);
    if (text == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    while (at < size) {
        ssize_t n = pread(fd, text + at, (size_t)(size - at), at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            free(text);
            return fsdp_fail(err, FSDP_ERR_IO, "the manifest's head cannot be read");
        }
        at += n;
    }
    *out = text;
    *length = (size_t)size;
    return FSDP_OK;
}

static double seconds_since(int64_t started_ns)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)((int64_t)now.tv_sec * 1000000000 + now.tv_nsec - started_ns) / 1e9;
}

/* The run directory has its own lock, but a process without an agent may save to the same directory of checkpoints. */
static enum fsdp_status lock_directory(struct work *work, bool *held)
{
    struct fsdp_io *io = work->collection == NULL ? &work->files.base : work->io;

    return directory_lock_take(&work->save->locks, io, work->directory, held, &work->err);
}

/*
 * In every directory that the program has named: after a generation, when no rank is writing, all that is unfinished
 * (`temporary` NULL); of a save that was refused what has that name, since the ranks may have named several.
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
            (void)commit_clean(&files.base, own->path, &log, NULL);
        io_beneath_destroy(root);
    }
}

static void publish(struct work *work)
{
    struct collection *collection = work->collection;
    const struct commit_fence fence = { .step = collection->step,
                                        .generation = collection->generation,
                                        .world_size = (uint32_t)collection->world_size };
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
    if (lock_directory(work, &held) != FSDP_OK ||
        read_head(collection->head_fd, &head, &head_length, &work->err) != FSDP_OK) {
        commit_abort(work->io, work->directory, temporary, NULL);
    } else if (commit_publish(work->io, work->directory, temporary, &fence, head, head_length, files, n_files,
                              &work->err) == FSDP_OK) {
        struct fsdp_err ignored = { 0 };

        work->seconds = seconds_since(collection->started_ns);
        if (commit_retain(work->io, work->directory, collection->keep, fence.step, collection->loaded_step,
                          &log, &ignored) != FSDP_OK)
            verify_log_line(&log, "event=retain_failed reason=\"%s\"", ignored.message);
    }
done:
    free(files);
    free(head);
}

/* In a directory of the program's own, by the rule of core/beneath.h. */
static void publish_in(struct work *work, const struct save_own *own)
{
    struct fsdp_io *root;

    if (io_beneath_open(&root, own->path, &work->err) != FSDP_OK)
        return;
    work->io = root;
    snprintf(work->directory, sizeof work->directory, "%s", own->path);
    publish(work);
    io_beneath_destroy(root);
}

static void prepare(struct work *work)
{
    const struct save_handlers *handlers = &work->save->handlers;
    const struct verify_log log = { keep_line, work };
    struct fsdp_io *io = &work->files.base;
    bool held;

    clean_own(work, NULL);
    work->at = work->directory;
    if (work->directory[0] == '\0')
        return;
    /* A directory that can only be read has nothing to clean, and is still one to go on from. */
    if (lock_directory(work, &held) == FSDP_ERR_BUSY)
        return;
    fsdp_err_clear(&work->err);
    if (commit_clean(io, work->directory, &log, &work->err) != FSDP_OK)
        return;
    if (verify_newest(io, work->directory, VERIFY_CHECKSUMS, &work->step, &log, &work->err) == FSDP_OK &&
        work->step >= 0 && handlers->weigh != NULL)
        (void)handlers->weigh(handlers->arg, io, work->directory, work->step, &work->err);
}

static void do_work(uv_work_t *request)
{
    struct work *work = request->data;

    if (work->collection == NULL)
        prepare(work);
    else if (work->collection->own != NULL && !work->collection->refused)
        publish_in(work, work->collection->own);
    else
        publish(work);
}

/* --- back on the loop --------------------------------------------------------------------------------------------- */

static void go_on(struct save *save);

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
    if (work->given_up) {
        /* Its failure was told. */
    } else if (collection != NULL) {
        /* The verdict of an older generation has nobody left to hear it, but the event has. */
        if (!collection->refused)
            tell(save, collection->own, collection->step, &work->err, work->size_bytes, work->seconds);
        free_collection(collection);
    } else {
        save_prepared *done = save->prepared;

        save->prepared = NULL;
        done(save->prepared_arg, work->err.status == FSDP_OK ? work->step : -1, &work->err);
    }
    free(work);
    go_on(save);
    if (!save->working && save->idle != NULL)
        save->idle(save->idle_arg);
}

/* The thread stays where it is: the run ends without it (run.c). */
static void on_silent(void *arg)
{
    struct work *work = arg;
    struct save *save = work->save;
    save_prepared *done = save->prepared;
    struct fsdp_err err = { 0 };

    work->given_up = true;
    save->prepared = NULL;
    fsdp_fail(&err, FSDP_ERR_IO, "the disk of %s has not answered for %.6g s (launch.hang_timeout_s)",
              work->at, (double)save->handlers.patience_ms / 1e3);
    done(save->prepared_arg, -1, &err);
}

static void start_work(struct save *save, struct collection *collection)
{
    struct work *work = calloc(1, sizeof *work);
    struct fsdp_err err = { 0 };

    if (work == NULL) {
        fsdp_fail(&err, FSDP_ERR_NOMEM, "out of memory");
    } else {
        work->save = save;
        work->io = save->io;
        memcpy(work->directory, save->directory, sizeof work->directory);
        work->collection = collection;
        work->own = save->own;
        work->step = -1;
        work->request.data = work;
        work->at = work->directory;
        counting_io_init(&work->files, save->io, &work->n_done);
        if (uv_queue_work(save->loop, &work->request, do_work, work_done) == 0) {
            save->working = true;
            if (collection == NULL && save->handlers.patience_ms > 0)
                save->watch = search_watch_start(save->loop, &work->n_done, save->handlers.patience_ms,
                                                 on_silent, work);
            return;
        }
        fsdp_fail(&err, FSDP_ERR_NOMEM, "no thread can be started");
        free(work);
    }
    if (collection != NULL) {
        if (!collection->refused)
            tell(save, collection->own, collection->step, &err, 0, 0);
        free_collection(collection);
    } else {
        save_prepared *done = save->prepared;

        save->prepared = NULL;
        done(save->prepared_arg, -1, &err);
    }
}

static void go_on(struct save *save)
{
    if (save->working)
        return;
    if (save->ready != NULL) {
        struct collection *collection = save->ready;

        save->ready = NULL;
        start_work(save, collection);
    } else if (save->prepared != NULL) {
        start_work(save, NULL);
    }
}

void save_prepare(struct save *save, save_prepared *done, void *arg)
{
    /* O_PATH: where another disk begins at this name, it is not asked. */
    const int fd =
        save->directory[0] == '\0' ? -1 : save->io->open(save->io, save->directory, O_PATH | O_NOFOLLOW, 0);

    /* No directory, or none yet: nothing to look at, and no thread is started for it. */
    if (save->own == NULL && (save->directory[0] == '\0' || (fd < 0 && errno == ENOENT))) {
        const struct fsdp_err fine = { 0 };

        done(arg, -1, &fine);
        return;
    }
    if (fd >= 0)
        (void)save->io->close(save->io, fd);
    save->prepared = done;
    save->prepared_arg = arg;
    go_on(save);
}

/* NULL: no memory. One that begins after reports were lost is of a save that every rank was told has failed. */
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
    save->collecting = collection;
    return collection;
}

/* The save fails, on all ranks at once. Its reports are counted all the same: the next save may begin after the last one. */
static void lose_report(struct save *save, int64_t step)
{
    if (save->n_lost++ == 0)
        refuse(save, NULL, step, FSDP_ERR_NOMEM, "out of memory");
    save->lost_step = step;
    if (save->n_lost == save->world_size)
        save->n_lost = 0;
}

/* NULL, or what is wrong with this report as part of the others'. */
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
        if (own != NULL)
            collection->loaded_step = saved->loaded_step;
    }
    return NULL;
}

static void take(struct save *save, int rank, const struct fsdp_link_saved *saved, int *manifest_fd)
{
    struct collection *collection = save->collecting;
    const struct save_own *own;
    const bool known = save_own_find(&save->own, saved->directory, save->directory, &own);
    const char *wrong;

    if (collection != NULL ? collection->step != saved->step
                           : save->n_lost > 0 && save->lost_step != saved->step) {
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
    if (collection->n_reported < collection->world_size)
        return;
    if (save->ready != NULL) {
        refuse(save, collection, saved->step, FSDP_ERR_BUSY, "a save waits to be published already");
        save->collecting = NULL;
        free_collection(collection);
        return;
    }
    save->ready = collection;
    save->collecting = NULL;
    go_on(save);
}

void save_take(struct save *save, uint32_t generation, int rank, const struct fsdp_link_saved *saved,
               int manifest_fd)
{
    if (generation == save->generation && rank >= 0 && rank < save->world_size)
        take(save, rank, saved, &manifest_fd);
    if (manifest_fd >= 0)
        close(manifest_fd);
}
