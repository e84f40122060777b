/*
 * The guard's part of a lease (agent/os/lease.h): it kills the ranks when the lease is over. The agent itself
 * goes on, and reports what happened.
 */
#ifndef AGENT_GUARD_LEASE_H
#define AGENT_GUARD_LEASE_H

#include <sys/types.h>

#include "agent/os/lease.h"

struct guard_lease {
    struct lease lease;
    pid_t agent;
    int n_passes; /* how often the ranks were killed since the lease ended */
};

/**
 * If the lease is over, kill every process below the agent, and set the timer for the next pass. A process
 * may have been forked meanwhile, also by an agent that was stopped while it started ranks. The passes end
 * when the agent says that no process is left. If the lease still runs, set the timer for its end. Call it
 * whenever the guard wakes. A no-op without a lease.
 */
void guard_lease_look(struct guard_lease *guard);

/**
 * Does every process below the agent stand still, so that the guard may stop too? Stops those that do not.
 * Always true without a lease.
 */
bool guard_lease_all_stopped(const struct guard_lease *guard);

/**
 * Returns how long the agent may take after the grace period, before the guard kills it: GUARD_SLACK_MS, with
 * the waits of the lease. The lease is the leader's once an answer has named it. Before that, or without a
 * lease, it is the node's own setting.
 */
int64_t guard_lease_slack_ms(const struct guard_lease *guard, int64_t own_lease_ms);

#endif
