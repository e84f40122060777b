/*
 * An optimizer that updates groups inside backward. If the step fails afterwards, updates that were made are
 * not undone:
 *   1. A rank finds that a group's gradient is not finite, or fails in another way. It updates nothing more,
 *      and takes part in the collectives that are left.
 *   2. The other ranks do not know it yet, and go on with their updates.
 *   3. At the end of the step all ranks agree that it failed, and exchange which groups any of them updated.
 * From then on the model is torn, and is not saved, until a checkpoint is loaded into it.
 */
#include <stdio.h>
#include <string.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/model.h"

enum { GROUPS_AT_ONCE = 64, NAMES_BYTES = 256, ROOM_FOR_THE_REST = 24 };

bool model_updates_in_backward(const struct fsdp_model *model)
{
    bool updates = false;

    for (int g = 0; g < model->layout.n_groups && !updates; g++)
        updates = model->layout.groups[g].unit->policy.post_hook != NULL;
    return updates;
}

/* Sets in_step[].updated, on every rank, for each group that any rank has updated. */
static enum fsdp_status collect_updates(struct fsdp_model *model)
{
    int64_t updated[GROUPS_AT_ONCE];

    for (int first = 0; first < model->layout.n_groups; first += GROUPS_AT_ONCE) {
        const int left = model->layout.n_groups - first, n = left < GROUPS_AT_ONCE ? left : GROUPS_AT_ONCE;

        for (int i = 0; i < n; i++)
            updated[i] = model->in_step[first + i].updated;
        OK_OR_RETURN(model_reduce_over_all(model, updated, (size_t)n, FSDP_I64, FSDP_MAX, NULL));
        for (int i = 0; i < n; i++)
            model->in_step[first + i].updated = updated[i] != 0;
    }
    return FSDP_OK;
}

/*
 * List the names of the updated groups, the last one first, as backward goes. Names without room are counted.
 * Returns the number of updated groups.
 */
static int list_updates(const struct fsdp_model *model, char names[NAMES_BYTES])
{
    int n_updated = 0, n_left_out = 0;
    size_t length = 0;

    names[0] = '\0';
    for (int g = model->layout.n_groups - 1; g >= 0; g--) {
        const char *path = model->layout.groups[g].unit->path;
        const size_t room = NAMES_BYTES - ROOM_FOR_THE_REST - length;

        if (!model->in_step[g].updated)
            continue;
        n_updated++;
        if (n_left_out > 0 || strlen(path) + sizeof ", \"the root\"" > room)
            n_left_out++;
        else
            length += (size_t)snprintf(names + length, room, path[0] != '\0' ? "%s\"%s\"" : "%sthe root%s",
                                       length > 0 ? ", " : "", path);
    }
    if (n_left_out > 0)
        (void)snprintf(names + length, NAMES_BYTES - length, " and %d more", n_left_out);
    return n_updated;
}

enum fsdp_status model_tell_updates(struct fsdp_model *model, enum fsdp_status status, struct fsdp_err *err)
{
    char names[NAMES_BYTES];

    if (status != FSDP_ERR_DEVICE && !model_is_broken(model))
        /* if this fails, the model's groups are broken, and only this rank's own updates can be named */
        (void)collect_updates(model);
    if (list_updates(model, names) == 0)
        return status;
    model->torn = true;
    return err == NULL
               ? status
               : fsdp_fail(err, status, "%s; updated in this step, and not undone: %s", err->message, names);
}

/* Returns a group that was updated in a step which fsdp_optimizer_step() did not end; -1: there is none. */
static int find_unended(const struct fsdp_model *model)
{
    for (int g = 0; g < model->layout.n_groups && model->has_gradients && !model->used; g++)
        if (model->in_step[g].updated)
            return g;
    return -1;
}

void model_note_dropped(struct fsdp_model *model)
{
    model->torn = model->torn || find_unended(model) >= 0;
}

enum fsdp_status model_check_not_torn(const struct fsdp_model *model, struct fsdp_err *err)
{
    const int group = find_unended(model);

    if (model->torn)
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "a step that failed or was dropped has updated some groups and not others: a "
                         "checkpoint must be loaded before the next save");
    return group < 0 ? FSDP_OK
                     : fsdp_fail(err, FSDP_ERR_ARG,
                                 "the step that updated group %d is not over: fsdp_optimizer_step() ends it",
                                 group);
}
