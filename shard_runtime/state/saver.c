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
#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/model.h"
#include "shard_runtime/engine/unshard.h"
#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/state/checkpoint_halves.h"
#include "shard_runtime/state/made_with.h"

struct saver {
    struct fsdp_model *model;
    struct fsdp_optimizer *optimizer;
    const char *job_json;
    char *numerics;
    struct snapshot *snapshot;

    /* The save that is on its way to the disk. */
    int64_t step;         /* -1: there is none */
    int slot;             /* the slot of memory it is written from; -1: this rank's part failed before that */
    enum fsdp_status own; /* of this rank's part */
    bool answered;        /* the verdict has come, and was not returned yet */
    struct fsdp_err verdict;
    bool busy; /* as the ranks agreed */
};

static enum fsdp_status all_most(struct fsdp_context *context, int64_t *value, struct fsdp_err *err)
{
    return context->W == 1 ? FSDP_OK
                           : fsdp_all_reduce(context->comm, value, 1, FSDP_I64, FSDP_MAX,
                                             context->streams[PLAN_COMPUTE], err);
}

/* The head of the manifest, as every rank makes it: also the one whose rank is not 0 may load alone. */
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

/* What a rank needs: of its own segment, and of the one that holds the copies of it. */
struct rank_need {
    int64_t missing, whole;
};

/* What the ranks of this node miss, together with the copies that it holds for the node before it. */
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
 * Sets *lacks to what is missing on the node that lacks most. All ranks of a node look at the same memory,
 * and the others have used none of it yet. So each counts what all of them miss. An eighth is left for
 * others.
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
    if (link_hello(context->link)->memory_is_peer) /* an agent may still fetch what the segment will have */
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
        saver_forget(saver); /* whatever is wrong with it, the next try goes to the disk */
        return status;
    }
    snapshot_go_back(saver->snapshot, step);
    saver->model->loaded_step = link_hello(context->link)->resume_step;
    context->resume_is_stale = true;
    return FSDP_OK;
}

void saver_forget(struct saver *saver)
{
    snapshot_go_back(saver->snapshot, -1);
}

/* Tells the coordinator of this rank's part: it is in the slot, or it failed. */
static enum fsdp_status submit(struct saver *saver, const struct shards_save *save, uint32_t keep,
                               const char *head, size_t length, const struct snapshot_filled *filled,
                               int64_t began_ns, struct fsdp_err *err)
{
    struct fsdp_context *context = saver->model->context;
    const struct fsdp_link_hello *hello = link_hello(context->link);
    const struct commit_fence fence = { save->step, hello->generation, hello->world_size, hello->term };
    struct fsdp_link_saved saved = { .step = save->step,
                                     .status = (uint32_t)saver->own,
                                     .keep = keep,
                                     .started_ns = began_ns,
                                     .loaded_step = saver->model->loaded_step };
    char temporary[COMMIT_NAME_BYTES];

    commit_temporary_name(&fence, hello->token, sizeof hello->token, temporary);
    snprintf(saved.temporary, sizeof saved.temporary, "%s", temporary);
    manifest_shard_name(hello->rank, saved.file);
    if (saver->own == FSDP_OK) {
        saved.slot = (uint32_t)filled->slot + 1;
        saved.number = filled->number;
    } else {
        snprintf(saved.words, sizeof saved.words, "%s", err->message);
    }
    saved.stalled_ns = clock_now_ns() - began_ns;
    saver->step = save->step;
    saver->answered = false;
    saver->busy = true;
    return report_send(context->link, &saved, hello->rank == 0 ? head : NULL, length, err);
}

enum fsdp_status saver_save(struct saver *saver, const struct fsdp_checkpoint_state *state, bool to_disk,
                            uint32_t keep, struct fsdp_err *err)
{
    const int64_t began_ns = clock_now_ns();
    const struct shards_save save = save_of(saver, (int64_t)state->step);
    struct snapshot_filled filled = { .slot = -1 };
    struct state_tensors tensors = { 0 };
    struct fsdp_err why = { 0 };
    enum fsdp_status status;
    size_t length = 0;
    char *head = NULL;

    fsdp_context_phase(saver->model->context, FSDP_PHASE_SAVE);
    snapshot_wait_copied(saver->snapshot); /* the next call agrees with the other ranks, after theirs */
    status = checkpoint_gather(saver->model, saver->optimizer, state, FSDP_OK, &tensors, err);
    if (status != FSDP_OK) {
        state_tensors_free(&tensors);
        return status;
    }
    status = make_head(saver, state, &tensors, &head, &length, &why);
    if (status == FSDP_OK)
        status = snapshot_fill(saver->snapshot, &save, tensors.list, tensors.n, head, length,
                               saver->busy ? saver->slot : -1, &filled, &why);
    if (to_disk) {
        saver->own = status;
        saver->slot = filled.slot;
        status = submit(saver, &save, keep, head, length, &filled, began_ns, &why);
    }
    if (status != FSDP_OK)
        fsdp_fail(err, status, "%s", why.message);
    free(head);
    state_tensors_free(&tensors);
    return status;
}

bool saver_is_copying(const struct saver *saver)
{
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
