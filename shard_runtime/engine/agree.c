/*
 * How a rank that failed on its own reports it to the others. Every collective entry point ends, or begins,
 * with an agreement:
 *   1. Each rank gives its own status. One small all-reduce finds the lowest rank that failed. In a step, the
 *      flag travels with the sums that the ranks exchange anyway.
 *   2. If no rank failed, the agreement is over.
 *   3. Otherwise a second all-reduce carries the status and the words of that rank to all others.
 * A rank that failed must therefore take part in every collective that comes before the agreement. run.c does
 * so, with whatever data is in its buffers. Otherwise the ranks must agree before the first collective
 * begins.
 */
#include <string.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/mesh.h"
#include "shard_runtime/engine/model.h"

enum { WORDS_ELEMS = FSDP_ERR_MESSAGE_BYTES / sizeof(int64_t) };

/*
 * The failure of the lowest rank that failed. All other ranks give zeros, so that a sum over the ranks gives
 * its words to all.
 */
struct last_words {
    int64_t status;
    int64_t words[WORDS_ELEMS];
};

/* The ranks that agree: an all-reduce over `who`, and this rank's number in a world of W. */
struct members {
    enum fsdp_status (*all_reduce)(const void *who, void *buffer, size_t n_elems, enum fsdp_dtype dtype,
                                   enum fsdp_reduce_op op, struct fsdp_err *err);
    const void *who;
    int rank, W;
};

/* Find the lowest rank that failed; -1: none. *also becomes the largest number that any rank gave. */
static enum fsdp_status find_first(const struct members *members, bool failed, int64_t *also, int *first,
                                   struct fsdp_err *err)
{
    int64_t most[2] = { failed ? members->W - members->rank : 0, *also };
    const enum fsdp_status status = members->all_reduce(members->who, most, 2, FSDP_I64, FSDP_MAX, err);

    *first = most[0] > 0 ? members->W - (int)most[0] : -1;
    *also = most[1];
    return status;
}

/*
 * Gets the status and words of rank `first`, of which all members know that it failed. A rank that failed
 * with the same status keeps its own words.
 */
static enum fsdp_status hear(const struct members *members, int first, enum fsdp_status own,
                             struct fsdp_err *err)
{
    struct last_words last = { 0 };
    struct fsdp_err theirs = { 0 }, mine = { 0 };
    enum fsdp_status status;

    if (own != FSDP_OK && err != NULL)
        memcpy(mine.message, err->message, sizeof mine.message);
    if (first == members->rank) {
        last.status = own;
        memcpy(last.words, mine.message, sizeof mine.message);
    }
    status =
        members->all_reduce(members->who, &last, sizeof last / sizeof(int64_t), FSDP_I64, FSDP_SUM, &theirs);
    if (status != FSDP_OK)
        return own != FSDP_OK ? own : fsdp_fail(err, status, "%s", theirs.message);
    status =
        last.status > 0 && last.status < FSDP_STATUS_COUNT ? (enum fsdp_status)last.status : FSDP_ERR_PEER;
    if (own == status)
        return own;
    memcpy(theirs.message, last.words, sizeof theirs.message);
    theirs.message[sizeof theirs.message - 1] = '\0';
    if (own != FSDP_OK)
        return fsdp_fail(err, status, "rank %d: %.240s; this rank: %.200s", first, theirs.message,
                         mine.message);
    return fsdp_fail(err, status, "rank %d: %s", first, theirs.message);
}

static enum fsdp_status agree(const struct members *members, enum fsdp_status own, int64_t *also,
                              struct fsdp_err *err)
{
    struct fsdp_err theirs = { 0 };
    enum fsdp_status status;
    int first;

    if (own == FSDP_ERR_DEVICE) /* this process ends anyway, and the other ranks notice that */
        return own;
    status = find_first(members, own != FSDP_OK, also, &first, &theirs);
    if (status != FSDP_OK)
        return own != FSDP_OK ? own : fsdp_fail(err, status, "%s", theirs.message);
    return first < 0 ? FSDP_OK : hear(members, first, own, err);
}

static enum fsdp_status reduce_in_world(const void *who, void *buffer, size_t n_elems, enum fsdp_dtype dtype,
                                        enum fsdp_reduce_op op, struct fsdp_err *err)
{
    const struct fsdp_context *context = who;

    return context->W == 1 ? FSDP_OK
                           : fsdp_all_reduce(context->comm, buffer, n_elems, dtype, op,
                                             context->streams[PLAN_COMPUTE], err);
}

enum fsdp_status context_agree(const struct fsdp_context *context, enum fsdp_status own, struct fsdp_err *err)
{
    const struct members members = { reduce_in_world, context, context->rank, context->W };
    int64_t nothing = 0;

    return agree(&members, own, &nothing, err);
}

static enum fsdp_status reduce_in_mesh(const void *who, void *buffer, size_t n_elems, enum fsdp_dtype dtype,
                                       enum fsdp_reduce_op op, struct fsdp_err *err)
{
    const struct fsdp_device_mesh *mesh = who;

    for (int d = 0; d < mesh->grid.n_dims; d++)
        if (mesh->grid.sizes[d] > 1)
            OK_OR_RETURN(fsdp_all_reduce(mesh->comms[d], buffer, n_elems, dtype, op,
                                         mesh->context->streams[PLAN_COMPUTE], err));
    return FSDP_OK;
}

enum fsdp_status mesh_agree(const struct fsdp_device_mesh *mesh, enum fsdp_status own, struct fsdp_err *err)
{
    const struct members members = { reduce_in_mesh, mesh, mesh->rank,
                                     mesh->context != NULL ? mesh->context->W : 1 };
    int64_t nothing = 0;

    return mesh->context != NULL ? agree(&members, own, &nothing, err) : own;
}

/* Uses nothing but the tree, because a rank may have no memory for a model. */
enum fsdp_status tree_agree(const struct fsdp_context *context, const struct fsdp_module *root,
                            enum fsdp_status own, struct fsdp_err *err)
{
    const struct fsdp_device_mesh *mesh = root != NULL ? root->root->policy.mesh : NULL;
    int T = root != NULL && root->root->refusal.n_parts > 0 ? root->root->refusal.n_parts : 1;

    if (mesh == NULL || mesh->context != context)
        return context_agree(context, own, err);
    for (const struct fsdp_module *m = root->root; m != NULL; m = module_next(root->root, m))
        if (m->tensor.mesh != NULL)
            T = m->tensor.n_parts;
    return mesh_grid_size(&mesh->grid) * T == context->W ? context_agree(context, own, err)
                                                         : mesh_agree(mesh, own, err);
}

static enum fsdp_status reduce_in_model(const void *who, void *buffer, size_t n_elems, enum fsdp_dtype dtype,
                                        enum fsdp_reduce_op op, struct fsdp_err *err)
{
    return model_reduce_over_all(who, buffer, n_elems, dtype, op, err);
}

/*
 * The ranks also agree on whether any of them called hooks on final gradients: an update that such a hook
 * makes cannot be undone if the step fails.
 */
static enum fsdp_status agree_in_model(struct fsdp_model *model, enum fsdp_status own, struct fsdp_err *err)
{
    const struct members members = { reduce_in_model, model, model->context->rank, model->context->W };
    int64_t completed = model->completed;
    const enum fsdp_status status = agree(&members, own, &completed, err);

    model->spoiled = model->spoiled || (status != FSDP_OK && completed != 0);
    return status;
}

enum fsdp_status model_agree_with_flag(struct fsdp_model *model, double *sums, size_t n, bool *flag,
                                       enum fsdp_status own, struct fsdp_err *err)
{
    double all[MODEL_MAX_SUMS + 2] = { own != FSDP_OK, *flag };
    struct fsdp_err theirs = { 0 };
    enum fsdp_status status;

    /*
     * Nothing works on a failed device, so this rank does not take part in the agreement. Its process ends,
     * and the other ranks notice that.
     */
    if (own == FSDP_ERR_DEVICE || (own != FSDP_OK && model_is_broken(model)))
        return own;
    for (size_t i = 0; i < n; i++)
        all[2 + i] = sums[i];
    status = model_reduce_over_data(model, all, 2 + n, FSDP_F64, FSDP_SUM, &theirs);
    if (status == FSDP_OK && model->T > 1)
        status = fsdp_all_reduce(model->tensor, all, 2, FSDP_F64, FSDP_SUM,
                                 model->context->streams[PLAN_COMPUTE], &theirs);
    if (status != FSDP_OK)
        return own != FSDP_OK ? own : fsdp_fail(err, status, "%s", theirs.message);
    for (size_t i = 0; i < n; i++)
        sums[i] = all[2 + i];
    *flag = all[1] != 0;
    return all[0] == 0 ? FSDP_OK : agree_in_model(model, own, err);
}

enum fsdp_status model_agree(struct fsdp_model *model, double *sums, size_t n, enum fsdp_status own,
                             struct fsdp_err *err)
{
    bool flag = false;

    if (n == 0 && !(own != FSDP_OK && model_is_broken(model)))
        return agree_in_model(model, own, err);
    return model_agree_with_flag(model, sums, n, &flag, own, err);
}
