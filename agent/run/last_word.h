/*
 * What a guard says when its agent has ended without leaving the job in order, and no process below it is
 * left: to the coordinator, if the agent was a member (agent/wire/swept.h), or into the record of who leads,
 * if it led (agent/arbiter/leader_swept.h). The agent says so itself otherwise, and leaves nothing to its
 * guard.
 */
#ifndef AGENT_LAST_WORD_H
#define AGENT_LAST_WORD_H

#include "agent/config.h"
#include "agent/os/lease.h"

/** The `swept` of struct guard_config; `config` is the struct agent_config. Takes a lease at most. */
void last_word_say(void *config, const struct lease *lease);

#endif
