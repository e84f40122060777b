/*
 * The store of a generation belongs to the node of the first seat, whichever node leads. The actors of the
 * stage open it at ports of their own.
 */
#include "tests/unit/agent/cluster/stage.h"

TestSuite(coordinator_store, .init = make_config, .fini = end, .timeout = 300);

static struct coordinator_past past = { .run = "the first one...",
                                        .node_rank = 1,
                                        .progress = { .generation = 4, .n_restarts_left = 9, .step = -1 } };

/* The coordinator before was lost. This one had the seat `own`, and the node that joins it had `other`. */
static void take_over(int own, int other)
{
    past.node_rank = own;
    stage_services.past = &past;
    begin(2, 2, 9, 1);
    stage_services.past = NULL;
    stage_join = (struct proto_join){ .last_generation = 4, .last_node_rank = other };
    memcpy(stage_join.lost_by, past.run, sizeof stage_join.lost_by);
    enter();
    stage_join = (struct proto_join){ .last_generation = -1, .last_node_rank = -1 };
}

static void check_store(int has, int other)
{
    cr_assert(actors[has].n_opens == 1 && actors[other].n_opens == 0, "%d and %d", actors[has].n_opens,
              actors[other].n_opens);
    cr_assert(eq(int, actors[has].plan.node_rank, 0));
    cr_assert(eq(int, actors[has].order.self, actors[has].node));
    for (int i = 0; i < 2; i++)
        cr_assert(actors[i].plan.master_port == 1000 + has &&
                      strcmp(actors[i].plan.master_address, actors[has].order.address) == 0,
                  "%s:%d", actors[i].plan.master_address, actors[i].plan.master_port);
}

Test(coordinator_store, a_new_leader_that_has_not_the_first_seat_leaves_the_store_where_it_was)
{
    take_over(1, 0);
    check_store(1, 0);
}

Test(coordinator_store, a_new_leader_with_the_first_seat_has_the_store)
{
    take_over(0, 1);
    check_store(0, 1);
}

/* Whose address it was is known of the first host only. */
Test(coordinator_store, the_address_that_the_user_gave_must_be_the_first_hosts)
{
    config.master_address = "192.0.2.1";
    begin(1, 1, 0, 1);
    cr_assert(actors[0].order.must && strcmp(actors[0].order.named, "192.0.2.1") == 0);
}

Test(coordinator_store, the_address_that_the_user_gave_may_be_another_hosts_after_a_take_over)
{
    config.master_address = "192.0.2.1";
    take_over(0, 1);
    cr_assert(strcmp(actors[0].order.named, "192.0.2.1") == 0 && !actors[0].order.must);
}

Test(coordinator_store, each_generation_has_its_own_and_the_last_worker_closes_it)
{
    begin(2, 2, 1, 2);
    check_store(0, 1);
    ends(0, DEATH_EXIT, 3, 0);
    cr_assert(eq(int, actors[0].n_closes, 0), "a worker is left");
    obeys(1);
    cr_assert(actors[0].n_closes == 1 && actors[0].n_opens == 2);
    check_plan(0, 1, 2, 0, 1);
}

Test(coordinator_store, no_generation_begins_before_it_is_open)
{
    actors_are_silent = true;
    begin(2, 2, 1, 2);
    cr_assert(actors[0].n_opens == 1 && actors[0].n_formed == 0);
    opens(1);
    cr_assert(eq(int, actors[0].n_formed, 0), "it is not this one's to open");
    opens(0);
    cr_assert(actors[0].n_formed == 1 && actors[1].n_formed == 1);
}

Test(coordinator_store, if_its_node_is_lost_before_it_answers_another_one_gets_it)
{
    actors_are_silent = true;
    take_over(1, 0);
    cr_assert(eq(int, actors[1].n_opens, 1));
    vanishes(1);
    cr_assert(eq(int, actors[0].n_formed, 0));
    actors_are_silent = false;
    enter();
    wait_for(1);
    cr_assert(actors[0].n_opens + actors[2].n_opens == 1 && actors[0].plan.n_nodes == 2);
}

/* The end is posted before the wait ends. */
Test(coordinator_store, if_its_node_is_lost_and_no_restart_is_left_the_run_ends)
{
    past.progress.n_restarts = 7;
    past.progress.n_restarts_left = 2;
    take_over(1, 0);
    actors_are_silent = true;
    ends(1, DEATH_EXIT, 3, 0);
    obeys(0);
    cr_assert(eq(int, actors[1].n_opens, 2));
    vanishes(1);
    check_finished(0, FSDP_EXIT_LINK);
}

/* The store serves those who are expected, and the newcomer may come before them. */
Test(coordinator_store, if_a_node_comes_before_the_answer_the_store_is_ordered_again)
{
    config.last_call_timeout_ms = 0;
    actors_are_silent = true;
    begin(1, 2, 1, 1);
    wait_until_ordered(0);
    enter();
    opens(0);
    cr_assert(actors[0].n_opens == 2 && actors[0].n_formed == 0);
    opens(0);
    cr_assert(actors[0].n_formed == 1 && actors[0].plan.n_nodes == 2);
}

Test(coordinator_store, if_that_node_gets_the_first_seat_the_other_one_closes_its_store)
{
    actors_are_silent = true;
    past.node_rank = 1;
    stage_services.past = &past;
    begin(1, 2, 9, 1);
    stage_services.past = NULL;
    cr_assert(eq(int, actors[0].n_opens, 1));
    stage_join = (struct proto_join){ .last_generation = 4, .last_node_rank = 0 };
    memcpy(stage_join.lost_by, past.run, sizeof stage_join.lost_by);
    enter();
    stage_join = (struct proto_join){ .last_generation = -1, .last_node_rank = -1 };
    opens(0);
    cr_assert(actors[0].n_closes == 1 && actors[1].n_opens == 1 && actors[0].n_opens == 1);
    opens(1);
    cr_assert(actors[0].plan.master_port == 1001 && actors[1].plan.master_port == 1001);
    cr_assert(eq(int, actors[1].plan.node_rank, 0));
}

Test(coordinator_store, an_old_answer_is_none)
{
    config.last_call_timeout_ms = 0;
    actors_are_silent = true;
    begin(1, 2, 1, 1);
    wait_until_ordered(0);
    enter();
    opens(0);
    actors[0].order.question--;
    opens(0);
    cr_assert(eq(int, actors[0].n_formed, 0));
    actors[0].order.question++;
    opens(0);
    cr_assert(eq(int, actors[0].n_formed, 1));
}

Test(coordinator_store, one_that_cannot_be_opened_ends_the_run)
{
    actors_are_silent = true;
    begin(2, 2, 1, 2);
    tells_of_store(0, &(struct reporter_store){ .kind = REPORTER_STORE_FAILED, .words = "no such address" });
    check_finished(0, FSDP_EXIT_PEER);
    check_finished(1, FSDP_EXIT_PEER);
    cr_assert(eq(str, actors[1].line, "no such address"));
}

Test(coordinator_store, a_run_that_ends_meanwhile_waits_for_no_answer)
{
    actors_are_silent = true;
    begin(2, 2, 1, 2);
    asks(0, SIGTERM, REPORTER_STOP);
    check_finished(0, 128 + SIGTERM);
    cr_assert(eq(int, actors[0].n_closes, 1));
    opens(0);
    cr_assert(eq(int, actors[0].n_formed, 0));
}

static int phase_of(int i, pid_t pid)
{
    return coordinator_phase_of(coordinator, actors[i].node,
                                &(struct death){ .phase = PROGRAM_STARTING, .pid = pid });
}

Test(coordinator_store, its_node_reports_who_has_come)
{
    begin(2, 2, 1, 2);
    cr_assert(eq(int, phase_of(0, 77), PROGRAM_STARTING));
    tells_of_store(
        0, &(struct reporter_store){ .kind = REPORTER_STORE_CAME, .node = actors[0].node, .pid = 77 });
    cr_assert(eq(int, phase_of(0, 77), PROGRAM_RENDEZVOUS));
    cr_assert(eq(int, phase_of(1, 88), PROGRAM_STARTING));
    tells_of_store(1, &(struct reporter_store){ .kind = REPORTER_STORE_CAME, .node = actors[1].node });
    cr_assert(eq(int, phase_of(1, 88), PROGRAM_STARTING), "it has no store");
    tells_of_store(0, &(struct reporter_store){ .kind = REPORTER_STORE_CAME, .node = actors[1].node });
    cr_assert(phase_of(1, 88) == PROGRAM_RUNNING && phase_of(0, 77) == PROGRAM_RUNNING);
}

Test(coordinator_store, its_node_reports_when_a_key_changed)
{
    begin(2, 2, 1, 2);
    cr_assert(lt(i64, coordinator_store_idle_ns(coordinator), INT64_C(60000000000)));
    tells_of_store(
        0, &(struct reporter_store){ .kind = REPORTER_STORE_CHANGED, .ago_ns = INT64_C(600000000000) });
    cr_assert(ge(i64, coordinator_store_idle_ns(coordinator), INT64_C(600000000000)));
}

Test(coordinator_store, a_run_that_wants_none_has_none)
{
    config.no_store = true;
    begin(2, 2, 1, 2);
    cr_assert(actors[0].n_opens == 0 && actors[0].n_formed == 1);
    cr_assert(eq(i64, coordinator_store_idle_ns(coordinator), INT64_MAX));
}
