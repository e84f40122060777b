#include "shard_runtime/state/checkpoint_choose.h"

#include <stdlib.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/verify.h"

/* The steps that this rank finds in the directory, newest first. */
struct seen {
    int64_t *steps;
    size_t n;
};

static enum fsdp_status most(struct fsdp_context *context, int64_t *values, size_t n, struct fsdp_err *err)
{
    return context->W == 1 ? FSDP_OK
                           : fsdp_all_reduce(context->comm, values, n, FSDP_I64, FSDP_MAX,
                                             context->streams[PLAN_COMPUTE], err);
}

static int64_t newest_before(const struct seen *seen, int64_t before)
{
    for (size_t i = 0; i < seen->n; i++)
        if (seen->steps[i] < before)
            return seen->steps[i];
    return -1;
}

static enum fsdp_status differ(int64_t oldest, int64_t newest, struct fsdp_err *err)
{
    return fsdp_fail(err, FSDP_ERR_MISMATCH,
                     "ranks found different checkpoints, from step %lld to step %lld: the directory must be "
                     "the same on all of them",
                     (long long)oldest, (long long)newest);
}

/*
 * Every rank proposes a step, and all ranks verify the newest proposed step. All ranks get the same result:
 *   FSDP_OK          *step verifies
 *   FSDP_ERR_FORMAT  it does not, and the caller may try another one; `reason` has the message of a rank that
 *                    found the damage
 *   any other        the caller must stop; the message is in `err`
 * `listed` is the status of listing the directory on this rank. If it is not FSDP_OK, the reason is already
 * in `err`.
 */
static enum fsdp_status try_one(struct fsdp_context *context, const char *directory, enum fsdp_status listed,
                                int64_t proposed, int64_t *step, struct fsdp_err *reason,
                                struct fsdp_err *err)
{
    int64_t proposals[2] = { proposed, -proposed }; /* newest proposal, negated oldest proposal */
    enum fsdp_status status;

    OK_OR_RETURN(context_agree(context, listed, err));
    OK_OR_RETURN(most(context, proposals, 2, err));
    *step = proposals[0];
    if (*step < 0)
        return fsdp_fail(err, FSDP_ERR_NOT_FOUND, "there is no checkpoint in %s", directory);
    status = verify_named_part(context_files(context), directory, *step, (size_t)context->rank,
                               (size_t)context->W, reason);
    if (status == FSDP_ERR_NOT_FOUND && proposed != *step)
        status = differ(-proposals[1], *step, reason);
    status = context_agree(context, status, reason);
    if (status == FSDP_ERR_NOMEM || status == FSDP_ERR_MISMATCH || status == FSDP_ERR_PEER)
        /* This failure is not about the checkpoint's contents, so no other step is tried. */
        return fsdp_fail(err, status, "%s", reason->message);
    return status == FSDP_OK ? FSDP_OK : FSDP_ERR_FORMAT;
}

static enum fsdp_status choose_newest(struct fsdp_context *context, const char *directory, int64_t *step,
                                      struct fsdp_err *err)
{
    struct fsdp_err newest = { 0 };
    struct seen seen = { 0 };
    const enum fsdp_status listed =
        verify_list_steps(context_files(context), directory, &seen.steps, &seen.n, err);
    enum fsdp_status status;
    int64_t tried = INT64_MAX;
    size_t n_damaged = 0;

    for (;;) {
        struct fsdp_err reason = { 0 };

        status = try_one(context, directory, listed, newest_before(&seen, tried), &tried, &reason, err);
        if (status != FSDP_ERR_FORMAT)
            break;
        if (n_damaged++ == 0)
            newest = reason;
    }
    free(seen.steps);
    if (status == FSDP_ERR_NOT_FOUND && n_damaged > 0)
        return fsdp_fail(err, FSDP_ERR_FORMAT,
                         "none of the %zu checkpoints in %s can be used; the newest: %s", n_damaged,
                         directory, newest.message);
    if (status == FSDP_OK)
        *step = tried;
    return status;
}

static enum fsdp_status verify_named(struct fsdp_context *context, const char *directory, int64_t step,
                                     struct fsdp_err *err)
{
    struct fsdp_err reason = { 0 };
    int64_t tried = step;
    const enum fsdp_status status = try_one(context, directory, FSDP_OK, step, &tried, &reason, err);

    if (status != FSDP_ERR_FORMAT)
        return status == FSDP_OK && tried != step ? differ(step, tried, err) : status;
    return fsdp_fail(err, reason.status, "%s", reason.message);
}

enum fsdp_status checkpoint_choose(struct fsdp_context *context, const char *directory, int64_t *step,
                                   struct fsdp_err *err)
{
    return *step >= 0 ? verify_named(context, directory, *step, err)
                      : choose_newest(context, directory, step, err);
}
