/* How a run begins, also again, and how all learn that it has ended. */
#include "agent/arbiter/lead.h"

#include "tests/unit/agent/arbiter/lead_agents.h"

TestSuite(lead_run, .init = set_up);

Test(lead_run, the_first_follows_a_leader_that_is_alive)
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

Test(lead_run, the_first_that_followed_a_leader_before_is_told_again)
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

Test(lead_run, the_first_takes_over_a_stale_record_behind_a_fence)
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

/* Its members stand when they have lost it and their ranks have ended; the last claims 2.8 leases later. */
Test(lead_run, a_leader_that_is_started_again_at_once_follows_the_member_that_takes_over)
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
        lead_stand(&agents[1].lead, -1, "10.0.0.2", 2, lost, 1, now);
        pass(4 * LEASE);

        saw(0, "F");
        saw(1, "FB");
        cr_assert(agents[1].began_ms <= lost + 28 * LEASE / 10);
        cr_assert(stored.term == 2 && stored.port == 2);
    }
}

Test(lead_run, the_record_of_another_run_is_waited_for_and_never_followed)
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

Test(lead_run, the_end_is_written_and_everybody_learns_it)
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

Test(lead_run, the_end_is_written_again_until_the_store_answers_but_not_beyond_the_hold)
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

Test(lead_run, who_ends_the_run_holds_no_more_before_another_can_read_that)
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

Test(lead_run, one_that_stands_learns_the_end_that_it_missed)
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

Test(lead_run, the_end_of_an_earlier_start_is_not_the_end_of_this_one)
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

Test(lead_run, an_ended_run_begins_again_at_once)
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

Test(lead_run, the_first_waits_for_an_unreadable_claim_after_the_end_of_a_run)
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

/* Agent 1 takes over at `lost`, and cannot lead. Agent 2 stands as well. */
static int64_t take_over_and_leave(void)
{
    lose_the_first();
    const int64_t lost = now;

    stand(1, lost);
    stand(2, lost);
    while (agents[1].began_ms == 0)
        pass(STEP);
    agents[1].lead.self.progress.generation = 7;
    lead_leave(&agents[1].lead);
    cr_assert(lead_holds_until_ms(&agents[1].lead) == 0);
    return lost;
}

/* Behind the same fence as the first that took over: no rank was under that one. */
Test(lead_run, who_cannot_lead_leaves_it_to_the_next_at_once)
{
    const int64_t lost = take_over_and_leave(), left = now;

    pass(LEASE / 2);

    saw(2, "FB");
    cr_assert(stored.term == 3 && stored.state == LEADER_LEADS);
    cr_assert(stored.progress.generation == 7 && !stored.goes_on);
    cr_assert(agents[2].began_ms <= left + LEASE / 10 + LEASE / LEAD_SEATS * 2 + 4 * STEP);
    cr_assert(agents[2].lead.fence_until_ms >= lost + LEASE + LEASE_FENCE_MS(LEASE));
    cr_assert(agents[2].lead.fence_until_ms <= left + LEASE / 10 + STEP + LEASE + LEASE_FENCE_MS(LEASE));
    pass(5 * LEASE);
    saw(1, "FBE"); /* its own word is written: it claims no more, and follows none */
    saw(2, "FB");
}

Test(lead_run, who_begins_a_run_does_not_take_the_place_that_was_left)
{
    take_over_and_leave();
    agents[2].is_dead = true;
    make(0);
    lead_first(&agents[0].lead, "10.0.0.1", 29400);

    pass((LEAD_MEMBERS - 1) * LEASE);
    saw(0, "");
    pass(2 * LEASE);

    saw(0, "B");
    cr_assert(stored.term == 3 && stored.progress.generation == 7);
}

/* The guard of agent 0, whose process is gone, writes that into the record. */
static void guard_says_so(void)
{
    stored.state = LEADER_SWEPT;
    stored.sequence += 17;
    make(0);
    agents[0].is_dead = true;
}

Test(lead_run, who_stands_claims_at_once_when_the_leader_s_node_is_swept)
{
    lose_the_first();
    guard_says_so();
    const int64_t start = now;
    stand(1, now);
    stand(2, now);

    pass(LEASE / 4);

    saw(1, "FB");
    cr_assert(agents[1].began_ms < start + LEASE / 4);
    cr_assert(eq(int, (int)agents[1].lead.before.state, LEADER_SWEPT));
    /* other nodes of it may have ranks */
    cr_assert(agents[1].lead.fence_until_ms >= start + LEASE + LEASE_FENCE_MS(LEASE));
    pass(LEASE);
    saw(2, "FF");
}

Test(lead_run, the_host_by_the_endpoint_leaves_a_swept_leader_s_place_to_its_members)
{
    lose_the_first();
    guard_says_so();
    make(0);
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(LEASE);
    stand(1, now);

    pass(LEASE);

    saw(1, "FB");
    saw(0, "F");
}
