/* The plan of a seed, and what must hold after each event. */
#include <string.h>

#include "agent/os/deadlines.h"
#include "tests/sim/arbiter/model.h"

struct plan plan;
struct life *owners[TERMS];

static uint64_t newest_term; /* of all that began */
static int64_t died_ns;      /* gentle: when the leader died; 0: not yet */
static bool resigned;

/* What must hold */

/* The time until which ranks under that leader may run. The fence has a tenth more, for clocks. */
static int64_t ranks_until(const struct life *life)
{
    return life->led_until_ns + (LEASE_RANKS_MS(plan.lease_ms) + LEASE_KILL_MS) * MS;
}

static void check_beginning(const struct life *life)
{
    const struct lead *lead = &life->lead;
    const int64_t fence_ns = time_of(life, lead->fence_until_ms);

    sim_trace("leads with term %llu, fence for %.3f s", (unsigned long long)lead->self.term,
              lead->fence_until_ms == 0 ? 0.0 : (double)(fence_ns - sim_now) / 1e9);
    if (lead->self.term >= TERMS)
        sim_violated("a history has few terms", "%llu", (unsigned long long)lead->self.term);
    if (lead->self.term <= newest_term)
        sim_violated("terms grow", "%llu after %llu", (unsigned long long)lead->self.term,
                     (unsigned long long)newest_term);
    if (claim_owner(lead->self.term) != life->number)
        sim_violated("who leads has the term", "%llu", (unsigned long long)lead->self.term);
    newest_term = lead->self.term;
    for (int i = 0; i < n_lives; i++)
        if (&lives[i] != life && lives[i].led_until_ns > 0 && !resigned && ranks_until(&lives[i]) > fence_ns)
            sim_violated("no generation begins while ranks of an old leader run", "%.3f s too early",
                         (double)(ranks_until(&lives[i]) - fence_ns) / 1e9);
    if (plan.gentle && died_ns > 0 && plan.lease_ms >= 3000 && fence_ns - died_ns > lease_ns() * 5 / 2)
        sim_violated("a lost leader is replaced within 2.5 leases", "%.3f s",
                     (double)(fence_ns - died_ns) / 1e9);
    owners[lead->self.term] = (struct life *)life;
}

/* Its leader writes the record, but its loop was busy: it has not learned that it leads, or led. */
static bool is_led_unknowingly(uint64_t term)
{
    const int owner = claim_owner(term);

    return owner >= 0 && lives[owner].lead.self.term >= term;
}

void check_news(struct life *life, enum lead_news news)
{
    switch (news) {
    case LEAD_BEGAN:
        check_beginning(life);
        break;
    case LEAD_DEPOSED:
        sim_trace("is deposed");
        if (plan.gentle)
            sim_violated("a leader that is well keeps the lead", "life %d", life->number);
        break;
    case LEAD_FOLLOW:
        sim_trace("follows term %llu", (unsigned long long)life->lead.followed.term);
        if (owners[life->lead.followed.term] == NULL && !is_led_unknowingly(life->lead.followed.term))
            sim_violated("who is followed has led", "term %llu",
                         (unsigned long long)life->lead.followed.term);
        break;
    case LEAD_ENDED:
        sim_trace("learns the end");
        if (!resigned && !life->leaves)
            sim_violated("an end that is told was said", "life %d", life->number);
        break;
    case LEAD_NO_NEWS:
        break;
    }
}

void check(void)
{
    const struct life *holder = NULL;

    for (int i = 0; i < n_lives; i++) {
        struct life *life = &lives[i];

        if (leads_now(life)) {
            if (holder != NULL)
                sim_violated("one agent holds", "life %d (term %llu) and life %d (term %llu)", holder->number,
                             (unsigned long long)holder->lead.self.term, i,
                             (unsigned long long)life->lead.self.term);
            holder = life;
            if (clock_ms(life) - life->lead.turned_ms > (LEAD_CONTACT + 1) * plan.lease_ms + LEAD_READS)
                sim_violated("a loop that does not turn leads no more", "life %d", i);
            /* no rank runs under a leader that does not know of its lead yet, or leaves at once */
            if (!life->lead.began && !life->leaves)
                life->led_until_ns = time_of(life, lead_holds_until_ms(&life->lead));
        } else if (life->led_until_ns > sim_now) {
            life->led_until_ns = sim_now;
        }
        /* a claim whose owner has died costs 1.1 leases more, each; and who was not let in waits */
        if (plan.calm && life->alive && life->stands_ns >= 0 && !resigned &&
            sim_now - (life->stands_ns > plan.calm_from ? life->stands_ns : plan.calm_from) >
                lease_ns() * (19 + 12 * n_lost_claims()) / 10 + lead_patience_ms(&life->lead) * MS)
            sim_violated("who stands and reaches the store leads or follows within 3 leases", "life %d", i);
    }
}

static bool some_may_lead(void)
{
    for (int i = 0; i < n_lives; i++)
        if (lives[i].alive && (lives[i].stands_ns >= 0 || lives[i].lead.first))
            return true;
    return false;
}

static void check_end(void)
{
    const struct life *holder = NULL;

    for (int i = 0; i < n_lives; i++)
        if (leads_now(&lives[i]))
            holder = &lives[i];
    if (!resigned && holder == NULL && !some_may_lead())
        return; /* who came back after the leader was lost waits for the host of the endpoint */
    for (int i = 0; i < plan.n_hosts; i++) {
        const struct life *life = hosts[i].life;

        if (!life->alive || life == holder)
            continue;
        if (resigned ? !life->over && life->lead.told_term > 0 : holder == NULL)
            sim_violated(resigned ? "all learn the end" : "some agent leads in the end", "life %d", i);
        if (!resigned && life->follows != holder->lead.self.term)
            sim_violated("all follow in the end", "life %d: %llu instead of %llu", i,
                         (unsigned long long)life->follows, (unsigned long long)holder->lead.self.term);
    }
}

/* What happens */

static int draw_host(void)
{
    return (int)sim_between(SIM_FAULTS, 0, plan.n_hosts - 1);
}

static int64_t draw_length(void)
{
    const int64_t most = sim_one_in(SIM_FAULTS, 2) ? lease_ns() : 4 * lease_ns();
    const int64_t left = plan.last_fault - sim_now;

    return sim_between(SIM_FAULTS, MS, most < left ? most : left); /* MS, if none is left */
}

static struct life *leader(void)
{
    for (int i = 0; i < n_lives; i++)
        if (leads_now(&lives[i]))
            return &lives[i];
    return NULL;
}

static void on_return(void *what, uint64_t host)
{
    (void)what;
    if (!hosts[host].life->alive && n_lives < LIVES)
        agent_start((int)host);
}

static void on_start(void *what, uint64_t host)
{
    (void)what;
    agent_start((int)host);
}

static void die(struct life *life)
{
    agent_die(life);
    if (sim_one_in(SIM_FAULTS, 2))
        sim_at(sim_now + draw_length(), on_return, NULL, (uint64_t)life->host);
}

static void on_heal(void *what, uint64_t pair)
{
    (void)what;
    cut[pair / HOSTS][pair % HOSTS] = false;
}

static void cut_path(int from, int to, int64_t for_ns)
{
    if (from == to || cut[from][to])
        return;
    cut[from][to] = true;
    sim_trace("the path from n%d to n%d is cut for %.2f s", from, to, (double)for_ns / 1e9);
    sim_at(sim_now + for_ns, on_heal, NULL, (uint64_t)(from * HOSTS + to));
}

static void cut_off(int host, int64_t for_ns)
{
    for (int i = 0; i < plan.n_hosts; i++) {
        cut_path(host, i, for_ns);
        cut_path(i, host, for_ns);
    }
}

static void lose_store(int host, int64_t for_ns)
{
    sim_trace("n%d does not reach the store for %.2f s", host, (double)for_ns / 1e9);
    hosts[host].store_cut_until = sim_now + for_ns;
}

static void stand_still(int host, int64_t for_ns)
{
    sim_trace("n%d stands still for %.2f s", host, (double)for_ns / 1e9);
    hosts[host].still_until = sim_now + for_ns;
}

static void be_busy(int host, int64_t for_ns)
{
    sim_trace("the loop of n%d stands still for %.2f s", host, (double)for_ns / 1e9);
    hosts[host].busy_until = sim_now + for_ns;
}

/* Whose loop is busy for some leases is well: it keeps the lead. */
static void on_gentle_work(void *what, uint64_t number)
{
    (void)what, (void)number;
    speaker = NULL;
    be_busy(0, sim_between(SIM_BUSY, lease_ns(), 5 * lease_ns()));
}

/* Half of these hit the leader. */
static void on_work(void *what, uint64_t number)
{
    const struct life *at = sim_one_in(SIM_BUSY, 2) ? leader() : NULL;
    const int host = at != NULL ? at->host : (int)sim_between(SIM_BUSY, 0, plan.n_hosts - 1);

    (void)what, (void)number;
    speaker = NULL;
    be_busy(host, sim_between(SIM_BUSY, MS, 12 * lease_ns()));
}

static void on_quarrel(void *what, uint64_t host)
{
    const int64_t for_ns = draw_length();
    const int other = draw_host();

    (void)what;
    speaker = NULL;
    cut_path((int)host, other, for_ns);
    if (sim_one_in(SIM_FAULTS, 2))
        cut_path(other, (int)host, for_ns);
}

/* The leader goes on without the store, and somebody who has never heard of it starts. */
static void on_stranger(void *what, uint64_t number)
{
    const struct life *life = leader();

    (void)what, (void)number;
    speaker = NULL;
    if (life == NULL)
        return;
    lose_store(life->host, plan.last_fault - sim_now);
    sim_at(sim_now + sim_between(SIM_FAULTS, 0, 2 * lease_ns()), on_start, NULL, (uint64_t)plan.n_hosts);
}

static void on_fault(void *what, uint64_t number)
{
    /* half of the faults hit the leader */
    struct life *at = sim_one_in(SIM_FAULTS, 2) ? leader() : NULL;
    const int host = at != NULL ? at->host : draw_host();
    const int64_t for_ns = draw_length();

    (void)what;
    speaker = NULL;
    switch (number) {
    case 0:
    case 1:
        if (hosts[host].life != NULL && hosts[host].life->alive)
            die(hosts[host].life);
        break;
    case 2:
    case 3:
        stand_still(host, for_ns);
        break;
    case 4:
        for (int i = 0; i < plan.n_hosts; i++)
            stand_still(i, for_ns);
        break;
    case 5:
    case 6:
        lose_store(host, for_ns);
        break;
    case 7:
        for (int i = 0; i < plan.n_hosts; i++)
            lose_store(i, for_ns);
        break;
    case 8:
        cut_path(host, draw_host(), for_ns);
        break;
    case 9:
        cut_off(host, for_ns);
        break;
    case 10:
    case 11: /* the leader goes on without the store, and then a member does not reach it */
        lose_store(host, plan.last_fault - sim_now);
        sim_at(sim_now + sim_between(SIM_FAULTS, lease_ns(), 2 * lease_ns()), on_quarrel, NULL,
               (uint64_t)host);
        break;
    default: /* cut off from all, as by a cable */
        cut_off(host, for_ns);
        lose_store(host, for_ns);
    }
    check();
}

static void on_gentle_death(void *what, uint64_t number)
{
    struct life *life = leader();

    (void)what, (void)number;
    if (life == NULL)
        sim_violated("the first leads soon", "nobody does");
    died_ns = sim_now;
    agent_die(life);
}

/* From now on the store and all paths are whole, but what was under way may still come. */
static void on_calm(void *what, uint64_t number)
{
    (void)what, (void)number;
    speaker = NULL;
    sim_trace("calm");
    plan.calm = true;
    plan.fails_one_in = plan.slow_one_in = plan.loses_one_in = plan.late_one_in = plan.drops_one_in = 0;
}

static void on_resign(void *what, uint64_t number)
{
    struct life *life = leader();

    (void)what, (void)number;
    if (life == NULL)
        return;
    speaker = life;
    sim_trace("resigns");
    resigned = true;
    lead_resign(&life->lead, 3);
    agent_turn(life);
}

static int draw_rate(int most)
{
    return sim_one_in(SIM_PLAN, 2) ? 0 : (int)sim_between(SIM_PLAN, 2, most);
}

static void make_plan(void)
{
    const int64_t leases_ms[] = { 3000, 3000, 1500, 6000 };

    plan = (struct plan){ .n_hosts = (int)sim_between(SIM_PLAN, 2, HOSTS),
                          .lease_ms = leases_ms[sim_draw(SIM_PLAN) % 4],
                          .call_ns = sim_between(SIM_PLAN, MS / 10, 40 * MS),
                          .gentle = sim_one_in(SIM_PLAN, 8),
                          .resigns = sim_one_in(SIM_PLAN, 3) };
    plan.last_fault = 16 * lease_ns();
    plan.calm_from = plan.last_fault + 12 * lease_ns();
    if (!plan.gentle) {
        store_kind.one_key = sim_one_in(SIM_PLAN, 3);
        plan.stranger = plan.n_hosts < HOSTS && sim_one_in(SIM_PLAN, 4);
        if (sim_one_in(SIM_PLAN, 2))
            plan.old = (struct leader_record){ .run = sim_one_in(SIM_PLAN, 3) ? RUN + 1 : RUN,
                                               .term = 4,
                                               .sequence = 7,
                                               .identity = "an earlier start",
                                               .lease_ms = plan.lease_ms,
                                               .state = sim_one_in(SIM_PLAN, 2) ? LEADER_ENDED : LEADER_LEADS,
                                               .goes_on = sim_one_in(SIM_PLAN, 2) };
        store_kind.hides_claims = plan.old.term == 0 && sim_one_in(SIM_PLAN, 3);
        plan.some_rest = sim_one_in(SIM_PLAN, 3);
        /* a tenth of a lease is what lead.h allows for caches and for clocks of different rates */
        store_kind.longest_lag_ns = lease_ns() * 8 / 100;
        store_kind.lags_one_in = store_kind.one_key ? 0 : (int)sim_between(SIM_PLAN, 0, 4);
        plan.fails_one_in = draw_rate(40);
        plan.slow_one_in = draw_rate(20);
        plan.loses_one_in = draw_rate(40);
        plan.late_one_in = draw_rate(40);
        plan.drops_one_in = draw_rate(100);
    }
    for (int i = 0; i < HOSTS; i++) {
        hosts[i] = (struct host){ .offset_ms = sim_between(SIM_PLAN, 1, 1000) * 1000 };
        hosts[i].rate = 0.997 + (double)(sim_draw(SIM_PLAN) % 1000) / 1000 * 0.006;
    }
}

static bool never(void)
{
    return false;
}

void sim_history(uint64_t seed)
{
    sim_seed(seed);
    make_plan();
    sim_trace("%d hosts, lease %lld ms%s%s", plan.n_hosts, (long long)plan.lease_ms,
              plan.gentle ? ", gentle" : "", store_kind.one_key ? ", one key" : "");
    if (plan.old.term > 0)
        store_fill(&plan.old);
    for (int i = 0; i < plan.n_hosts; i++)
        sim_at(plan.gentle ? 0 : sim_between(SIM_PLAN, 0, lease_ns()), on_start, NULL, (uint64_t)i);
    if (plan.gentle) {
        sim_at(sim_between(SIM_BUSY, lease_ns() / 2, 3 * lease_ns()), on_gentle_work, NULL, 0);
        sim_at(sim_between(SIM_PLAN, 3 * lease_ns(), 8 * lease_ns()), on_gentle_death, NULL, 0);
    }
    if (plan.stranger)
        sim_at(sim_between(SIM_FAULTS, 2 * lease_ns(), 3 * lease_ns()), on_stranger, NULL, 0);
    for (int n = plan.gentle ? 0 : (int)sim_between(SIM_FAULTS, !plan.stranger, plan.stranger ? 2 : 12);
         n > 0; n--)
        sim_at(sim_between(SIM_FAULTS, lease_ns() / 2, plan.last_fault - 1), on_fault, NULL,
               sim_draw(SIM_FAULTS) % 13);
    for (int n = plan.gentle ? 0 : (int)sim_between(SIM_BUSY, -3, 3); n > 0; n--)
        sim_at(sim_between(SIM_BUSY, lease_ns() / 2, plan.last_fault - 1), on_work, NULL, 0);
    sim_at(plan.last_fault, on_calm, NULL, 0);
    if (plan.resigns)
        sim_at(plan.calm_from + 8 * lease_ns(), on_resign, NULL, 0);
    sim_run(plan.calm_from + 14 * lease_ns(), never);
    speaker = NULL;
    check_end();
}
