/* The plan of a seed: how many nodes, what they run, and what happens to them. */
#include <signal.h>
#include <string.h>

#include "tests/sim/arbiter/store.h"
#include "tests/sim/sim.h"

struct plan sim_plan;

static int draw_rate(int most)
{
    return sim_one_in(SIM_PLAN, 2) ? 0 : (int)sim_between(SIM_PLAN, 2, most);
}

/* The loss of its leader is nothing that the run ends for. */
static void make_take_over(struct plan *plan)
{
    plan->takes_over = true;
    plan->gentle = plan->quiet = false;
    plan->fails_one_in = 0;
    plan->work_ns = sim_between(SIM_PLAN, 20, 40) * SECOND;
    if (plan->min_nodes == plan->max_nodes && plan->max_restarts < 2)
        plan->max_restarts = 2;
}

static void make_arbiter(struct plan *plan, uint64_t seed)
{
    plan->arbiter = sim_one_in(SIM_PLAN, 2);
    if (!plan->arbiter)
        return;
    if (sim_one_in(SIM_PLAN, 5))
        make_take_over(plan);
    plan->etcd = sim_one_in(SIM_PLAN, 3);
    plan->no_endpoint = plan->etcd && seed % 3 == 0;
    plan->has_run_dir = plan->job || !plan->etcd || sim_one_in(SIM_PLAN, 2);
    plan->store_ns = sim_between(SIM_PLAN, MS / 10, 40 * MS);
    if (!plan->gentle && !plan->takes_over) {
        plan->store_slow_one_in = draw_rate(20);
        plan->store_fails_one_in = draw_rate(40);
        plan->store_loses_one_in = draw_rate(40);
        store_kind.lags_one_in = plan->etcd ? 0 : (int)sim_between(SIM_PLAN, 0, 4);
    }
    store_kind.one_key = plan->etcd;
    store_kind.longest_lag_ns = plan->lease_ms * MS * 8 / 100;
}

void sim_make_plan(uint64_t seed)
{
    const int64_t leases_ms[] = { 3000, 3000, 3000, 1500, 6000 };
    struct plan *plan = &sim_plan;
    int n_spares;

    sim_seed(seed);
    *plan = (struct plan){ .n_hosts = 0 };
    plan->max_nodes = (int)sim_between(SIM_PLAN, 2, 4);
    plan->min_nodes =
        sim_one_in(SIM_PLAN, 2) ? plan->max_nodes : (int)sim_between(SIM_PLAN, 1, plan->max_nodes);
    n_spares = sim_one_in(SIM_PLAN, 3) ? (int)sim_between(SIM_PLAN, 1, 2) : 0;
    plan->n_hosts = plan->max_nodes + n_spares;
    plan->n_workers = (int)sim_between(SIM_PLAN, 1, SIM_WORKERS);
    plan->max_restarts = (int)sim_between(SIM_PLAN, 0, 4);
    plan->job = sim_one_in(SIM_PLAN, 3);
    plan->lease_ms = leases_ms[sim_draw(SIM_PLAN) % 5];
    plan->grace_ms = sim_between(SIM_PLAN, 500, 25000);
    plan->join_ms = sim_between(SIM_PLAN, 15000, 40000);
    plan->work_ns = sim_between(SIM_PLAN, 2, 40) * SECOND;
    plan->quiet = sim_one_in(SIM_PLAN, 16);
    plan->gentle = plan->quiet || sim_one_in(SIM_PLAN, 3);
    /* gentle: all come in time */
    plan->last_call_ms = plan->gentle ? 8000 : sim_between(SIM_PLAN, 1000, 5000);
    plan->chatter_ms = sim_one_in(SIM_PLAN, 4) ? 0 : sim_between(SIM_PLAN, 20, 400);
    plan->fails_one_in = plan->gentle || sim_one_in(SIM_PLAN, 2) ? 0 : (int)sim_between(SIM_PLAN, 5, 40);
    plan->ignores_one_in = sim_one_in(SIM_PLAN, 2) ? 0 : (int)sim_between(SIM_PLAN, 1, 4);
    plan->delay_ns =
        sim_one_in(SIM_PLAN, 3) ? sim_between(SIM_PLAN, MS, 40 * MS) : sim_between(SIM_PLAN, 50000, MS);
    plan->loses_one_in = sim_one_in(SIM_PLAN, 2) ? 0 : (int)sim_between(SIM_PLAN, 8, 200);
    plan->spikes_one_in = sim_one_in(SIM_PLAN, 2) ? 0 : (int)sim_between(SIM_PLAN, 20, 500);
    plan->last_fault = 30 * SECOND;
    plan->pulses = sim_one_in(SIM_PULSES, 2);
    make_arbiter(plan, seed);
    for (int i = 0; i < plan->n_hosts; i++) {
        struct host *host = &sim_hosts[i];

        memset(host, 0, sizeof *host);
        host->number = i;
        host->offset_ns = sim_between(SIM_PLAN, 1, 1000) * SECOND;
        host->rate = 0.99 + (double)(sim_draw(SIM_PLAN) % 1000) / 1000 * 0.02;
    }
    if (!plan->gentle && !plan->takes_over && sim_one_in(SIM_PLAN, 4))
        plan->sleeps_one_in = (int)sim_between(SIM_PLAN, 2, 10);
}

static void start(void *what, uint64_t number)
{
    (void)number;
    sim_start(what);
}

/* Its user, or the scheduler of the cluster, starts it again. */
static void comes_back(void *what, uint64_t number)
{
    struct host *host = what;

    (void)number;
    if (host->process->alive)
        return; /* it has not ended, or was started again already */
    host->down = false;
    host->stalled_until = sim_now;
    host->suspended = false;
    sim_start(host);
}

static void heal(void *what, uint64_t pair)
{
    const int a = (int)(pair / SIM_HOSTS), b = (int)(pair % SIM_HOSTS);

    (void)what;
    sim_cut[a][b] = false;
    sim_trace("the path from n%d to n%d is whole again", a, b);
}

static void cut(int a, int b, int64_t for_ns)
{
    if (a == b || sim_cut[a][b])
        return;
    sim_cut[a][b] = true;
    sim_trace("the path from n%d to n%d is cut for %.2f s", a, b, (double)for_ns / 1e9);
    sim_at(sim_now + for_ns, heal, NULL, (uint64_t)(a * SIM_HOSTS + b));
}

static bool is_clean(void)
{
    return sim_plan.loses_one_in == 0 && sim_plan.spikes_one_in == 0;
}

/*
 * What is shorter than the lease by half a second must end nothing: the dials after it come within that time.
 * They need as much again where messages are lost or late. A leader by an arbiter's leave counts from the
 * last beat, so for it the fault must be shorter than 5/6 of the lease, too.
 */
static int64_t longest_gentle(void)
{
    const int64_t lease_ns = sim_plan.lease_ms * MS, late_ns = is_clean() ? SECOND / 2 : SECOND;

    return lease_ns - (sim_plan.arbiter && lease_ns / 6 > late_ns ? lease_ns / 6 : late_ns);
}

/* How long a fault lasts. */
static int64_t draw_length(void)
{
    const int64_t lease_ns = sim_plan.lease_ms * MS;

    if (sim_plan.gentle)
        return sim_between(SIM_FAULTS, MS, longest_gentle());
    return sim_one_in(SIM_FAULTS, 2) ? sim_between(SIM_FAULTS, MS, lease_ns)
                                     : sim_between(SIM_FAULTS, MS, 4 * lease_ns);
}

/*
 * Everything stands still at once, for example because one hypervisor has all the nodes. If that is shorter
 * than the lease, it ends nothing; under an arbiter, if it is shorter than 5/6 of the lease. Hosts that stand
 * still with their clocks acknowledge nothing. The kernel of a host whose clock runs sends again more and
 * more rarely, for up to as long again. So a gentle plan has no such pause.
 */
static void pause_all(void)
{
    const int64_t lease_ns = sim_plan.lease_ms * MS;
    const int64_t for_ns = sim_plan.gentle && (!is_clean() || sim_plan.arbiter)
                               ? draw_length()
                               : sim_between(SIM_FAULTS, MS, sim_plan.gentle ? lease_ns : 4 * lease_ns);
    const int one_in = sim_plan.arbiter ? 20 : 2;
    const bool together = sim_one_in(SIM_FAULTS, one_in);

    for (int i = 0; i < sim_plan.n_hosts; i++)
        sim_stall(&sim_hosts[i], for_ns, sim_plan.gentle ? together : sim_one_in(SIM_FAULTS, one_in));
}

static void hard_fault(struct host *host)
{
    static const int signals[] = { SIGTERM, SIGTERM, SIGINT, SIGUSR1, SIGUSR2 };
    struct process *process = host->process;
    int signal;

    if (process == NULL || !process->alive)
        return;
    switch (sim_draw(SIM_FAULTS) % 4) {
    case 0:
        sim_kill(process, sim_one_in(SIM_FAULTS, 3));
        break;
    case 1:
        process->crash_at_send = process->n_sends + 1 + sim_draw(SIM_FAULTS) % 20;
        break;
    case 2:
        signal = signals[sim_draw(SIM_FAULTS) % 5];
        sim_signal(process, signal, signal == SIGINT ? 2 : 1);
        break;
    default:
        sim_kill(process, false);
        break;
    }
    if (sim_one_in(SIM_FAULTS, 2))
        sim_at(sim_now + sim_between(SIM_FAULTS, 300 * MS, 8 * SECOND), comes_back, host, 0);
}

/* The host of the coordinator: all talk is between it and another one. */
static int lead_host(void)
{
    for (int i = 0; i < sim_plan.n_hosts; i++)
        if (sim_hosts[i].process != NULL && sim_leads(sim_hosts[i].process))
            return i;
    return 0;
}

static void lose_store(struct host *host, int64_t for_ns)
{
    sim_trace("n%d does not reach the store for %.2f s", host->number, (double)for_ns / 1e9);
    host->store_cut_until = sim_now + for_ns;
}

/* By its cable. */
static void cut_off(struct host *host, int64_t for_ns)
{
    for (int i = 0; i < sim_plan.n_hosts; i++) {
        cut(host->number, i, for_ns);
        cut(i, host->number, for_ns);
    }
    lose_store(host, for_ns);
}

/* The leader is lost, and may come back. */
static void lose_lead(void *what, uint64_t number)
{
    struct host *host = &sim_hosts[lead_host()];
    const int64_t least = 2 * sim_plan.lease_ms * MS;
    const int64_t for_ns = sim_between(SIM_FAULTS, least, least < 10 * SECOND ? 10 * SECOND : least);
    const bool is_last = sim_plan.n_hosts == sim_plan.min_nodes;

    (void)what, (void)number;
    switch (sim_draw(SIM_FAULTS) % 4) {
    case 0:
        cut_off(host, for_ns);
        break;
    case 1:
        sim_stall(host, for_ns, false);
        break;
    default:
        sim_kill(host->process, sim_one_in(SIM_FAULTS, 2));
        if (is_last || sim_one_in(SIM_FAULTS, 2))
            sim_at(sim_now + sim_between(SIM_FAULTS, 300 * MS, 8 * SECOND), comes_back, host, 0);
        break;
    }
}

/* What only a run with an arbiter meets. */
static void arbiter_fault(struct host *leader, struct host *host)
{
    const int64_t for_ns = draw_length();

    switch (sim_draw(SIM_FAULTS) % 4) {
    case 0:
        lose_store(host, for_ns);
        break;
    case 1:
        for (int i = 0; i < sim_plan.n_hosts; i++)
            lose_store(&sim_hosts[i], for_ns);
        break;
    case 2: /* in contact with the others, it goes on without */
        lose_store(leader,
                   sim_plan.gentle || sim_one_in(SIM_FAULTS, 2) ? for_ns : sim_plan.last_fault - sim_now);
        break;
    default:
        cut_off(sim_plan.gentle ? host : leader, for_ns);
        break;
    }
}

/* A loop that is busy for some leases ends nothing where datagrams pass: threads ask and answer meanwhile. */
static void keep_busy(struct host *host)
{
    sim_busy(host, sim_between(SIM_PULSES, MS, 3 * sim_plan.lease_ms * MS));
}

static void fault(void *what, uint64_t number)
{
    const int lead = lead_host();
    struct host *host = sim_plan.arbiter && sim_one_in(SIM_FAULTS, 3)
                            ? &sim_hosts[lead]
                            : &sim_hosts[sim_draw(SIM_FAULTS) % (uint64_t)sim_plan.n_hosts];
    const int member = (lead + (int)sim_between(SIM_FAULTS, 1, sim_plan.n_hosts - 1)) % sim_plan.n_hosts;
    const int64_t for_ns = draw_length();

    (void)what;
    (void)number;
    if (sim_plan.pulses && sim_plan.gentle && is_clean() && sim_one_in(SIM_PULSES, 3)) {
        keep_busy(host);
        return;
    }
    if (sim_plan.arbiter && sim_one_in(SIM_FAULTS, 3)) {
        arbiter_fault(&sim_hosts[lead], host);
        return;
    }
    switch (sim_draw(SIM_FAULTS) % (sim_plan.gentle ? 5 : 8)) {
    case 0:
        cut(lead, member, for_ns);
        cut(member, lead, for_ns);
        break;
    case 1:
        if (sim_one_in(SIM_FAULTS, 2))
            cut(lead, member, for_ns);
        else /* the member hears the coordinator, and leaves it to TCP to send again: that takes longer */
            cut(member, lead, sim_plan.gentle ? for_ns / 3 : for_ns);
        break;
    case 2:
        sim_trace("the connections between n%d and n%d are reset", lead, member);
        sim_net_reset(lead, member);
        break;
    case 3:
        sim_stall(host, for_ns, sim_one_in(SIM_FAULTS, sim_plan.arbiter ? 10 : 3));
        break;
    case 4:
        pause_all();
        break;
    default:
        hard_fault(host);
        break;
    }
}

/* From now on the store is well. */
static void calm(void *what, uint64_t number)
{
    (void)what, (void)number;
    sim_plan.store_slow_one_in = sim_plan.store_fails_one_in = sim_plan.store_loses_one_in = 0;
}

void sim_schedule(void)
{
    int64_t at = 0;

    for (int i = 0; i < sim_plan.n_hosts; i++)
        sim_at(sim_between(SIM_PLAN, 0, 800 * MS), start, &sim_hosts[i], 0);
    sim_at(sim_plan.last_fault, calm, NULL, 0);
    if (sim_plan.takes_over)
        sim_at(sim_between(SIM_FAULTS, 12, 16) * SECOND, lose_lead, NULL, 0);
    if (sim_plan.quiet || sim_plan.takes_over)
        return;
    /* A gentle plan leaves time between two faults: two short ones in a row are a long one. */
    for (int64_t n = sim_between(SIM_FAULTS, 1, 10); n > 0 && at < sim_plan.last_fault; n--) {
        at += sim_plan.gentle ? sim_between(SIM_FAULTS, 6 * sim_plan.lease_ms, 9 * sim_plan.lease_ms) * MS
                              : sim_between(SIM_FAULTS, 0, 8 * SECOND);
        sim_at(at, fault, NULL, 0);
    }
}
