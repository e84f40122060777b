/* How long a leader leads: with the store, without it, and after it stood still. */
#include "agent/arbiter/lead.h"

#include "tests/unit/agent/arbiter/lead_agents.h"

TestSuite(lead_hold, .init = set_up);

Test(lead_hold, a_leader_writes_every_third_of_the_lease)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(LEASE);
    const uint64_t before = stored.sequence;

    pass(10 * LEASE);

    cr_assert(stored.sequence - before >= 29 && stored.sequence - before <= 30);
    saw(0, "B");
}

Test(lead_hold, a_leader_that_is_cut_off_stops_one_lease_after_its_last_write_began)
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

Test(lead_hold, lost_answers_do_not_count)
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

Test(lead_hold, a_late_answer_revives_no_leader)
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

Test(lead_hold, an_answer_that_waited_while_the_leader_stood_still_revives_it_no_more)
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

Test(lead_hold, a_leader_that_stood_still_is_deposed_before_anything_else_when_it_wakes)
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

Test(lead_hold, one_that_was_deposed_may_lead_again_with_a_higher_term)
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

Test(lead_hold, a_leader_in_contact_with_all_goes_on_without_the_store)
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

/* Agent 0 leads, is cut from the store, and goes on in contact for so many leases. */
static void go_on(int leases)
{
    agents[0].is_cut = true;
    for (int i = 0; i < leases * LEAD_READS; i++) {
        lead_in_contact_until(&agents[0].lead, now + LEASE);
        pass(LEASE / LEAD_READS);
    }
}

Test(lead_hold, an_agent_that_was_never_let_in_waits_until_no_leader_goes_on)
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

Test(lead_hold, a_first_that_knows_that_the_old_leader_is_gone_waits_for_its_members_alone)
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

/* Agent 1 takes over. Whether it may go on is decided later. */
static void take_over(void)
{
    lose_the_first();
    stand(1, now);
    pass(3 * LEASE);
    saw(1, "FB");
}

Test(lead_hold, a_leader_that_took_over_goes_on_without_the_store_only_if_its_record_says_so)
{
    take_over();
    const int64_t hold = lead_holds_until_ms(&agents[1].lead);

    lead_in_contact_until(&agents[1].lead, now + 5 * LEASE);
    cr_assert(eq(i64, lead_holds_until_ms(&agents[1].lead), hold));
    agents[1].is_cut = true;
    lead_go_on(&agents[1].lead, false);
    pass(STEP);
    lead_in_contact_until(&agents[1].lead, now + 5 * LEASE);
    cr_assert(eq(i64, lead_holds_until_ms(&agents[1].lead), hold), "it could not be written");

    agents[1].is_cut = false;
    pass(LEASE / LEAD_READS + STEP);
    cr_assert(stored.goes_on);
    lead_in_contact_until(&agents[1].lead, now + 5 * LEASE);
    cr_assert(eq(i64, lead_holds_until_ms(&agents[1].lead), now + 5 * LEASE));
}

/* It stood still, and reads the last words of the leader before when the record of the next one is known. */
Test(lead_hold, an_agent_of_the_leader_before_waits_until_the_one_that_took_over_goes_on_no_more)
{
    take_over();
    lead_go_on(&agents[1].lead, false);
    pass(LEASE);
    const int64_t seen = agents[2].lead.seen_ms;

    lead_stand(&agents[2].lead, 0, "10.0.0.3", 3, now, 1, now);
    agents[1].is_cut = true;
    for (int i = 0; i < 14 * LEAD_READS; i++) {
        lead_in_contact_until(&agents[1].lead, now + LEASE);
        pass(LEASE / LEAD_READS);
    }

    saw(1, "FBD");
    saw(2, "FFB");
    cr_assert(agents[1].deposed_ms > seen + 8 * LEASE && agents[2].began_ms >= agents[1].deposed_ms);
    cr_assert(agents[2].lead.fence_until_ms >= agents[1].deposed_ms + LEASE_FENCE_MS(LEASE));
}

/* Nothing is lost by that for those whom it let in. */
Test(lead_hold, an_agent_that_the_one_that_took_over_let_in_waits_for_its_word_alone)
{
    take_over();
    lead_go_on(&agents[1].lead, false);
    pass(LEASE);
    agents[1].is_dead = true;
    stand(2, now);

    pass(2 * LEASE);

    saw(2, "FFB");
}

/* Its lock shows that it is gone, or it does not. */
Test(lead_hold, a_first_that_finds_a_lock_free_waits_all_the_same_if_it_is_not_this_leaders)
{
    for (int unlocked = 0; unlocked < 2; unlocked++) {
        set_up();
        take_over();
        lead_go_on(&agents[1].lead, unlocked);
        pass(LEASE);
        agents[1].is_dead = true;
        make(2);
        const int64_t start = now;
        lead_old_is_gone(&agents[2].lead, now);
        lead_first(&agents[2].lead, "10.0.0.3", 29400);

        pass(12 * LEASE);

        saw(2, "B");
        cr_assert(eq(int, agents[2].began_ms >= start + 11 * LEASE, unlocked));
        cr_assert(agents[2].began_ms >= start + 4 * LEASE);
    }
}

Test(lead_hold, what_is_published_is_stored_at_once_and_outlives_the_leader)
{
    const struct leader_progress progress = {
        .generation = 4, .n_restarts = 2, .restarts_s = { 7, 60 }, .step = 900
    };

    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(LEASE);
    const int64_t published = now;

    lead_publish(&agents[0].lead, &progress, now);
    lead_move(&agents[0].lead, "10.0.0.8", 5);
    pass(STEP);
    cr_assert(stored.progress.generation == 4 && stored.progress.step == 900 && stored.port == 5);
    pass(LEASE);
    agents[0].is_dead = true;
    stand(1, now);

    pass(2 * LEASE);

    cr_assert(stored.term == 2 && stored.progress.generation == 4 && stored.progress.n_restarts == 2);
    cr_assert(agents[1].lead.before.progress.step == 900);
    cr_assert(agents[1].lead.before.progress.restarts_s[1] == 60);
    const int64_t passed = agents[1].began_ms - published;

    cr_assert(agents[1].lead.before.progress.published_s <= passed / 1000);
    cr_assert(agents[1].lead.before.progress.published_s >= passed / 1000 - 2, "each host rounds it down");
    cr_assert(stored.progress.published_s >= (now - published) / 1000 - 2);
}

/* Only the loop of agent 0 is busy; 1 is in contact with nobody. */
Test(lead_hold, a_leader_whose_loop_is_busy_holds_for_some_leases_and_then_lets_another_lead)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(2 * LEASE);
    agents[0].is_busy = true;
    const int64_t busy = now;

    pass((LEAD_CONTACT - 1) * LEASE);
    cr_assert(lead_holds_until_ms(&agents[0].lead) > now);
    stand(1, now - 2 * LEASE);
    pass(4 * LEASE);

    cr_assert(agents[1].began_ms >= busy + LEAD_CONTACT * LEASE);
    saw(1, "FB");
    agents[0].is_busy = false;
    pass(STEP);
    saw(0, "BDF");
}

Test(lead_hold, an_agent_whose_loop_is_busy_claims_nothing)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(2 * LEASE);
    agents[0].is_dead = true;
    stand(1, now - 2 * LEASE);
    pass(LEASE / 2);
    agents[1].is_busy = true;
    pass(20 * LEASE);
    cr_assert(eq(int, (int)stored.term, 1));

    agents[1].is_busy = false;
    pass(STEP);
    saw(1, "FB");
}

/* Agent 1 has asked for the term, and its loop is busy when the answer comes. */
static void lead_without_knowing(void)
{
    lead_first(&agents[0].lead, "10.0.0.1", 29400);
    pass(2 * LEASE);
    agents[0].is_dead = agents[1].is_slow = true;
    stand(1, now - 2 * LEASE);
    while (agents[1].call != LEAD_CLAIM) {
        if (agents[1].call != LEAD_NO_CALL)
            finish(&agents[1]);
        pass(STEP);
    }
    agents[1].is_busy = true;
    agents[1].is_slow = false;
    finish(&agents[1]);
    cr_assert(lead_holds_until_ms(&agents[1].lead) > now);
}

Test(lead_hold, a_lead_that_is_over_before_its_agent_learns_of_it_has_never_been)
{
    lead_without_knowing();
    pass(LEASE / 2);
    agents[1].is_cut = true;
    pass(2 * LEASE);
    cr_assert(eq(i64, lead_holds_until_ms(&agents[1].lead), 0));
    agents[1].is_cut = agents[1].is_busy = false;
    pass(STEP);
    saw(1, "F");

    pass(3 * LEASE);
    saw(1, "FB");
    cr_assert(stored.term == 3, "it went on to stand");
}

Test(lead_hold, who_wants_to_lead_no_more_before_it_learns_that_it_does_is_told_nothing)
{
    lead_without_knowing();

    lead_withdraw(&agents[1].lead);
    agents[1].is_busy = false;
    pass(4 * LEASE);

    saw(1, "F");
    cr_assert(eq(i64, lead_holds_until_ms(&agents[1].lead), 0));
}

/* Its record says that it leads, and it has let in no agent. */
Test(lead_hold, a_lead_that_is_withdrawn_after_its_first_write_is_stale_as_soon_as_any_other)
{
    lead_without_knowing();
    pass(LEASE / 2);
    cr_assert(stored.term == 2 && stored.sequence > 0);
    agents[1].is_slow = true;
    while (agents[1].call != LEAD_RENEW)
        pass(STEP);

    lead_withdraw(&agents[1].lead);
    agents[1].is_busy = false;
    finish(&agents[1]); /* a write that was under way */
    agents[1].is_slow = false;
    const int64_t written = now;
    cr_assert(eq(i64, lead_holds_until_ms(&agents[1].lead), 0));
    stand(2, now - 2 * LEASE);
    pass(2 * LEASE);

    saw(1, "FF");
    saw(2, "FFB");
    cr_assert(stored.term == 3 && agents[2].began_ms >= written + LEASE_END_MS(LEASE));
    cr_assert(agents[2].began_ms <=
              written + LEASE_END_MS(LEASE) + LEASE / LEAD_READS + 2 * LEASE / LEAD_SEATS + 2 * STEP);
}
