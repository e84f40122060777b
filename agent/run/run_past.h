/*
 * The past of a run, as the node that takes over knows it from two sources: what the lost leader published,
 * and what this node saw itself. Pure.
 */
#ifndef AGENT_RUN_PAST_H
#define AGENT_RUN_PAST_H

#include "agent/arbiter/leader_record.h"
#include "agent/cluster/coordinator.h"

/**
 * Adds what the lost leader wrote last, `before`, to what this node saw itself, which is in `past`. Where
 * both say something, the newer counts. `max_restarts` is that of the configuration.
 */
void run_past_merge(struct coordinator_past *past, const struct leader_record *before, int max_restarts);

#endif
