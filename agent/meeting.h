/*
 * The rendezvous (agent/rendezvous.h) of one run: its key, who we are, and how long we wait. What both sides of
 * it, the coordinator's (agent/nodes.h) and a member's (agent/uplink.h), begin with.
 */
#ifndef AGENT_MEETING_H
#define AGENT_MEETING_H

#include "agent/agent.h"
#include "agent/rendezvous.h"

/** Start to meet the other nodes of `config`. Errors as rendezvous_create(). */
enum fsdp_status meeting_begin(struct rendezvous **out, uv_loop_t *loop, const struct agent_config *config,
                               const struct rendezvous_handlers *handlers, void *arg, struct fsdp_err *err);

#endif
