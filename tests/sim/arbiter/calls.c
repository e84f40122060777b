#include <stdlib.h>
#include <string.h>

#include "tests/sim/arbiter/model.h"

/* Calls of the store that are under way. */

struct call {
    struct life *life;
    uint64_t number; /* life->n_calls */
    enum lead_call what;
    struct leader_record record, brought;
    enum arbiter_answer answer; /* 0: it has had no effect yet */
    bool is_here;               /* the agent's host makes it: it waits while the agent stands still */
    bool looked;                /* of a write: it has seen that no higher term is there */
    bool lost;                  /* its answer is */
    bool is_late;               /* it has failed, and takes effect all the same */
};

static void on_answer(void *what, uint64_t number)
{
    struct call *call = what;
    struct life *life = call->life;

    (void)number;
    if (!life->alive || life->n_calls != call->number)
        return;
    if (is_still(life)) {
        sim_at(hosts[life->host].still_until + 1, on_answer, call, 0);
        return;
    }
    life->n_calls++;
    speaker = life;
    lead_answered(&life->lead, call->lost || call->answer == 0 ? ARBITER_FAILED : call->answer,
                  &call->brought, clock_ms(life));
    agent_turn(life);
}

static int64_t draw_delay(void)
{
    if (!sim_one_in(SIM_NET, plan.slow_one_in))
        return sim_between(SIM_NET, 1, plan.call_ns);
    return sim_between(SIM_NET, 0, sim_one_in(SIM_NET, 3) ? 3 * lease_ns() : lease_ns());
}

static void answer_later(struct call *call)
{
    sim_at(sim_now + draw_delay(), on_answer, call, 0);
}

static void on_effect(void *what, uint64_t number)
{
    struct call *call = what;
    struct life *life = call->life;

    (void)number;
    if (call->is_here && !life->alive)
        return;
    if (call->is_here && is_still(life)) {
        sim_at(hosts[life->host].still_until + 1, on_effect, call, 0);
        return;
    }
    speaker = life;
    if (call->what == LEAD_READ) {
        call->brought = store_read();
        call->answer = call->brought.term > 0 ? ARBITER_DONE : ARBITER_NONE;
    } else if (call->what == LEAD_CLAIM) {
        call->answer = store_claim(&call->record, &call->brought);
    } else if (!call->looked) {
        call->brought = store_read();
        call->looked = true;
        if (call->brought.term > call->record.term)
            call->answer = ARBITER_DEPOSED;
        else
            sim_at(sim_now + (call->is_late ? 1 : draw_delay()), on_effect, call, 0);
    } else {
        call->answer = store_write(&call->record, &call->brought);
    }
    if (call->answer == 0)
        return;
    if (call->what != LEAD_READ)
        sim_trace("call %llu: %s term %llu, sequence %llu: %d%s", (unsigned long long)call->number,
                  call->what == LEAD_CLAIM ? "claim" : "renew", (unsigned long long)call->record.term,
                  (unsigned long long)call->record.sequence, call->answer, call->lost ? ", lost" : "");
    answer_later(call);
}

/* Calls of an agent that is cut off take effect after the cut, or never; each answers, sooner or later. */
void call_begin(struct life *life, enum lead_call what, const struct leader_record *record)
{
    const int64_t cut_ns = hosts[life->host].store_cut_until - sim_now;
    struct call *call = calloc(1, sizeof *call);
    int64_t delay = draw_delay();

    *call = (struct call){ .life = life, .number = life->n_calls, .what = what, .record = *record };
    call->is_here = sim_one_in(SIM_NET, 2);
    call->lost = sim_one_in(SIM_NET, plan.loses_one_in);
    if (cut_ns > 0)
        delay += cut_ns;
    if (sim_one_in(SIM_NET, cut_ns > 0 ? 2 : plan.fails_one_in)) {
        sim_at(sim_now + sim_between(SIM_NET, 1, lease_ns()), on_answer, call, 0); /* no effect */
        return;
    }
    if (sim_one_in(SIM_NET, cut_ns > 0 ? 2 : plan.late_one_in)) { /* it fails, and takes effect later */
        sim_at(sim_now + delay, on_answer, call, 0);
        call->is_late = true;
        delay += what == LEAD_RENEW ? sim_between(SIM_NET, 0, lease_ns() * 15 / 100)
                                    : sim_between(SIM_NET, 0, 2 * lease_ns());
    }
    sim_at(sim_now + delay, on_effect, call, 0);
}

int claim_owner(uint64_t term)
{
    for (int i = 0; i < n_lives; i++)
        if (memcmp(store_claim_of(term)->identity, lives[i].lead.self.identity, SESSION_IDENTITY_BYTES) == 0)
            return i;
    return -1;
}

int n_lost_claims(void)
{
    int n = 0;

    for (int i = 0; i < TERMS; i++)
        n += store_claim_of((uint64_t)i)->term > 0 && owners[i] == NULL;
    return n;
}
