/*
 * The proof that a leader's agent and the ranks of its node are gone. If the agent is killed, its guard kills
 * every process below it, and then writes that into the record. Then another agent need not wait until the
 * record is stale (lead.h). Its coordinator begins a generation as soon as the other nodes of the last one
 * have come (agent/cluster/coordinator_fence).
 *   - The leader leaves to its guard who it is and which generation it has begun (agent/os/lease.h), before
 *     any node is told of that generation. So what the guard writes is never about an older generation than
 *     that of the ranks.
 *   - The guard writes nothing if the record is another agent's, or says that the run is over.
 *   - A write of the killed agent that takes effect late has a lower number.
 */
#ifndef AGENT_LEADER_SWEPT_H
#define AGENT_LEADER_SWEPT_H

#include "agent/arbiter/arbiter_store.h"

/*
 * What a leader leaves to its guard. Its size differs from that of struct swept_will, which a member leaves,
 * so that the guard can tell which of the two it has.
 */
struct leader_will {
    unsigned char agent[SESSION_IDENTITY_BYTES];
    int32_t generation, n_nodes, node_rank; /* as in struct leader_progress */
};

/**
 * Write into the record of the run that the leader's node is swept. Blocking.
 *   ARBITER_DONE     it is written
 *   ARBITER_DEPOSED  there is nothing to write: the agent does not lead
 *   ARBITER_FAILED   it may not be written; `err` has the store's message
 */
enum arbiter_answer leader_swept_say(struct arbiter_store *store, uint64_t run,
                                     const struct leader_will *will, struct fsdp_err *err);

#endif
