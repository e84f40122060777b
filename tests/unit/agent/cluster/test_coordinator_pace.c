/*
 * Stragglers over nodes that are only played: whose reports count, and what becomes of them. Each node has
 * one rank.
 */
#include "tests/unit/agent/cluster/stage.h"

enum { NODES = 3 };

static void form_job(void)
{
    make_config();
    config.job_json = "{}";
    begin(NODES, NODES, 1, NODES);
    wait_for(1);
}

TestSuite(coordinator_pace, .init = form_job, .fini = end, .timeout = 300);

/* Node i reports that `rank` spends so many milliseconds of its own in each step. */
static void reports(int i, int rank, int own_ms)
{
    const struct pace pace = { .rank = rank,
                               .step = 20,
                               .n_steps = 10,
                               .total_ns = 10 * 900 * INT64_C(1000000),
                               .own_ns = 10 * own_ms * INT64_C(1000000) };

    actors[i].reporter.pace(actors[i].reporter.to, actors[i].plan.generation, &pace);
}

/* A window in which rank `slow` is slower than the others. */
static void window(int slow)
{
    for (int i = 0; i < NODES; i++)
        reports(i, i, i == slow ? 900 : 100);
}

static enum straggler_class class_of(int rank)
{
    return coordinator->pacing.stragglers.ranks[rank].class;
}

Test(coordinator_pace, a_rank_that_is_slow_in_five_windows_is_a_straggler)
{
    for (int w = 1; w < STRAGGLER_WINDOWS; w++)
        window(1);
    cr_assert(eq(int, (int)class_of(1), STRAGGLER_NONE));
    window(1);
    cr_assert(eq(int, (int)class_of(1), STRAGGLER_COMPUTE));
    cr_expect(class_of(0) == STRAGGLER_NONE && class_of(2) == STRAGGLER_NONE);
    cr_expect(eq(int, actors[0].n_stops + actors[1].n_stops + actors[1].n_notices, 0), "it is only reported");
}

/* Rank 1 is a straggler. */
static void show_slow(int min_nodes, int max_nodes, int n)
{
    clock_ns = 1000000000;
    make_config();
    config.job_json = "{}";
    config.straggler_restart = true;
    begin(min_nodes, max_nodes, 1, n);
    wait_for(1);
    for (int w = 0; w < STRAGGLER_WINDOWS; w++)
        for (int i = 0; i < actors[0].plan.n_nodes; i++)
            reports(i, i, i == 1 ? 900 : 100);
}

/* ... and the ranks save and leave if they are asked to. */
static void be_slow(int min_nodes, int max_nodes, int n)
{
    show_slow(min_nodes, max_nodes, n);
    for (int i = 0; i < n; i++)
        if (actors[i].n_notices > 0)
            ends(i, DEATH_NONE, FSDP_EXIT_NOTICE, 0);
}

Test(coordinator_pace_restart, the_world_forms_again_without_its_node_for_an_hour, .fini = end,
     .timeout = 300)
{
    be_slow(2, 3, 3);
    check_plan(0, 1, 2, 0, 0);
    check_plan(2, 1, 2, 1, 0);
    cr_assert(eq(int, actors[1].n_formed, 1));

    pass_ms(3599 * 1000);
    cr_assert(actors[0].n_notices == 0 && actors[1].n_formed == 1);
    pass_ms(1000);
    pass_ms(5000);
    for (int i = 0; i < 3; i += 2)
        ends(i, DEATH_NONE, FSDP_EXIT_NOTICE, 0);
    cr_assert(eq(int, actors[1].n_formed, 2), "it takes part again");
    check_plan(1, 2, 3, actors[1].plan.node_rank, 0);
}

Test(coordinator_pace_restart, its_agent_that_is_started_again_waits_for_the_rest, .fini = end,
     .timeout = 300)
{
    be_slow(2, 3, 3);
    pass_ms(600 * 1000);
    vanishes(1);
    enter();
    cr_assert(eq(int, (int)welcome_of(3).wait, PROTO_WAIT_SLOW));
    cr_expect(eq(int, welcome_of(3).seconds, 3000));
    pass_ms(2999 * 1000);
    cr_assert(actors[0].n_notices == 0 && actors[3].n_formed == 0);
    pass_ms(1000);
    pass_ms(5000);
    for (int i = 0; i < 3; i += 2)
        ends(i, DEATH_NONE, FSDP_EXIT_NOTICE, 0);
    cr_assert(eq(int, actors[3].n_formed, 1));
}

Test(coordinator_pace_restart, a_node_that_is_fenced_meanwhile_is_held_once, .fini = end, .timeout = 300)
{
    show_slow(2, 3, 3);
    cr_assert(eq(int, coordinator->n_held, 1));
    coordinator_fenced(coordinator, actors[1].node, 0, 100);
    cr_expect(eq(int, coordinator->n_held, 1));
}

Test(coordinator_pace_restart, a_spare_takes_its_place, .fini = end, .timeout = 300)
{
    be_slow(2, 2, 3);
    check_plan(0, 1, 2, 0, 0);
    check_plan(2, 1, 2, 1, 0);
    cr_assert(eq(int, actors[1].n_formed, 1));
    vanishes(1);
    cr_assert(actors[0].n_stops == 0 && actors[0].n_finished == 0, "the job does not need it");
}

Test(coordinator_pace_restart, a_node_that_the_job_needs_stays, .fini = end, .timeout = 300)
{
    be_slow(2, 2, 2);
    cr_assert(actors[0].n_notices == 0 && actors[0].n_stops == 0 && actors[0].n_formed == 1);
}

Test(coordinator_pace, a_node_reports_its_own_ranks_and_of_this_generation)
{
    for (int w = 0; w < 2 * STRAGGLER_WINDOWS; w++) {
        reports(0, 0, 100);
        reports(0, 1, 900);
        reports(0, 2, 100);
        reports(0, 3, 100);
        actors[1].plan.generation = 1;
        reports(1, 1, 900);
        actors[1].plan.generation = 0;
    }
    cr_expect(eq(int, coordinator->pacing.stragglers.n_reported, 1));
    cr_expect(eq(int, (int)class_of(1), STRAGGLER_NONE));
}

Test(coordinator_pace, the_next_generation_knows_of_no_slow_rank)
{
    for (int w = 1; w < STRAGGLER_WINDOWS; w++)
        window(1);
    ends(2, DEATH_EXIT, 1, 0);
    window(1); /* the generation is ending */
    cr_assert(eq(int, (int)class_of(1), STRAGGLER_NONE));
    obeys(0);
    obeys(1);
    wait_for(2);
    window(1);
    cr_expect(eq(int, (int)class_of(1), STRAGGLER_NONE));
}
