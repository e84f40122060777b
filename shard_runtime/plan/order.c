/*
 * Decides which entry waits for which other entries. Entries of one stream run in order. An entry waits for
 * one of another stream if both use the same bytes and one of them writes. That covers the use of a result,
 * and the reuse of a place in the arena by a later buffer. A wait that earlier waits imply is left out, by
 * vector clocks: Fidge, "Timestamps in message-passing systems that preserve the partial ordering", 1988.
 */
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/plan/plan.h"

static bool same_bytes(const struct plan_buffer *a, const struct plan_buffer *b)
{
    return a->offset < b->offset + b->size_bytes && b->offset < a->offset + a->size_bytes;
}

/* Do the two entries use the same bytes, and does one of them write these bytes? */
static bool collide(const struct plan *plan, const struct plan_entry *a, const struct plan_entry *b)
{
    for (int i = 0; i < a->n_accesses; i++)
        for (int j = 0; j < b->n_accesses; j++) {
            const struct plan_access *x = &plan->accesses[a->first_access + i];
            const struct plan_access *y = &plan->accesses[b->first_access + j];

            if ((x->writes || y->writes) && same_bytes(&plan->buffers[x->buffer], &plan->buffers[y->buffer]))
                return true;
        }
    return false;
}

/*
 * Returns the latest entry of `stream`, after entry `known` and before `entry`, that `entry` must wait for;
 * -1: there is none.
 */
static int find_wait(const struct plan *plan, int entry, enum plan_stream stream, int known)
{
    for (int before = entry - 1; before > known; before--)
        if (plan->entries[before].stream == stream &&
            collide(plan, &plan->entries[entry], &plan->entries[before]))
            return before;
    return -1;
}

enum fsdp_status plan_order_streams(struct plan *plan, struct fsdp_err *err)
{
    int(*clock)[PLAN_N_STREAMS] = alloc_array((size_t)plan->n_entries, sizeof *clock);
    /* now[s][t]: the latest entry of stream t that is known to be done at the current entry of stream s */
    int now[PLAN_N_STREAMS][PLAN_N_STREAMS];

    if (clock == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "planning: out of memory");
    memset(now, -1, sizeof now);
    for (int entry = 0; entry < plan->n_entries; entry++) {
        struct plan_entry *e = &plan->entries[entry];
        int *mine = now[e->stream];

        for (int s = 0; s < PLAN_N_STREAMS; s++) {
            const int wait = s == (int)e->stream ? -1 : find_wait(plan, entry, (enum plan_stream)s, mine[s]);

            e->waits[s] = wait;
            if (wait < 0)
                continue;
            plan->entries[wait].records = true;
            for (int t = 0; t < PLAN_N_STREAMS; t++)
                if (clock[wait][t] > mine[t])
                    mine[t] = clock[wait][t];
        }
        mine[e->stream] = entry;
        memcpy(clock[entry], mine, sizeof clock[entry]);
    }
    free(clock);
    return FSDP_OK;
}
