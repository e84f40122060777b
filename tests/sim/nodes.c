/* One history of several nodes. */
#include "tests/sim/sim.h"

int sim_speaker(void)
{
    return sim_current == NULL ? -1 : sim_current->host->number;
}

static const int64_t end = 400 * SECOND;

static bool is_over(void)
{
    for (int i = 0; i < sim_plan.n_hosts; i++)
        if (sim_hosts[i].process != NULL && sim_hosts[i].process->alive)
            return false;
    return sim_now > sim_plan.last_fault + 10 * SECOND;
}

void sim_history(uint64_t seed)
{
    sim_make_plan(seed);
    sim_trace("%d hosts, %d:%d nodes, %d workers, %s%s%s%s%s, lease %lld ms, grace %lld ms", sim_plan.n_hosts,
              sim_plan.min_nodes, sim_plan.max_nodes, sim_plan.n_workers, sim_plan.job ? "job" : "program",
              sim_plan.gentle ? ", gentle" : "", sim_plan.quiet ? ", quiet" : "",
              !sim_plan.arbiter      ? ""
              : sim_plan.no_endpoint ? ", etcd without an endpoint"
              : sim_plan.etcd        ? ", etcd"
                                     : ", directory",
              sim_plan.takes_over ? ", the leader is lost" : "", (long long)sim_plan.lease_ms,
              (long long)sim_plan.grace_ms);
    sim_schedule();
    sim_run(end, is_over);
    sim_check_end();
}
