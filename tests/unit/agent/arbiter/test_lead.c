/* Who comes to lead: who claims a term, when, and behind which fence. */
#include "agent/arbiter/lead.h"

#include "tests/unit/agent/arbiter/lead_agents.h"

TestSuite(lead, .init = set_up);

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

Test(lead, no_agent_claims_before_it_has_heard_nothing_for_the_lease)
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

/* A machine that comes up again as the job ends elsewhere. */
Test(lead, the_host_that_comes_while_the_run_ends_is_told_and_begins_no_other)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(LEASE);
    make(2);
    lead_first(&agents[2].lead, "10.0.0.3", 29400);
    pass(STEP);
    lead_resign(&agents[0].lead, 0);
    pass(LEASE);
    saw(2, "E");

    make(1);
    lead_first(&agents[1].lead, "10.0.0.2", 29400);
    pass(LEASE);
    saw(1, "B");
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

Test(lead, a_spare_that_gets_a_seat_reads_again_soon)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(LEASE);
    agents[1].is_dead = true;
    lead_sit(&agents[2].lead, -1);
    pass(LEASE / 5); /* it has read, and the next read would be a lease later */

    lead_sit(&agents[2].lead, 2);
    n_reads = 0;
    pass(LEASE / 5);

    cr_assert(n_reads >= 1 && n_reads <= 2, "%d reads", n_reads);
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
    lead_stand(&agents[2].lead, LEAD_LAST_SEAT + 1, "10.0.0.3", 3, now, 1, now);
    pass(5 * LEASE / 2);

    saw(2, "FB");
    cr_assert(n_reads >= 10);
}
