/*
 * What a node says of itself when it joins, so that nodes that were started differently are told apart before
 * the first worker runs.
 */
#ifndef AGENT_IDENTITY_H
#define AGENT_IDENTITY_H

#include "agent/config.h"
#include "agent/wire/proto.h"

/**
 * Build, host, address, role, place (as asked for, and as the cluster's scheduler counts), and a hash of the job.
 * Where its data and runs lie may differ from node to node.
 */
void identity_fill(struct proto_join *self, const struct agent_config *config);

/** The number of this job in every frame: of its run id. */
uint64_t identity_job(const struct agent_config *config);

#endif
