#include "shard_runtime/state/saver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/checkpoint/report.h"
#include "shard_runtime/checkpoint/snapshot.h"
#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/memory_room.h"
#include "shard_runtime/core/overlap.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/model.h"
#include "shard_runtime/engine/optimizer.h"
#include "shard_runtime/engine/unshard.h"
#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/state/checkpoint_halves.h"
#include "shard_runtime/state/made_with.h"

/* The copy of this rank's shards into its snapshot slot that is being made. */
struct copy {
    /* a copy is being made: until saver_end_copy() the calling thread changes no other member */
    bool is_made;
    bool to_disk;
    uint32_t keep; /* checkpoints, if it goes to the disk */
    struct shards_save save;
    struct state_tensors tensors;
    char *head; /* of the manifest */
    size_t head_bytes;
    int busy_slot;
    struct snapshot_filled filled;
    /* began_ns: when the save began, by the clock; stalled_ns: how long training has waited for it */
    int64_t began_ns, stalled_ns;
};

struct saver {
    struct fsdp_model *model;
    struct fsdp_optimizer *optimizer;
    const char *job_json;
    char *numerics;
    struct snapshot *snapshot;
    /* the thread that copies; NULL: there is no such thread, and saver_save() itself copies */
    struct overlap *second;
    struct copy copy;
    /* what failed in a copy that has ended, until a call returns it; its status is FSDP_OK if nothing did */
    struct fsdp_err trouble;

    /* The step of the save that is on its way to the disk; -1: there is no such save. */
    int64_t step; /* -1: there is none */
    /* the slot from which it is written; -1: this rank's part failed before it was in a slot */
    int slot;
    enum fsdp_status own; /* status of this rank's part of the save */
    bool answered;        /* the coordinator's verdict has come, and no call has returned it yet */
    struct fsdp_err verdict;
    bool busy; /* as the ranks agreed */
};

static enum fsdp_status all_most(struct fsdp_context *context, int64_t *value, struct fsdp_err *err)
{
    return context->W == 1 ? FSDP_OK
                           : fsdp_all_reduce(context->comm, value, 1, FSDP_I64, FSDP_MAX,
                                             context->streams[PLAN_COMPUTE], err);
}

/*
 * Makes the head of the manifest. Every rank does, not only rank 0, because any of them may later load its
 * snapshot.
 */
static enum fsdp_status make_head(const struct saver *saver, const struct fsdp_checkpoint_state *state,
                                  const struct state_tensors *tensors, char **text, size_t *length,
                                  struct fsdp_err *err)
{
    const struct fsdp_context *context = saver->model->context;
    const struct checkpoint_state saved =
        checkpoint_state_of(saver->model, saver->optimizer, state, saver->numerics, saver->job_json);

    return checkpoint_head(&saved, link_hello(context->link)->generation, context->W, tensors->list,
                           tensors->n, text, length, err);
}

static enum fsdp_status measure(const struct saver *saver, struct snapshot_need *need, struct fsdp_err *err)
{
    const struct fsdp_context *context = saver->model->context;
    const struct fsdp_checkpoint_state state = { 0 };
    struct state_tensors tensors = { 0 };
    enum fsdp_status status;
    size_t length = 0;
    char *head = NULL;

    OK_OR_RETURN(state_tensors_make(&tensors, saver->model, saver->optimizer, err));
    status = make_head(saver, &state, &tensors, &head, &length, err);
    if (status == FSDP_OK)
        status = snapshot_measure(need, tensors.list, tensors.n, context->W, context->rank, length, err);
    free(head);
    state_tensors_free(&tensors);
    return status;
}

static void free_copy(struct copy *copy)
{
    state_tensors_free(&copy->tensors);
    free(copy->head);
    *copy = (struct copy){ .is_made = false };
}

/* Reports this rank's part of the save to the coordinator: it is in the slot, or it failed as `why` says. */
static enum fsdp_status submit(struct saver *saver, const struct fsdp_err *why, struct fsdp_err *err)
{
    struct fsdp_context *context = saver->model->context;
    const struct copy *copy = &saver->copy;
    const struct fsdp_link_hello *hello = link_hello(context->link);
    const struct commit_fence fence = { copy->save.step, hello->generation, hello->world_size, hello->term };
    struct fsdp_link_saved saved = { .step = copy->save.step,
                                     .status = (uint32_t)saver->own,
                                     .keep = copy->keep,
                                     .started_ns = copy->began_ns,
                                     .stalled_ns = copy->stalled_ns,
                                     .loaded_step = saver->model->loaded_step };
    char temporary[COMMIT_NAME_BYTES];

    commit_temporary_name(&fence, hello->token, sizeof hello->token, temporary);
    snprintf(saved.temporary, sizeof saved.temporary, "%s", temporary);
    manifest_shard_name(hello->rank, saved.file);
    if (saver->own == FSDP_OK) {
        saved.slot = (uint32_t)copy->filled.slot + 1;
        saved.number = copy->filled.number;
    } else {
        snprintf(saved.words, sizeof saved.words, "%s", why->message);
    }
    return report_send(context->link, &saved, hello->rank == 0 ? copy->head : NULL, copy->head_bytes, err);
}

/* Runs on the second thread, or within saver_save(). Reads shards, and changes no memory but the slot. */
static enum fsdp_status fill_slot(void *user, int entry, struct fsdp_err *err)
{
    struct saver *saver = user;
    struct copy *copy = &saver->copy;

    (void)entry;
    return snapshot_fill(saver->snapshot, &copy->save, copy->tensors.list, copy->tensors.n, copy->head,
                         copy->head_bytes, copy->busy_slot, &copy->filled, err);
}

/*
 * Call it when the copy has ended, with `status` and `why` if it failed. If the save is to go to the disk, it
 * goes on; or it fails on all ranks.
 */
static void finish_copy(struct saver *saver, enum fsdp_status status, const struct fsdp_err *why)
{
    struct fsdp_err err = *why;

    if (saver->copy.to_disk) {
        saver->own = status;
        saver->slot = saver->copy.filled.slot;
        status = submit(saver, why, &err);
    }
    if (status != FSDP_OK)
        fsdp_fail(&saver->trouble, status, "%s", err.message);
    free_copy(&saver->copy);
}

/* Waits for the copy, if one is being made: from now on the shards may change. */
void saver_end_copy(struct saver *saver)
{
    struct fsdp_context *context = saver->model->context;
    const int64_t began_ns = clock_now_ns();
    struct fsdp_err why = { 0 };
    enum fsdp_phase before;
    enum fsdp_status status;

    if (!saver->copy.is_made)
        return;
    before = (enum fsdp_phase)atomic_load_explicit(&context->progress->phase, memory_order_relaxed);
    fsdp_context_phase(context, FSDP_PHASE_SAVE);
    status = overlap_finish(saver->second, &why);
    saver->copy.stalled_ns += clock_now_ns() - began_ns;
    finish_copy(saver, status, &why);
    fsdp_context_phase(context, before);
}

static void wait_for_copy(void *user)
{
    saver_end_copy(user);
}

/* Gets this rank's segment from the agent. */
static enum fsdp_status get_segment(const struct fsdp_context *context, int *fd, struct fsdp_err *err)
{
    char key[FSDP_LINK_KEY_BYTES];
    size_t n_bytes = 0;

    snprintf(key, sizeof key, FSDP_LINK_SNAPSHOT_KEY "%lu",
             (unsigned long)link_hello(context->link)->local_rank);
    OK_OR_RETURN(link_get(context->link, key, NULL, &n_bytes, fd, err));
    return *fd >= 0 ? FSDP_OK : fsdp_fail(err, FSDP_ERR_FORMAT, "the agent's %s has no descriptor", key);
}

/*
 * Bytes that a rank needs: `missing` for its own segment, `whole` for the segment on another node that holds
 * its copies.
 */
struct rank_need {
    int64_t missing, whole;
};

/*
 * Adds up the bytes that this node lacks: for its own ranks, and for the copies that it holds for the node
 * before it.
 */
static int64_t add_up(const struct fsdp_link_hello *hello, const struct rank_need *all)
{
    const uint32_t n = hello->local_world_size, first = hello->rank - hello->local_rank,
                   before = (hello->node_rank + hello->n_nodes - 1) % hello->n_nodes * n;
    int64_t own = 0, held = -(int64_t)hello->held_bytes;

    for (uint32_t i = 0; i < n; i++) {
        own += all[first + i].missing;
        held += hello->has_copies ? all[before + i].whole : 0;
    }
    return own + (held > 0 ? held : 0);
}

/*
 * Sets *lacks to the number of bytes that are missing on the node that lacks most. All ranks of a node look
 * at the same free memory before any of them has taken some. So each compares it with the need of all. An
 * eighth of the free memory is left for other programs.
 */
static enum fsdp_status look_at_memory(struct fsdp_context *context, const struct snapshot_need *need,
                                       uint64_t missing, int64_t *lacks, struct fsdp_err *err)
{
    const struct fsdp_link_hello *hello = link_hello(context->link);
    struct rank_need *all = alloc_array((size_t)context->W, sizeof *all);
    int64_t total = 0;
    enum fsdp_status status = FSDP_OK;
    const uint64_t room = memory_room("");

    if (all == NULL)
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "memory for the needs of %d ranks", context->W);
    status = context_agree(context, status, err);
    if (status == FSDP_OK) {
        all[context->rank] =
            (struct rank_need){ (int64_t)missing, (int64_t)snapshot_segment_bytes(need->slot_bytes) };
        if (context->W > 1)
            status = fsdp_all_gather(context->comm, &all[context->rank], all, 2, FSDP_I64,
                                     context->streams[PLAN_COMPUTE], err);
    }
    if (status == FSDP_OK)
        total = add_up(hello, all);
    free(all);
    *lacks = total > 0 && (uint64_t)total > room - room / 8 ? total - (int64_t)(room - room / 8) : 0;
    return status == FSDP_OK ? all_most(context, lacks, err) : status;
}

enum fsdp_status saver_open(struct saver **out, struct fsdp_model *model, struct fsdp_optimizer *optimizer,
                            const char *job_json, uint64_t *lacks, struct fsdp_err *err)
{
    struct fsdp_context *context = model->context;
    int64_t refuses = !link_hello(context->link)->has_snapshot, short_of = 0;
    struct saver *saver = NULL;
    struct snapshot_need need = { .slot_bytes = 0 };
    enum fsdp_status status;
    int fd = -1;

    *out = NULL;
    *lacks = 0;
    if (link_alone(context->link))
        return FSDP_OK;
    OK_OR_RETURN(all_most(context, &refuses, err));
    if (refuses != 0)
        return FSDP_OK;
    saver = calloc(1, sizeof *saver);
    status = saver == NULL ? fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory") : FSDP_OK;
    if (saver != NULL)
        *saver = (struct saver){
            .model = model, .optimizer = optimizer, .job_json = job_json, .step = -1, .slot = -1
        };
    status = context_agree(context, status, err);
    if (status == FSDP_OK)
        status = made_with_gather(context, &saver->numerics, err);
    if (status != FSDP_OK)
        goto done;
    /* the wait may be long: the agent may still be fetching the segment's content from another node */
    if (link_hello(context->link)->memory_is_peer)
        fsdp_context_phase(context, FSDP_PHASE_LOAD);
    status = measure(saver, &need, err);
    if (status == FSDP_OK)
        status = get_segment(context, &fd, err);
    status = context_agree(context, status, err);
    if (status == FSDP_OK)
        status = look_at_memory(context, &need, snapshot_missing_bytes(fd, &need), &short_of, err);
    *lacks = (uint64_t)short_of;
    if (status != FSDP_OK || short_of > 0)
        goto done;
    status = context_agree(context, snapshot_open(&saver->snapshot, fd, &need, err), err);
    fd = -1;
    if (status == FSDP_OK && optimizer != NULL && overlap_create(&saver->second, 1, NULL, NULL) == FSDP_OK) {
        optimizer->before_update = wait_for_copy;
        optimizer->before_update_user = saver;
    }
    if (status == FSDP_OK) {
        *out = saver;
        saver = NULL;
    }
done:
    if (fd >= 0)
        close(fd);
    saver_close(saver);
    return status;
}

void saver_close(struct saver *saver)
{
    if (saver == NULL)
        return;
    if (saver->second != NULL) {
        saver->optimizer->before_update = NULL;
        (void)overlap_finish(saver->second, NULL);
    }
    overlap_destroy(saver->second);
    free_copy(&saver->copy);
    snapshot_close(saver->snapshot);
    free(saver->numerics);
    free(saver);
}

static struct shards_save save_of(const struct saver *saver, int64_t step)
{
    const struct fsdp_context *context = saver->model->context;

    return (struct shards_save){ step, link_hello(context->link)->generation, context->W, context->rank };
}

enum fsdp_status saver_load(struct saver *saver, struct fsdp_checkpoint_state *state, struct fsdp_err *err)
{
    struct fsdp_context *context = saver->model->context;
    const int64_t step = link_hello(context->link)->memory_step;
    const struct shards_save save = save_of(saver, step);
    int64_t lacks = step < 0 || !snapshot_has(saver->snapshot, step);
    struct state_tensors tensors = { 0 };
    struct manifest manifest = { 0 };
    enum fsdp_status status;

    saver_end_copy(saver);
    OK_OR_RETURN(all_most(context, &lacks, err));
    if (lacks != 0)
        return fsdp_fail(err, FSDP_ERR_NOT_FOUND, "not every rank has a snapshot of step %lld",
                         (long long)step);
    unshard_drop_all(saver->model);
    fsdp_context_phase(context, FSDP_PHASE_LOAD);
    status = state_tensors_make(&tensors, saver->model, saver->optimizer, err);
    if (status == FSDP_OK)
        status = snapshot_load(saver->snapshot, &save, tensors.list, tensors.n, &manifest, err);
    state_tensors_free(&tensors);
    status = checkpoint_adopt(saver->model, saver->optimizer, &manifest, status, state, err);
    manifest_free(&manifest);
    if (status != FSDP_OK) {
        saver_forget(saver); /* whatever is wrong with the snapshot, the next try loads from the disk */
        return status;
    }
    snapshot_go_back(saver->snapshot, step);
    saver->model->loaded_step = link_hello(context->link)->resume_step;
    context->resume_is_stale = true;
    return FSDP_OK;
}

void saver_forget(struct saver *saver)
{
    saver_end_copy(saver);
    snapshot_go_back(saver->snapshot, -1);
}

/*
 * Returns whether the second thread may copy. It may not if some rows are in a store (a device, or the
 * optimizer's file), because only the calling thread may read a store.
 */
static bool can_overlap(const struct saver *saver)
{
    for (size_t i = 0; i < saver->copy.tensors.n; i++)
        if (saver->copy.tensors.list[i].store != NULL)
            return false;
    return saver->second != NULL;
}

/* Returns what was wrong with a copy that has ended, once. */
static enum fsdp_status take_trouble(struct saver *saver, struct fsdp_err *err)
{
    const struct fsdp_err trouble = saver->trouble;

    fsdp_err_clear(&saver->trouble);
    return trouble.status == FSDP_OK ? FSDP_OK : fsdp_fail(err, trouble.status, "%s", trouble.message);
}

enum fsdp_status saver_save(struct saver *saver, const struct fsdp_checkpoint_state *state, bool to_disk,
                            uint32_t keep, struct fsdp_err *err)
{
    struct fsdp_context *context = saver->model->context;
    struct copy *copy = &saver->copy;
    const int64_t began_ns = clock_now_ns();
    struct fsdp_err why = { 0 };
    enum fsdp_status status;

    saver_end_copy(saver);
    fsdp_context_phase(context, FSDP_PHASE_SAVE);
    /*
     * Each rank waits until its last snapshot is copied. The wait ends, because the process that copies has a
     * time limit of its own. After it, the ranks agree in checkpoint_gather().
     */
    while (!snapshot_wait_copied(saver->snapshot))
        context_alive(context);
    *copy = (struct copy){ .to_disk = to_disk,
                           .keep = keep,
                           .save = save_of(saver, (int64_t)state->step),
                           .busy_slot = saver->busy ? saver->slot : -1,
                           .filled = { .slot = -1 },
                           .began_ns = began_ns };
    status = checkpoint_gather(saver->model, saver->optimizer, state, FSDP_OK, &copy->tensors, err);
    if (status != FSDP_OK) {
        free_copy(copy);
        return status;
    }
    if (to_disk) {
        saver->step = (int64_t)state->step;
        saver->answered = false;
        saver->busy = true;
    }
    status = make_head(saver, state, &copy->tensors, &copy->head, &copy->head_bytes, &why);
    if (status == FSDP_OK && can_overlap(saver)) {
        copy->is_made = true;
        copy->stalled_ns = clock_now_ns() - began_ns;
        overlap_give(saver->second, fill_slot, saver, 0);
        return take_trouble(saver, err);
    }
    if (status == FSDP_OK)
        status = fill_slot(saver, 0, &why);
    copy->stalled_ns = clock_now_ns() - began_ns;
    finish_copy(saver, status, &why);
    return take_trouble(saver, err);
}

enum fsdp_status saver_copied(struct saver *saver, struct fsdp_err *err)
{
    return take_trouble(saver, err);
}

bool saver_is_copying(struct saver *saver)
{
    saver_end_copy(saver); /* a training step that was skipped has not waited for the copy */
    return !snapshot_copied(saver->snapshot);
}

static void take_verdict(struct saver *saver, struct fsdp_link_published *published)
{
    fsdp_err_clear(&saver->verdict);
    (void)report_verdict(published, saver->own, &saver->verdict);
    saver->answered = true;
}

bool saver_is_busy(struct saver *saver)
{
    struct fsdp_link_published published;

    if (saver->step >= 0 && !saver->answered &&
        link_poll_published(saver->model->context->link, saver->step, &published))
        take_verdict(saver, &published);
    return saver->step >= 0 && !saver->answered;
}

void saver_agreed(struct saver *saver, bool busy)
{
    saver->busy = busy;
}

enum fsdp_status saver_wait(struct saver *saver, struct fsdp_err *err)
{
    struct fsdp_link_published published;
    const int64_t step = saver->step;

    saver_end_copy(saver);
    if (step < 0)
        return FSDP_OK;
    if (!saver->answered) {
        OK_OR_RETURN(link_published(saver->model->context->link, step, &published, err));
        take_verdict(saver, &published);
    }
    saver->step = -1;
    saver->busy = saver->answered = false;
    return saver->verdict.status == FSDP_OK ? FSDP_OK
                                            : fsdp_fail(err, saver->verdict.status, "saving step %lld: %s",
                                                        (long long)step, saver->verdict.message);
}
