/*
 * The coordinator and the leases of its nodes: no generation begins while ranks of a lost node may run.
 */
#include "agent/os/deadlines.h"
#include "tests/unit/agent/cluster/stage.h"

TestSuite(coordinator_lease, .init = make_config, .fini = end, .timeout = 300);

/* Begins a run at a time that the test sets. Every node but the host has had an answer at its begin. */
static void begin_leased(int min_nodes, int max_nodes, int max_restarts)
{
    clock_ns = 1000000000;
    begin(min_nodes, max_nodes, max_restarts, max_nodes);
    for (int i = 1; i < n_actors; i++)
        coordinator_granted(coordinator, actors[i].node, 0);
}

Test(coordinator_lease, no_generation_begins_while_ranks_of_a_lost_node_may_run)
{
    const int fence_ms = LEASE_FENCE_MS(config.lease_ms);

    config.last_call_timeout_ms = 1;
    begin_leased(1, 3, 0);
    cr_assert(eq(i64, actors[1].plan.lease_ms, config.lease_ms));
    pass_ms(1000);
    coordinator_granted(coordinator, actors[1].node, 0);
    pass_ms(100);
    vanishes(1);
    obeys(0);
    obeys(2);
    pass_ms(fence_ms - 200);
    cr_assert(eq(int, (int)uv_timer_get_due_in(coordinator->timer), 101),
              "the loop does not turn until then");
    pass_ms(100);
    cr_assert(eq(int, actors[0].n_formed, 1), "clocks may differ, and the guard needs its time");
    pass_ms(1);
    check_plan(0, 1, 2, 0, 0);
}

Test(coordinator_lease, a_replacement_waits_for_the_end_of_the_lost_nodes_lease_too)
{
    begin_leased(2, 2, 1);
    vanishes(1);
    obeys(0);
    enter();
    cr_assert(eq(int, actors[0].n_formed, 1));
    pass_ms(LEASE_FENCE_MS(config.lease_ms) + 1);
    check_plan(2, 1, 2, 1, 1);
}

/* No rank of it can run: its ranks had ended, it had no lease yet, or it says that it has killed them. */
Test(coordinator_lease, a_lost_node_whose_ranks_cannot_run_is_not_waited_for)
{
    begin_leased(1, 2, 0);
    ends_well(1);
    vanishes(1);
    ends(0, DEATH_EXIT, 1, 0);
    cr_assert(actors[0].n_finished == 1 || actors[0].n_formed == 2);
    end();

    clock_ns = 1000000000;
    begin(1, 2, 0, 2);
    vanishes(1);
    obeys(0);
    cr_assert(eq(int, actors[0].n_formed, 2), "no lease");
    end();

    begin_leased(1, 2, 0);
    coordinator_swept(coordinator, actors[1].node);
    obeys(0);
    cr_assert(eq(int, actors[0].n_formed, 2), "proof");
}

/* The guard's word may come after the end of the session: then the node is lost already. */
Test(coordinator_lease, a_lease_is_not_waited_for_once_the_guard_has_said_that_no_rank_is_left)
{
    static const unsigned char stranger[PROTO_IDENTITY_BYTES] = "someone else...";
    struct proto_join lost[2];

    config.last_call_timeout_ms = 1;
    begin_leased(1, 3, 0);
    for (int i = 1; i < 3; i++) {
        lost[i - 1] = coordinator->roster.nodes[actors[i].node].who;
        vanishes(i);
    }
    obeys(0);
    coordinator_agent_swept(coordinator, stranger);
    coordinator_agent_swept(coordinator, lost[0].identity);
    cr_assert(eq(int, actors[0].n_formed, 1), "the other one's lease still runs");
    pass_ms(100);
    cr_assert(eq(int, actors[0].n_formed, 1));

    coordinator_agent_swept(coordinator, lost[1].identity);

    check_plan(0, 1, 1, 0, 0);
    cr_assert(eq(u64, coordinator_fenced_until_ms(coordinator), coordinator_now_ms(coordinator)),
              "for the timeline");
}

/* It was lost, and has joined again, before it was killed. */
Test(coordinator_lease, the_guards_word_counts_for_the_earlier_sessions_of_its_agent_too)
{
    struct proto_refused refused;
    struct proto_join join;

    begin_leased(1, 2, 0);
    join = coordinator->roster.nodes[actors[1].node].who;
    vanishes(1);
    obeys(0);
    actors[1].node = coordinator_admit(coordinator, &join, "127.0.0.1", &refused);
    cr_assert(gt(int, actors[1].node, 0), "%s", refused.words);
    coordinator_attach(coordinator, actors[1].node, play, &actors[1]);
    cr_assert(eq(int, actors[0].n_formed, 1), "its lease still runs");
    cr_assert(eq(int, coordinator_find(coordinator, join.identity), actors[1].node));

    coordinator_swept(coordinator, actors[1].node);

    check_plan(0, 1, 1, 0, 0);
}

/* A job that ends begins no generation. */
Test(coordinator_lease, the_end_of_a_job_does_not_wait_for_a_lease)
{
    begin_leased(2, 2, 0);
    vanishes(1);
    obeys(0);
    check_finished(0, FSDP_EXIT_LINK);
}

Test(coordinator_lease, a_fenced_node_stays_and_takes_part_in_the_next_generation)
{
    begin_leased(2, 2, 1);
    coordinator_fenced(coordinator, actors[1].node, 0, 500);
    cr_assert(actors[0].n_stops == 1 && actors[0].lost, "the others can do no collective");
    ends(1, DEATH_SIGNAL, SIGKILL, 0);
    coordinator_fenced(coordinator, actors[1].node, 0, 500);
    obeys(0);
    for (int i = 0; i < 2; i++)
        check_plan(i, 1, 2, i, 1);

    coordinator_fenced(coordinator, actors[1].node, 0, 500);
    cr_assert(eq(int, actors[0].n_stops, 0), "that generation is over");
    coordinator_fenced(coordinator, actors[1].node, 1, 500);
    obeys(0);
    obeys(1);
    check_finished(0, FSDP_EXIT_LINK);
    check_finished(1, FSDP_EXIT_LINK);
    cr_assert_not_null(strstr(actors[0].line, "its ranks were killed"), "%s", actors[0].line);
}

/*
 * The rank of node 0 fails because its peer was killed, and that is seen before the lease is known to be
 * over.
 */
Test(coordinator_lease, a_fenced_node_is_blamed_for_what_failed_since)
{
    begin_leased(1, 2, 0);
    pass_ms(4000);
    ends(0, DEATH_EXIT, 1, 0);
    coordinator_fenced(coordinator, actors[1].node, 0, 1000);
    obeys(1);
    cr_assert(actors[0].n_finished == 0 && actors[0].n_formed == 2 && actors[0].plan.restart_count == 0);
}

Test(coordinator_lease, a_node_of_an_elastic_world_that_is_fenced_again_has_to_wait)
{
    begin_leased(1, 2, 0);
    for (int times = 1; times <= 2; times++) {
        coordinator_fenced(coordinator, actors[1].node, times - 1, 0);
        obeys(0);
        obeys(1);
        check_plan(0, times, times == 1 ? 2 : 1, 0, 0);
    }
    pass_ms(QUARANTINE_FIRST_MS);
    pass_ms(1000);
    obeys(0);
    check_plan(1, 3, 2, 1, 0);
}

/* Its session had not ended here yet. */
Test(coordinator_lease, an_agent_that_comes_again_is_lost_before_it_is_let_in)
{
    struct proto_refused refused;
    struct proto_join join;
    int node;

    begin_leased(2, 2, 1);
    cr_assert(actors[1].plan.bears_loss, "a restart is left");
    pass_ms(3500);
    join = coordinator->roster.nodes[actors[1].node].who;
    cr_assert(eq(int, coordinator_find(coordinator, join.identity), actors[1].node));
    coordinator_gave_up(coordinator, actors[1].node);
    cr_assert(eq(int, coordinator_find(coordinator, join.identity), -1));
    cr_assert(actors[0].n_stops == 1 && actors[0].lost);
    node = coordinator_admit(coordinator, &join, "127.0.0.1", &refused);
    cr_assert(gt(int, node, 0), "%s", refused.words);
    coordinator_attach(coordinator, node, play, &actors[1]);
    actors[1].reporter = coordinator_reporter(coordinator, node);
    actors[1].node = node;
    obeys(0);
    cr_assert(eq(int, actors[0].n_formed, 1), "its lease may still run");
    pass_ms(LEASE_FENCE_MS(config.lease_ms) - 3500 + 1);
    for (int i = 0; i < 2; i++) {
        check_plan(i, 1, 2, i, 1);
        cr_assert(not(actors[i].plan.bears_loss), "the last restart");
    }
}

Test(coordinator_lease, an_elastic_world_bears_the_loss_of_a_node_without_a_restart)
{
    begin_leased(1, 2, 0);
    cr_assert(actors[1].plan.bears_loss);
}
