/* A node of whose ranks one sleeps inside the kernel, where KILL does not reach it. */
#include "tests/unit/agent/cluster/stage.h"
#include "tests/unit/agent/said.h"

static void set_up(void)
{
    make_config();
    stage_join.n_unkilled = 0;
    clock_ns = 1000000000;
    said_begin();
}

static void tear_down(void)
{
    end();
    said_end();
}

TestSuite(coordinator_unkilled, .init = set_up, .fini = tear_down, .timeout = 300);

static void reports(int i, int n)
{
    actors[i].reporter.unkilled(actors[i].reporter.to, n);
}

/* Rank 0 fails, and KILL does not end the rank of node i. */
static void fails_beside_a_sleeper(int i)
{
    ends(0, DEATH_EXIT, 3, 0);
    reports(i, 1);
    for (int other = 1; other < n_actors; other++)
        actors[other].reporter.stopped(actors[other].reporter.to, actors[other].plan.generation);
}

Test(coordinator_unkilled, its_node_gets_no_seat_until_the_process_has_ended)
{
    begin(1, 2, 2, 2);
    fails_beside_a_sleeper(1);
    check_plan(0, 1, 1, 0, 1);
    cr_assert(eq(int, actors[1].n_formed, 1));
    cr_assert(eq(int, said("is left out until 1 process of it, which cannot be killed, has ended"), 1));

    reports(1, 0);
    pass_ms(2000); /* others may come back with it */
    obeys(0);

    check_plan(0, 2, 2, 0, 1);
    check_plan(1, 2, 2, 1, 1);
    cr_assert(eq(int, said("takes part again"), 1));
}

Test(coordinator_unkilled, a_fixed_world_waits_for_it)
{
    begin(2, 2, 2, 2);
    fails_beside_a_sleeper(1);
    cr_assert(eq(int, actors[0].n_formed, 1));
    pass_ms(1000);
    cr_assert(eq(int, actors[0].n_formed, 1));

    reports(1, 0);

    for (int i = 0; i < 2; i++)
        check_plan(i, 1, 2, i, 1);
}

Test(coordinator_unkilled, a_world_that_waits_in_vain_says_for_what)
{
    begin(2, 2, 2, 2);
    fails_beside_a_sleeper(1);

    pass_ms(config.join_timeout_ms);

    check_finished(0, FSDP_EXIT_LINK);
    cr_assert_not_null(strstr(actors[0].line, "processes of "), "%s", actors[0].line);
    cr_assert_not_null(strstr(actors[0].line, " cannot be killed"), "%s", actors[0].line);
}

/* The coordinator's own node is in every generation. */
Test(coordinator_unkilled, no_world_forms_without_the_coordinators_node)
{
    begin(1, 2, 2, 2);
    fails_beside_a_sleeper(0);
    pass_ms(1000);
    cr_assert(actors[0].n_formed == 1 && actors[1].n_formed == 1);

    reports(0, 0);

    check_plan(0, 1, 2, 0, 1);
}

/* It was cut off, or another coordinator led. */
Test(coordinator_unkilled, a_node_that_joins_says_so_before_it_can_get_a_seat)
{
    begin(1, 2, 0, 1);
    stage_join.n_unkilled = 2;
    enter();
    cr_assert(eq(int, (int)welcome_of(1).wait, PROTO_WAIT_UNKILLED));
    cr_assert(eq(int, said("is left out until 2 processes of it, which cannot be killed, have ended"), 1));
    pass_ms(config.last_call_timeout_ms + 1);
    check_plan(0, 0, 1, 0, 0);

    reports(1, 1);
    pass_ms(6000);
    cr_assert(eq(int, actors[0].n_stops, 0));
    reports(1, 0);
    pass_ms(6000);
    obeys(0);

    check_plan(1, 1, 2, 1, 0);
}

Test(coordinator_unkilled, the_end_of_its_quarantine_is_not_the_end_of_it)
{
    begin(1, 2, 0, 2);
    for (int times = 0; times < 2; times++) {
        coordinator_fenced(coordinator, actors[1].node, times, 0); /* the second time it has to wait */
        if (times == 1)
            reports(1, 1);
        obeys(0);
        obeys(1);
    }
    check_plan(0, 2, 1, 0, 0);
    pass_ms(QUARANTINE_FIRST_MS);
    pass_ms(6000);
    cr_assert(eq(int, actors[0].n_stops, 0));

    reports(1, 0);
    pass_ms(6000);
    obeys(0);

    check_plan(1, 3, 2, 1, 0);
}

/* It is told before its own node is attached. A run without a restart ends then, and says so to that node. */
Test(coordinator_unkilled, a_node_that_takes_over_says_so_too)
{
    for (int most = 1; most <= 2; most++) {
        struct coordinator_past past = {
            .run = "the first one...",
            .progress = { .n_restarts = 1, .n_restarts_left = (uint32_t)most - 1, .step = -1 },
            .last_step = -1
        };
        struct reporter reporter;

        stage_services.past = &past;
        begin(2, 2, most, 0);
        stage_services.past = NULL;
        reporter = coordinator_reporter(coordinator, COORDINATOR_SELF);
        reporter.unkilled(reporter.to, 1);
        enter();
        if (most == 1) {
            check_finished(0, FSDP_EXIT_LINK);
            end();
            continue;
        }
        enter();
        cr_assert(eq(int, actors[0].n_formed, 0));
        reports(0, 0);
        check_plan(0, 1, 2, 0, 2);
    }
}

/* No other node can take its place. */
Test(coordinator_unkilled, the_only_node_of_a_job_goes_on)
{
    begin(1, 1, 1, 1);
    reports(0, 1);
    ends(0, DEATH_EXIT, 3, 0);

    check_plan(0, 1, 1, 0, 1);
    cr_assert(eq(int, said("is left out"), 0));
}
