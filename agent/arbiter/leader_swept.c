#include "agent/arbiter/leader_swept.h"

#include <string.h>

/*
 * A sequence so much higher that no late write of the killed agent can have it. It is odd, so in a directory
 * it is stored in the other place than the newest record: if this write is torn, that record stays.
 */
enum { BEYOND_LATE_WRITES = 17 };

enum arbiter_answer leader_swept_say(struct arbiter_store *store, uint64_t run,
                                     const struct leader_will *will, struct fsdp_err *err)
{
    struct leader_record record, newer;
    const enum arbiter_answer found = store->ops->read(store, &record, err);

    if (found == ARBITER_FAILED)
        return ARBITER_FAILED;
    if (found != ARBITER_DONE || record.run != run || record.state != LEADER_LEADS ||
        memcmp(record.identity, will->agent, sizeof record.identity) != 0)
        return ARBITER_DEPOSED;
    record.state = LEADER_SWEPT;
    record.sequence += BEYOND_LATE_WRITES;
    record.goes_on = false;
    record.progress.generation = will->generation;
    record.progress.n_nodes = will->n_nodes;
    record.progress.node_rank = will->node_rank;
    return store->ops->renew(store, &record, &newer, err);
}
