/*
 * Agents of one run with a store that answers at once, or not at all, or late. The clock goes in steps of
 * 5 ms. Agent i has the seat i. A lease has 3000 ms. Each suite begins with set_up().
 */
#ifndef UNIT_AGENT_ARBITER_LEAD_AGENTS_H
#define UNIT_AGENT_ARBITER_LEAD_AGENTS_H

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "agent/arbiter/lead.h"
#include "agent/os/deadlines.h"

enum { AGENTS = 3, LEASE = 3000, STEP = 5, RUN = 17 };

static struct agent {
    struct lead lead;
    bool is_dead, is_still; /* a process that stands still wakes with its state */
    bool is_busy;           /* its loop does not turn, and its thread goes on */
    bool is_cut;            /* the store does not answer it: calls fail at once */
    bool answers_are_lost;  /* calls take effect, and fail */
    bool is_slow;           /* calls stay under way; finish() ends them */
    enum lead_call call;
    struct leader_record record;
    char news[64]; /* a letter each: Began, Deposed, Follow, Ended */
    int64_t began_ms, deposed_ms;
    int n_calls;
} agents[AGENTS];
static struct leader_record stored, claims[16];
static int n_reads;
static bool has_stored;
static int64_t now;

/* A new process: it has an identity of its own. */
static inline void make(int i)
{
    static unsigned char n_made;
    struct leader_record self = { .run = RUN, .lease_ms = LEASE };

    self.identity[0] = 'a';
    self.identity[1] = (unsigned char)i;
    self.identity[2] = n_made++;
    agents[i] = (struct agent){ .is_dead = false };
    lead_init(&agents[i].lead, &self, now);
}

static inline void set_up(void)
{
    now = 1000000;
    has_stored = false;
    memset(claims, 0, sizeof claims);
    for (int i = 0; i < AGENTS; i++)
        make(i);
}

/* The effect of a call, and its answer. */
static inline enum arbiter_answer perform(enum lead_call call, struct leader_record *record)
{
    if (call == LEAD_CLAIM) {
        const bool is_taken = claims[record->term].term > 0;

        if (!is_taken)
            claims[record->term] = *record;
        *record = has_stored && stored.term >= record->term ? stored : claims[record->term];
        return is_taken ? ARBITER_TAKEN : ARBITER_DONE;
    }
    if (call == LEAD_RENEW && !(has_stored && stored.term > record->term)) {
        stored = *record;
        has_stored = true;
        return ARBITER_DONE;
    }
    *record = stored;
    n_reads++;
    return call == LEAD_RENEW ? ARBITER_DEPOSED : has_stored ? ARBITER_DONE : ARBITER_NONE;
}

static inline void hear_news(struct agent *agent)
{
    const char letters[] = {
        [LEAD_BEGAN] = 'B', [LEAD_DEPOSED] = 'D', [LEAD_FOLLOW] = 'F', [LEAD_ENDED] = 'E'
    };
    enum lead_news news;

    while (!agent->is_busy && (news = lead_news(&agent->lead)) != LEAD_NO_NEWS) {
        const size_t n = strlen(agent->news);

        agent->news[n] = letters[news];
        if (news == LEAD_BEGAN)
            agent->began_ms = now;
        if (news == LEAD_DEPOSED)
            agent->deposed_ms = now;
    }
}

static inline void answer(struct agent *agent, enum arbiter_answer answer)
{
    agent->call = LEAD_NO_CALL;
    lead_answered(&agent->lead, answer, &agent->record, now);
    hear_news(agent);
}

static inline void finish(struct agent *agent)
{
    cr_assert(agent->call != LEAD_NO_CALL);
    answer(agent, perform(agent->call, &agent->record));
}

static inline void step(struct agent *agent)
{
    if (agent->is_dead || agent->is_still)
        return;
    if (!agent->is_busy)
        lead_turned(&agent->lead, now);
    lead_look(&agent->lead, now);
    hear_news(agent);
    if (agent->call != LEAD_NO_CALL)
        return;
    agent->call = lead_next(&agent->lead, &agent->record, now);
    agent->n_calls += agent->call != LEAD_NO_CALL;
    if (agent->call == LEAD_NO_CALL || agent->is_slow)
        return;
    if (agent->is_cut) {
        answer(agent, ARBITER_FAILED);
        return;
    }
    if (agent->answers_are_lost) {
        (void)perform(agent->call, &agent->record);
        answer(agent, ARBITER_FAILED);
        return;
    }
    finish(agent);
}

static inline int n_that_hold(void)
{
    int n = 0;

    for (int i = 0; i < AGENTS; i++)
        n += lead_holds_until_ms(&agents[i].lead) > now;
    return n;
}

static inline void pass(int64_t ms)
{
    for (const int64_t end = now + ms; now < end;) {
        now += STEP;
        for (int i = 0; i < AGENTS; i++)
            step(&agents[i]);
        cr_assert(le(int, n_that_hold(), 1));
    }
}

/* It was let in by the leader whose record it has seen last, unless it has heard nothing. */
static inline void stand(int i, int64_t heard_ms)
{
    struct lead *lead = &agents[i].lead;

    lead_stand(lead, i, "10.0.0.9", 1000 + i, heard_ms, heard_ms > 0 ? lead->known.term : 0, now);
}

/* Agent 0 leads, the others have seen it, and it dies. */
static inline void lose_the_first(void)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(2 * LEASE);
    agents[0].is_dead = true;
}

#define saw(i, letters) cr_assert(eq(str, agents[i].news, letters))

#endif
