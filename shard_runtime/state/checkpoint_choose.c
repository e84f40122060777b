#include "shard_runtime/state/checkpoint_choose.h"

#include <stdio.h>
#include <stdlib.h>

#include "shard_runtime/core/json.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/verify.h"

void checkpoint_choice_init(struct checkpoint_choice *choice, struct fsdp_context *context,
                            const char *directory, int64_t named, bool falls_back)
{
    *choice = (struct checkpoint_choice){ .context = context,
                                          .directory = directory,
                                          .named = named,
                                          .falls_back = falls_back,
                                          .tried = INT64_MAX };
}

void checkpoint_choice_free(struct checkpoint_choice *choice)
{
    free(choice->steps);
    choice->steps = NULL;
}

static enum fsdp_status most(struct fsdp_context *context, int64_t *values, size_t n, struct fsdp_err *err)
{
    return context->W == 1 ? FSDP_OK
                           : fsdp_all_reduce(context->comm, values, n, FSDP_I64, FSDP_MAX,
                                             context->streams[PLAN_COMPUTE], err);
}

static enum fsdp_status list_steps(struct checkpoint_choice *choice, struct fsdp_err *err)
{
    if (choice->listed)
        return FSDP_OK;
    OK_OR_RETURN(verify_list_steps(context_files(choice->context), choice->directory, &choice->steps,
                                   &choice->n_steps, err));
    choice->listed = true;
    return FSDP_OK;
}

/* Returns the step that this rank would choose next; -1: it sees none. */
static int64_t proposal_of(const struct checkpoint_choice *choice)
{
    if (choice->tried == INT64_MAX && choice->named >= 0)
        return choice->named;
    for (size_t i = 0; i < choice->n_steps; i++)
        if (choice->steps[i] < choice->tried)
            return choice->steps[i];
    return -1;
}

/*
 * Returns whether this rank sees `step` among the checkpoints. A rank that never listed them (the step was
 * given) counts as seeing it: loading will show whether it is there.
 */
static bool is_seen(const struct checkpoint_choice *choice, int64_t step)
{
    bool seen = !choice->listed;

    for (size_t i = 0; i < choice->n_steps && !seen; i++)
        seen = choice->steps[i] == step;
    return seen;
}

static enum fsdp_status differ(int64_t oldest, int64_t newest, struct fsdp_err *err)
{
    return fsdp_fail(err, FSDP_ERR_MISMATCH,
                     "ranks found different checkpoints, from step %lld to step %lld: the directory must be "
                     "the same on all of them",
                     (long long)oldest, (long long)newest);
}

enum fsdp_status checkpoint_choice_next(struct checkpoint_choice *choice, int64_t *step, struct fsdp_err *err)
{
    const bool first = choice->tried == INT64_MAX;
    enum fsdp_status status = first && choice->named >= 0 ? FSDP_OK : list_steps(choice, err);
    int64_t proposals[2]; /* newest proposal, negated oldest proposal */

    OK_OR_RETURN(context_agree(choice->context, status, err));
    proposals[0] = proposal_of(choice);
    proposals[1] = -proposals[0];
    OK_OR_RETURN(most(choice->context, proposals, 2, err));
    if (proposals[0] < 0 && choice->n_passed > 0)
        return fsdp_fail(err, FSDP_ERR_FORMAT,
                         "none of the %zu checkpoints in %s can be used; the newest: %s", choice->n_passed,
                         choice->directory, choice->newest);
    if (proposals[0] < 0)
        return fsdp_fail(err, FSDP_ERR_NOT_FOUND, "there is no checkpoint in %s", choice->directory);
    if (!is_seen(choice, proposals[0]) || (first && choice->named >= 0 && choice->named != proposals[0]))
        status = differ(-proposals[1], proposals[0], err);
    OK_OR_RETURN(context_agree(choice->context, status, err));
    choice->tried = *step = proposals[0];
    return FSDP_OK;
}

/*
 * Records an event about a checkpoint that was passed over. Only rank 0 does so. A run without an agent has
 * no events.
 */
static void say_passed(const struct checkpoint_choice *choice, const char *reason)
{
    char words[FSDP_LINK_EVENT_BYTES];
    struct json_text event = json_text_fixed(words, sizeof words);

    if (choice->context->rank != 0)
        return;
    json_open(&event, NULL, '{');
    json_field_string(&event, "event", "checkpoint_skipped");
    json_field(&event, "step", "%lld", (long long)choice->tried);
    json_field_string(&event, "reason", reason);
    json_close(&event, '}');
    if (!event.failed)
        (void)fsdp_context_event(choice->context, words, NULL);
}

bool checkpoint_choice_pass(struct checkpoint_choice *choice, enum fsdp_status status, const char *words,
                            struct fsdp_err *err)
{
    /*
     * Each of these four, a read error too, counts as damage to this checkpoint, and an older one may do. Any
     * other failure, such as a lack of memory, says nothing about it, and would meet the next one too.
     */
    const bool damaged = status == FSDP_ERR_FORMAT || status == FSDP_ERR_NOT_FOUND ||
                         status == FSDP_ERR_UNSUPPORTED || status == FSDP_ERR_IO;

    if (!damaged || !choice->falls_back) {
        fsdp_fail(err, status, "%s", words);
        return false;
    }
    if (choice->n_passed++ == 0)
        snprintf(choice->newest, sizeof choice->newest, "%s", words);
    say_passed(choice, words);
    return true;
}
