#include "agent/config.h"

#include <signal.h>
#include <string.h>

enum {
    DEFAULT_GRACE_MS = 30000,
    DEFAULT_HANG_TIMEOUT_MS = 600000,
    DEFAULT_JOIN_TIMEOUT_MS = 600000,
    DEFAULT_LAST_CALL_MS = 30000
};

void agent_config_init(struct agent_config *config)
{
    memset(config, 0, sizeof *config);
    config->run_id = "none";
    config->role = "default";
    config->n_workers = 1;
    config->n_nodes = 1;
    config->min_nodes = 1;
    config->join_timeout_ms = DEFAULT_JOIN_TIMEOUT_MS;
    config->last_call_timeout_ms = DEFAULT_LAST_CALL_MS;
    config->lease_ms = AGENT_LEASE_MS;
    config->stop_signals =
        UINT64_C(1) << SIGTERM | UINT64_C(1) << SIGINT | UINT64_C(1) << SIGHUP | UINT64_C(1) << SIGQUIT;
    config->stop_signals_text = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
    config->grace_ms = DEFAULT_GRACE_MS;
    config->hang_timeout_ms = DEFAULT_HANG_TIMEOUT_MS;
    config->snapshot_bytes = -1;
}

int agent_daemon_stops(void)
{
    return SIGRTMIN;
}

uint64_t agent_signals(const struct agent_config *config)
{
    uint64_t set = config->stop_signals | config->forward_signals;

    if ((config->save_on_signal & AGENT_SAVE_TERM) != 0)
        set |= UINT64_C(1) << SIGTERM;
    if ((config->save_on_signal & AGENT_SAVE_USR1) != 0)
        set |= UINT64_C(1) << SIGUSR1;
    if ((config->save_on_signal & AGENT_SAVE_DAEMON) != 0)
        set |= UINT64_C(1) << agent_daemon_stops();
    return set & ~(UINT64_C(1) | UINT64_C(1) << SIGKILL | UINT64_C(1) << SIGSTOP | UINT64_C(1) << SIGCHLD);
}
