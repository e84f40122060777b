#include "shard_runtime/engine/checkpoint_choose.h"

#include <stdlib.h>

#include "shard_runtime/shardfile/verify.h"

/* The steps that this rank sees in the directory, newest first. */
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
 * Every rank proposes a step, and all of them verify the newest proposal. They get the same answer:
 *   FSDP_OK          *step verifies
 *   FSDP_ERR_FORMAT  it does not, and another may be tried; `reason` has this rank's words, if it found the damage
 *   any other        the end, with words in `err`
 * `listed`: with another value than FSDP_OK this rank could not look, and its words are in `err` already.
 */
static enum fsdp_status try_one(struct fsdp_context *context, const char *directory, enum fsdp_status listed,
                                int64_t proposed, int64_t *step, struct fsdp_err *reason,
                                struct fsdp_err *err)
{
    int64_t proposals[3] = { listed != FSDP_OK, proposed, -proposed }; /* trouble, the newest, the oldest */
    int64_t outcomes[3];
    struct fsdp_err why = { 0 };
    enum fsdp_status status = most(context, proposals, 3, &why), own;

    if (listed != FSDP_OK)
        return listed;
    if (status != FSDP_OK)
        return fsdp_fail(err, status, "%s", why.message);
    if (proposals[0] != 0)
        return fsdp_fail(err, FSDP_ERR_IO, "another rank could not read %s", directory);
    *step = proposals[1];
    if (*step < 0)
        return fsdp_fail(err, FSDP_ERR_NOT_FOUND, "there is no checkpoint in %s", directory);
    own = verify_named_part(context_files(context), directory, *step, (size_t)context->rank,
                            (size_t)context->W, reason);
    outcomes[0] = own == FSDP_ERR_NOMEM; /* it says nothing about the checkpoint */
    outcomes[1] = own == FSDP_ERR_NOT_FOUND && proposed != *step;
    outcomes[2] = own != FSDP_OK;
    status = most(context, outcomes, 3, err);
    if (status != FSDP_OK)
        return status;
    if (outcomes[0] != 0)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory to verify step %lld", (long long)*step);
    if (outcomes[1] != 0)
        return differ(-proposals[2], *step, err);
    return outcomes[2] == 0 ? FSDP_OK : FSDP_ERR_FORMAT;
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
        return fsdp_fail(
            err, FSDP_ERR_FORMAT, "none of the %zu checkpoints in %s can be used; the newest: %s", n_damaged,
            directory, newest.message[0] != '\0' ? newest.message : "another rank found it damaged");
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
    return reason.message[0] != '\0'
               ? fsdp_fail(err, reason.status, "%s", reason.message)
               : fsdp_fail(err, FSDP_ERR_FORMAT, "another rank found step %lld damaged", (long long)step);
}

enum fsdp_status checkpoint_choose(struct fsdp_context *context, const char *directory, int64_t *step,
                                   struct fsdp_err *err)
{
    return *step >= 0 ? verify_named(context, directory, *step, err)
                      : choose_newest(context, directory, step, err);
}
