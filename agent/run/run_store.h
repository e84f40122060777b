/* Where the arbiter of a run keeps the record of who leads, as the configuration says. */
#ifndef AGENT_RUN_STORE_H
#define AGENT_RUN_STORE_H

#include "agent/arbiter/arbiter_store.h"
#include "agent/config.h"

/** Create the store of config->arbiter, which is not AGENT_ARBITER_NONE. After a failure nothing is left. */
enum fsdp_status run_store_open(struct arbiter_store **out, const struct agent_config *config,
                                struct fsdp_err *err);

#endif
