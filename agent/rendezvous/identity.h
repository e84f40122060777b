/*
 * The description that a node sends when it joins. The coordinator compares it with its own. So nodes that
 * were started differently are refused before the first worker runs.
 */
#ifndef AGENT_IDENTITY_H
#define AGENT_IDENTITY_H

#include "agent/config.h"
#include "agent/members/proto.h"

/**
 * Fills `self`: build, host, address, role, a hash of the job, and a new identity. Also the place that was
 * asked for, and the place that the cluster's scheduler gives. The hash leaves out where data and runs are
 * stored, which may differ from node to node.
 */
void identity_fill(struct proto_join *self, const struct agent_config *config);

/** The number of this job in every frame: a hash of its run id. */
uint64_t identity_job(const struct agent_config *config);

#endif
