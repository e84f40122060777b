/*
 * The agents whose sessions an end has accepted, by the identity that each has proven (agent/wire/tls.h). For
 * each agent it is kept how far its last session came, even after that session has ended. So an agent that
 * was restored from an earlier state is recognised when it names that session again, and is then refused for
 * good: its identity never comes back.
 *
 * Pure: no sockets, no loop.
 */
#ifndef AGENT_SESSION_AGENTS_H
#define AGENT_SESSION_AGENTS_H

#include <stdbool.h>

#include "agent/wire/session_hello.h"
#include "shard_runtime/core/table.h"

/* All zero: no agent is known. */
struct session_agents {
    struct table table;
};

/**
 * The session `session` of `agent` was accepted. If there is no memory for it, or if there are too many
 * agents, the agent is not remembered.
 */
void session_agents_begin(struct session_agents *agents, const unsigned char agent[SESSION_IDENTITY_BYTES],
                          const unsigned char session[SESSION_IDENTITY_BYTES]);
/**
 * That session has ended, and has come so far. No effect if the agent is not remembered, or has begun another
 * session.
 */
void session_agents_end(struct session_agents *agents, const unsigned char agent[SESSION_IDENTITY_BYTES],
                        const unsigned char session[SESSION_IDENTITY_BYTES],
                        const struct session_reach *reach);
/**
 * From now on the agent is refused: it was restored from an earlier state, or has ended for good
 * (agent/wire/swept.h).
 */
void session_agents_refuse(struct session_agents *agents, const unsigned char agent[SESSION_IDENTITY_BYTES]);

/** Is the agent refused for good? */
bool session_agents_refuses(const struct session_agents *agents,
                            const unsigned char agent[SESSION_IDENTITY_BYTES]);

/**
 * Judge a HELLO of a session that is not there, and fill in the answer: SESSION_NEW (the answer is the
 * caller's), SESSION_GONE, SESSION_BACKWARDS, or SESSION_STALE (there is none: who was restored counts its
 * connections from there on, and comes again with a higher number).
 *   agent  what the connection has proven; NULL: nothing
 *   err    says of SESSION_BACKWARDS which end was restored
 */
enum session_verdict session_agents_judge(struct session_agents *agents, const unsigned char *agent,
                                          const struct session_hello *hello, struct session_hello *answer,
                                          struct fsdp_err *err);

void session_agents_free(struct session_agents *agents);

#endif
