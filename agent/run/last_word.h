/*
 * What a guard says when its agent has ended without leaving the job in order, and no process below it is
 * left: to the coordinator, if the agent was a member (agent/wire/swept.h). If it led, into the record of who
 * leads (agent/arbiter/leader_swept.h). If the agent ended in order, it has said so itself, and left its
 * guard nothing to say.
 */
#ifndef AGENT_LAST_WORD_H
#define AGENT_LAST_WORD_H

#include "agent/config.h"
#include "agent/os/lease.h"

/**
 * The `swept` function of struct guard_config; `config` is the struct agent_config. Returns within one lease.
 */
void last_word_say(void *config, const struct lease *lease);

#endif
