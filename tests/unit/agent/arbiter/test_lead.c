/*
 * Agents of one run with a store that answers at once, or not at all, or late. The clock goes in steps of 5 ms.
 * Agent i has the seat i. A lease has 3000 ms.
 */
#include "agent/arbiter/lead.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "agent/os/deadlines.h"

enum { AGENTS = 3, LEASE = 3000, STEP = 5, RUN = 17 };

static struct agent {
    struct lead lead;
    bool is_dead, is_still; /* a process that stands still wakes with its state */
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
static void make(int i)
{
    static int n_made;
    struct leader_record self = { .run = RUN, .lease_ms = LEASE };

    snprintf((char *)self.identity, sizeof self.identity, "agent %d, %d", i, n_made++);
    agents[i] = (struct agent){ .is_dead = false };
    lead_init(&agents[i].lead, &self, now);
}

static void set_up(void)
{
    now = 1000000;
    has_stored = false;
    memset(claims, 0, sizeof claims);
    for (int i = 0; i < AGENTS; i++)
        make(i);
}

TestSuite(lead, .init = set_up);

/* The effect of a call, and its answer. */
static enum arbiter_answer perform(enum lead_call call, struct leader_record *record)
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

static void hear_news(struct agent *agent)
{
    const char letters[] = {
        [LEAD_BEGAN] = 'B', [LEAD_DEPOSED] = 'D', [LEAD_FOLLOW] = 'F', [LEAD_ENDED] = 'E'
    };
    enum lead_news news;

    while ((news = lead_news(&agent->lead)) != LEAD_NO_NEWS) {
        const size_t n = strlen(agent->news);

        agent->news[n] = letters[news];
        if (news == LEAD_BEGAN)
            agent->began_ms = now;
        if (news == LEAD_DEPOSED)
            agent->deposed_ms = now;
    }
}

static void answer(struct agent *agent, enum arbiter_answer answer)
{
    agent->call = LEAD_NO_CALL;
    lead_answered(&agent->lead, answer, &agent->record, now);
    hear_news(agent);
}

static void finish(struct agent *agent)
{
    cr_assert(agent->call != LEAD_NO_CALL);
    answer(agent, perform(agent->call, &agent->record));
}

static void step(struct agent *agent)
{
    if (agent->is_dead || agent->is_still)
        return;
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

static int n_that_hold(void)
{
    int n = 0;

    for (int i = 0; i < AGENTS; i++)
        n += lead_holds_until_ms(&agents[i].lead) > now;
    return n;
}

static void pass(int64_t ms)
{
    for (const int64_t end = now + ms; now < end;) {
        now += STEP;
        for (int i = 0; i < AGENTS; i++)
            step(&agents[i]);
        cr_assert(le(int, n_that_hold(), 1));
    }
}

static void stand(int i, int64_t heard_ms)
{
    lead_stand(&agents[i].lead, i, "10.0.0.9", 1000 + i, heard_ms, now);
}

/* Agent 0 leads, the others have seen it, and it dies. */
static void lose_the_first(void)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(2 * LEASE);
    agents[0].is_dead = true;
}

#define saw(i, letters) cr_assert(eq(str, agents[i].news, letters))

Test(lead, the_first_leads_at_once_without_a_record_and_others_follow)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);

    pass(LEASE);

    saw(0, "B");
    saw(1, "F");
    cr_assert(agents[0].began_ms - 1000000 <= LEASE / 10);
    cr_assert(stored.term == 1 && stored.port == 29400 && agents[0].lead.fence_until_ms == 0);
    cr_assert(agents[0].lead.before.term == 0);
}

Test(lead, a_claim_that_fails_is_tried_no_more_often_than_a_read)
{
    pass(LEASE / 5);
    agents[0].is_cut = true;
    agents[0].n_calls = 0;
    lead_first(&agents[0].lead, "10.0.0.1", 29400);

    pass(10 * LEASE);

    cr_assert(agents[0].n_calls >= 90 && agents[0].n_calls <= 101, "%d calls", agents[0].n_calls);
}

Test(lead, a_leader_writes_every_third_of_the_lease)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(LEASE);
    const uint64_t before = stored.sequence;

    pass(10 * LEASE);

    cr_assert(stored.sequence - before >= 29 && stored.sequence - before <= 30);
    saw(0, "B");
}

Test(lead, who_does_not_stand_never_claims)
{
    lose_the_first();

    pass(20 * LEASE);

    saw(1, "F");
    cr_assert(claims[2].term == 0);
}

Test(lead, the_lowest_seat_takes_over_within_two_and_a_half_leases_and_behind_a_fence)
{
    const int64_t died = now + 2 * LEASE;

    lose_the_first();
    pass(LEASE);
    stand(2, died);
    stand(1, died);
    pass(2 * LEASE);

    saw(1, "FB");
    saw(2, "FF");
    cr_assert(stored.term == 2 && stored.port == 1001);
    cr_assert(agents[1].began_ms - died <= 3 * LEASE / 2);
    cr_assert(agents[1].lead.fence_until_ms - died <= 5 * LEASE / 2);
    cr_assert(agents[1].lead.fence_until_ms - died >= LEASE_FENCE_MS(LEASE) + LEASE);
    cr_assert(agents[1].lead.before.term == 1);
}

Test(lead, nobody_claims_before_he_has_heard_nothing_for_the_lease)
{
    lose_the_first();
    pass(5 * LEASE);
    const int64_t heard = now;

    stand(1, heard);
    pass(LEASE_END_MS(LEASE) - STEP);
    saw(1, "F");
    pass(LEASE);

    saw(1, "FB");
    cr_assert(agents[1].lead.fence_until_ms >= heard + LEASE + LEASE_FENCE_MS(LEASE));
}

Test(lead, one_that_is_withdrawn_does_not_claim)
{
    lose_the_first();
    stand(1, now);

    pass(LEASE);
    lead_withdraw(&agents[1].lead);
    pass(5 * LEASE);

    saw(1, "F");
}

Test(lead, a_claim_that_is_withdrawn_under_way_comes_to_nothing)
{
    lose_the_first();
    stand(1, now);
    pass(LEASE);
    agents[1].is_slow = true;
    while (agents[1].call != LEAD_CLAIM) {
        pass(STEP);
        if (agents[1].call == LEAD_READ)
            finish(&agents[1]);
    }

    lead_withdraw(&agents[1].lead);
    finish(&agents[1]);
    agents[1].is_slow = false;
    pass(LEASE);
    saw(1, "F");
    stand(2, now - 2 * LEASE);
    pass(3 * LEASE);

    saw(2, "FB");
    cr_assert(eq(u64, stored.term, 3));
}

Test(lead, a_leader_that_is_cut_off_stops_one_lease_after_its_last_write_began)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(2 * LEASE);
    const int64_t hold = lead_holds_until_ms(&agents[0].lead);

    agents[0].is_cut = true;
    pass(2 * LEASE);

    saw(0, "BD");
    cr_assert(agents[0].deposed_ms >= hold && agents[0].deposed_ms <= hold + STEP);
    cr_assert(hold <= 1000000 + 3 * LEASE);
}

Test(lead, lost_answers_do_not_count)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(2 * LEASE);
    stand(1, now);

    agents[0].answers_are_lost = true;
    pass(3 * LEASE);

    saw(0, "BD");
    agents[0].answers_are_lost = false;
    pass(3 * LEASE);
    saw(1, "FB");
}

Test(lead, a_late_answer_revives_no_leader)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(2 * LEASE);
    agents[0].is_slow = true;
    pass(2 * LEASE);
    saw(0, "BD");

    finish(&agents[0]);
    pass(LEASE / 10);

    saw(0, "BD");
    cr_assert(lead_holds_until_ms(&agents[0].lead) == 0);
}

Test(lead, an_answer_that_waited_while_the_leader_stood_still_revives_it_no_more)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(2 * LEASE);
    agents[0].is_slow = true;
    while (agents[0].call == LEAD_NO_CALL)
        pass(STEP);
    now = lead_holds_until_ms(&agents[0].lead);

    finish(&agents[0]);

    saw(0, "BD");
}

Test(lead, a_leader_that_stood_still_is_deposed_before_anything_else_when_it_wakes)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(2 * LEASE);
    agents[0].is_still = true;
    stand(1, now);
    pass(3 * LEASE);
    saw(1, "FB");

    agents[0].is_still = false;
    pass(LEASE);

    saw(0, "BDF");
    saw(1, "FB");
}

Test(lead, one_that_was_deposed_may_lead_again_with_a_higher_term)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(2 * LEASE);
    agents[0].is_cut = true;
    pass(2 * LEASE);
    agents[0].is_cut = false;
    stand(0, 0);

    pass(3 * LEASE);

    saw(0, "BDB");
    cr_assert(stored.term == 2);
    cr_assert(agents[0].lead.fence_until_ms >= agents[0].deposed_ms + LEASE_FENCE_MS(LEASE));
}

Test(lead, a_watcher_that_stood_still_waits_again)
{
    lose_the_first();
    stand(1, now);
    pass(LEASE / 2);
    agents[1].is_still = true;
    pass(5 * LEASE);

    agents[1].is_still = false;
    pass(LEASE / 10 + STEP);
    saw(1, "F");
    pass(LEASE);

    saw(1, "FB");
}

Test(lead, a_store_that_does_not_answer_makes_nothing_stale)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(2 * LEASE);
    agents[1].is_cut = true;
    stand(1, now - 2 * LEASE);
    pass(5 * LEASE);

    agents[1].is_cut = false;
    pass(5 * LEASE);

    saw(0, "B");
    saw(1, "F");
}

Test(lead, an_old_read_that_is_late_makes_nothing_stale)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(2 * LEASE);
    agents[1].is_slow = true;
    while (agents[1].call == LEAD_NO_CALL)
        pass(STEP);
    agents[1].record = stored; /* read now, answered later */
    stand(1, now - 2 * LEASE);
    pass(2 * LEASE);

    answer(&agents[1], ARBITER_DONE);
    agents[1].is_slow = false;
    pass(5 * LEASE);

    saw(1, "F");
}

Test(lead, a_leader_in_contact_with_all_goes_on_without_the_store)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(2 * LEASE);
    agents[0].is_cut = true;
    for (int i = 0; i < 30; i++) {
        lead_in_contact_until(&agents[0].lead, now + LEASE);
        pass(LEASE / 10);
    }
    saw(0, "B");
    const int64_t until = lead_holds_until_ms(&agents[0].lead);

    stand(1, until - LEASE);
    pass(3 * LEASE);

    saw(0, "BD");
    cr_assert(agents[0].deposed_ms >= until && agents[0].deposed_ms <= until + STEP);
    saw(1, "FB");
}

Test(lead, the_fence_is_that_of_the_longest_lease_though_one_with_a_shorter_claims_between)
{
    agents[0].lead.self.lease_ms = 3 * LEASE;
    lose_the_first();
    const int64_t seen = agents[1].lead.seen_ms;

    stand(1, seen);
    while (claims[2].term == 0)
        pass(STEP);
    agents[1].is_dead = true;
    stand(2, seen);
    pass(2 * LEASE);

    saw(2, "FB");
    cr_assert(eq(u64, stored.term, 3));
    cr_assert(agents[2].lead.fence_until_ms >= seen + 3 * LEASE + LEASE_FENCE_MS(3 * LEASE));
}

Test(lead, the_end_of_a_leader_ends_no_rank_of_the_one_before_it)
{
    lose_the_first();
    make(2);
    stand(1, now);
    pass(LEASE);
    const int64_t seen = agents[2].lead.seen_ms;

    agents[2].is_cut = true;
    while (agents[1].began_ms == 0)
        pass(STEP);
    lead_resign(&agents[1].lead, 0);
    pass(STEP);
    agents[2].is_cut = false;
    lead_first(&agents[2].lead, "10.0.0.3", 29400);
    pass(LEASE / 2);

    saw(2, "B");
    cr_assert(agents[2].lead.fence_until_ms >= seen + LEASE + LEASE_FENCE_MS(LEASE));
}

/* Agent 0 leads, is cut from the store, and goes on in contact for so many leases. */
static void go_on(int leases)
{
    agents[0].is_cut = true;
    for (int i = 0; i < leases * LEAD_READS; i++) {
        lead_in_contact_until(&agents[0].lead, now + LEASE);
        pass(LEASE / LEAD_READS);
    }
}

Test(lead, an_agent_that_was_never_let_in_waits_until_no_leader_goes_on)
{
    for (int i = 0; i < 2; i++) {
        set_up();
        lead_first(&agents[0].lead, "10.0.0.1", 29400);
        pass(2 * LEASE);
        const int64_t hold = lead_holds_until_ms(&agents[0].lead), seen = agents[2].lead.seen_ms;

        make(2);
        if (i == 0)
            lead_first(&agents[2].lead, "10.0.0.3", 29400);
        else
            stand(2, 0);
        go_on(14);

        saw(0, "BD");
        cr_assert(agents[0].deposed_ms >= hold + 9 * LEASE &&
                  agents[0].deposed_ms <= hold + 9 * LEASE + STEP);
        saw(2, "B");
        cr_assert(agents[2].began_ms >= seen + 11 * LEASE);
        cr_assert(agents[2].lead.fence_until_ms >= agents[0].deposed_ms + LEASE_FENCE_MS(LEASE));
    }
}

Test(lead, a_first_that_knows_that_the_old_leader_is_gone_waits_for_its_members_alone)
{
    lose_the_first();
    make(2);
    const int64_t start = now;
    lead_old_is_gone(&agents[2].lead, now);
    lead_first(&agents[2].lead, "10.0.0.3", 29400);

    pass(9 * LEASE / 2);

    saw(2, "B");
    cr_assert(agents[2].began_ms >= start + 4 * LEASE);
    cr_assert(agents[2].lead.fence_until_ms >= start + LEASE_FENCE_MS(LEASE));
    cr_assert(agents[2].lead.fence_until_ms <= start + 3 * LEASE);
}

Test(lead, a_leader_that_took_over_does_not_go_on_without_the_store)
{
    lose_the_first();
    stand(1, now);
    pass(3 * LEASE);
    saw(1, "FB");
    agents[1].is_cut = true;
    const int64_t hold = lead_holds_until_ms(&agents[1].lead);

    lead_in_contact_until(&agents[1].lead, now + 5 * LEASE);

    cr_assert(eq(i64, lead_holds_until_ms(&agents[1].lead), hold));
}

Test(lead, who_finds_the_term_taken_waits_for_the_claimer_and_then_takes_the_next)
{
    lose_the_first();
    claims[2] = stored;
    claims[2].term = 2;
    claims[2].sequence = 0;
    strcpy((char *)claims[2].identity, "died after it");
    stand(1, now);
    pass(LEASE_END_MS(LEASE));
    const int64_t ripe = now;

    pass(LEASE);
    saw(1, "F");
    pass(LEASE / 2);

    saw(1, "FB");
    cr_assert(eq(u64, stored.term, 3));
    cr_assert(agents[1].began_ms >= ripe + LEASE_END_MS(LEASE) - LEASE / 3);
}

Test(lead, a_claim_whose_answer_was_lost_is_found_again)
{
    agents[0].answers_are_lost = true;
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(LEASE / 10);
    agents[0].answers_are_lost = false;

    pass(LEASE / 2);

    saw(0, "B");
    cr_assert(eq(u64, stored.term, 1));
}

Test(lead, a_claim_that_answers_after_a_lease_is_not_led_with)
{
    agents[0].is_slow = true;
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(STEP);
    finish(&agents[0]); /* the read */
    pass(STEP);
    cr_assert(agents[0].call == LEAD_CLAIM);
    pass(LEASE);

    finish(&agents[0]);
    agents[0].is_slow = false;
    pass(LEASE);
    saw(0, "");
    pass(LEASE);

    saw(0, "B");
    cr_assert(eq(u64, stored.term, 2));
}

Test(lead, the_first_follows_a_leader_that_is_alive)
{
    lose_the_first();
    stand(1, now);
    pass(3 * LEASE);
    make(0);
    lead_first(&agents[0].lead, "10.0.0.1", 29400);

    pass(5 * LEASE);

    saw(0, "F");
    cr_assert(stored.term == 2);
}

Test(lead, the_first_that_followed_a_leader_before_is_told_again)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(2 * LEASE);
    saw(1, "F");

    lead_first(&agents[1].lead, "10.0.0.2", 29400);
    pass(LEASE);
    saw(1, "FF");
    agents[0].is_dead = true;
    pass(20 * LEASE);

    saw(1, "FF"); /* it does not stand */
    cr_assert(claims[2].term == 0);
}

Test(lead, the_first_takes_over_a_stale_record_behind_a_fence)
{
    lose_the_first();
    make(0);
    const int64_t start = now;
    lead_first(&agents[0].lead, "10.0.0.1", 29400);

    pass(12 * LEASE);

    saw(0, "B");
    cr_assert(stored.term == 2 && agents[0].began_ms >= start + LEASE_END_MS(LEASE));
    cr_assert(agents[0].lead.fence_until_ms >= start + LEASE + LEASE_FENCE_MS(LEASE));
}

/* Its members stand when they have lost it and their ranks have ended: the last one claims 2.8 leases later. */
Test(lead, a_leader_that_is_started_again_at_once_follows_the_member_that_takes_over)
{
    for (int i = 0; i < 2; i++) {
        set_up();
        lose_the_first();
        const int64_t lost = now;

        make(0);
        stored.goes_on = i == 1;
        if (stored.goes_on)
            lead_old_is_gone(&agents[0].lead, now);
        lead_first(&agents[0].lead, "10.0.0.1", 29400);
        pass(LEASE + LEASE_RANKS_MS(LEASE));
        lead_stand(&agents[1].lead, -1, "10.0.0.2", 2, lost, now);
        pass(4 * LEASE);

        saw(0, "F");
        saw(1, "FB");
        cr_assert(agents[1].began_ms <= lost + 28 * LEASE / 10);
        cr_assert(stored.term == 2 && stored.port == 2);
    }
}

Test(lead, the_record_of_another_run_is_waited_for_and_never_followed)
{
    lose_the_first();
    stored.run = RUN + 1;
    make(0);
    make(1);
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    stand(1, 0);
    for (int i = 0; i < 10; i++) {
        pass(LEASE / 2);
        stored.sequence++;
    }
    saw(0, "");
    saw(1, "");

    pass(12 * LEASE);

    saw(0, "B");
    cr_assert(stored.term == 2 && stored.run == RUN);
}

Test(lead, the_end_is_written_and_everybody_learns_it)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(LEASE);

    lead_resign(&agents[0].lead, 3);
    pass(LEASE / 10 + STEP);

    saw(0, "BE");
    saw(1, "FE");
    cr_assert(stored.state == LEADER_ENDED && stored.exit_status == 3);
    cr_assert(lead_holds_until_ms(&agents[0].lead) == 0);
    const uint64_t sequence = stored.sequence;
    stand(1, 0);
    pass(5 * LEASE);
    cr_assert(stored.sequence == sequence && stored.term == 1);
}

Test(lead, the_end_is_written_again_until_the_store_answers_but_not_beyond_the_hold)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(LEASE);
    agents[0].is_cut = true;
    lead_resign(&agents[0].lead, 0);
    pass(LEASE / 2);
    agents[0].is_cut = false;
    pass(LEASE / 10 + STEP);
    saw(0, "BE");

    set_up();
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(LEASE);
    agents[0].is_cut = true;
    lead_resign(&agents[0].lead, 0);
    pass(2 * LEASE);

    saw(0, "BD");
}

Test(lead, who_ends_the_run_holds_no_more_before_another_can_read_that)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(LEASE);
    agents[0].is_slow = true;
    lead_resign(&agents[0].lead, 0);
    while (agents[0].call == LEAD_NO_CALL)
        pass(STEP);
    perform(agents[0].call, &agents[0].record);
    make(1);

    lead_first(&agents[1].lead, "10.0.0.2", 29400);
    pass(LEASE / 2);

    saw(1, "B");
    agents[0].is_slow = false;
    answer(&agents[0], ARBITER_DONE);
    saw(0, "BE");
}

Test(lead, one_that_stands_learns_the_end_that_it_missed)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(LEASE);
    make(1);
    pass(LEASE / 10); /* one read: it does not say whether the leader is alive */
    agents[1].is_cut = true;
    lead_resign(&agents[0].lead, 0);
    pass(LEASE);
    agents[1].is_cut = false;
    pass(LEASE);
    saw(1, "");

    stand(1, now - LEASE);
    pass(LEASE);

    saw(1, "E");
}

Test(lead, the_end_of_an_earlier_start_is_not_the_end_of_this_one)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(LEASE);
    lead_resign(&agents[0].lead, 7);
    pass(LEASE);
    for (int i = 0; i < AGENTS; i++)
        make(i);
    pass(LEASE);
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    while (claims[2].term == 0)
        pass(STEP);
    agents[0].is_dead = true; /* before it wrote a record */
    cr_assert(eq(u64, stored.term, 1));

    stand(1, now);
    pass(LEASE);
    saw(1, "");
    stored = claims[2]; /* a read brings the claim */
    pass(3 * LEASE);

    saw(1, "B");
    cr_assert(eq(u64, stored.term, 3));
}

Test(lead, an_ended_run_begins_again_at_once)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(LEASE);
    lead_resign(&agents[0].lead, 0);
    pass(LEASE);
    for (int i = 0; i < AGENTS; i++)
        make(i);
    const int64_t start = now;

    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(LEASE);

    saw(0, "B");
    saw(1, "F");
    cr_assert(agents[0].began_ms - start <= LEASE / 10 && agents[0].lead.fence_until_ms == 0);
    cr_assert(stored.term == 2);
}

Test(lead, there_is_one_call_at_a_time)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(LEASE);
    agents[0].is_slow = true;
    while (agents[0].call == LEAD_NO_CALL)
        pass(STEP);

    lead_resign(&agents[0].lead, 0);

    cr_assert(lead_next(&agents[0].lead, &agents[1].record, now) == LEAD_NO_CALL);
    finish(&agents[0]);
    agents[0].is_slow = false;
    pass(STEP);
    saw(0, "BE");
}

Test(lead, what_is_published_is_stored_at_once_and_outlives_the_leader)
{
    const struct leader_progress progress = { .generation = 4, .n_restarts = 2, .step = 900 };

    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(LEASE);
    lead_publish(&agents[0].lead, &progress);
    lead_move(&agents[0].lead, "10.0.0.8", 5);
    pass(STEP);
    cr_assert(stored.progress.generation == 4 && stored.progress.step == 900 && stored.port == 5);
    pass(LEASE);
    agents[0].is_dead = true;
    stand(1, now);

    pass(2 * LEASE);

    cr_assert(stored.term == 2 && stored.progress.generation == 4 && stored.progress.n_restarts == 2);
    cr_assert(agents[1].lead.before.progress.step == 900);
}

Test(lead, an_unreadable_claim_takes_its_term_and_nothing_else)
{
    lose_the_first();
    claims[2].term = 2;
    stand(1, now);

    pass(3 * LEASE);

    saw(1, "FB");
    cr_assert(stored.term == 3 && agents[1].lead.before.term == 2);
    cr_assert(agents[1].lead.before.lease_ms == LEASE && agents[1].lead.before.run == RUN);
}

Test(lead, the_first_waits_for_an_unreadable_claim_after_the_end_of_a_run)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(LEASE);
    lead_resign(&agents[0].lead, 0);
    pass(LEASE);
    claims[2].term = 2;
    make(0);
    const int64_t start = now;
    lead_first(&agents[0].lead, "10.0.0.1", 29400);

    pass(5 * LEASE);

    saw(0, "B");
    cr_assert(stored.term == 3 && agents[0].began_ms >= start + 4 * LEASE);
}

Test(lead, a_member_that_sits_down_during_a_read_reads_again_soon)
{
    agents[1].is_dead = agents[2].is_slow = true;
    pass(STEP);
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(2 * STEP);
    lead_sit(&agents[2].lead, -1);
    answer(&agents[2], ARBITER_NONE); /* the store was read before the leader's claim */
    agents[2].is_slow = false;

    pass(LEASE / 5);

    saw(2, "F");
    n_reads = 0;
    pass(10 * LEASE);
    cr_assert(n_reads >= 9 && n_reads <= 11, "%d reads", n_reads);
}

Test(lead, a_member_of_a_high_seat_reads_once_in_a_lease_until_it_stands)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(LEASE);
    agents[1].is_dead = true;
    lead_sit(&agents[2].lead, LEAD_LAST_SEAT + 1);
    n_reads = 0;

    pass(10 * LEASE);
    cr_assert(n_reads >= 9 && n_reads <= 11, "%d reads", n_reads);
    n_reads = 0;
    agents[0].is_dead = true;
    lead_stand(&agents[2].lead, LEAD_LAST_SEAT + 1, "10.0.0.3", 3, now, now);
    pass(5 * LEASE / 2);

    saw(2, "FB");
    cr_assert(n_reads >= 10);
}
