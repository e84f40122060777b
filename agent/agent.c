#include "agent/agent.h"

#include <string.h>

enum { DEFAULT_GRACE_MS = 30000, DEFAULT_HANG_TIMEOUT_MS = 600000 };

void agent_config_init(struct agent_config *config)
{
    memset(config, 0, sizeof *config);
    config->stdio[1] = 1;
    config->stdio[2] = 2;
    config->run_id = "none";
    config->role = "default";
    config->n_workers = 1;
    config->n_nodes = 1;
    config->grace_ms = DEFAULT_GRACE_MS;
    config->hang_timeout_ms = DEFAULT_HANG_TIMEOUT_MS;
}
