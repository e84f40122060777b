/*
 * The agents whose identities never come back. Some have left the run. Others were refused for good, because
 * they were restored from an earlier state (agent/wire/session_agents.h). The leader tells its members, so
 * that the next leader refuses these agents too.
 *
 * Pure: no sockets, no loop.
 */
#ifndef AGENT_ENDED_H
#define AGENT_ENDED_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/members/proto.h"

/* All zero: none is known. */
struct ended {
    unsigned char (*identities)[PROTO_IDENTITY_BYTES]; /* (n) the newest last, allocated */
    size_t n;
    uint64_t n_added; /* identities added in all; beyond PROTO_ENDED_MAX, the oldest are forgotten */
};

/** Adds an identity, unless it is there. If there is no memory for it, it is not added. */
void ended_add(struct ended *ended, const unsigned char identity[PROTO_IDENTITY_BYTES]);
bool ended_has(const struct ended *ended, const unsigned char identity[PROTO_IDENTITY_BYTES]);
/** Returns, as a message, the identities that were added after the first `n_told`. */
struct proto_ended ended_since(const struct ended *ended, uint64_t n_told);
/** Add those of a message. */
void ended_take(struct ended *ended, const struct proto_ended *message);
void ended_fini(struct ended *ended);

#endif
