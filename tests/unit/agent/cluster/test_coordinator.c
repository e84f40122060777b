/*
 * The coordinator with nodes that are only played: who is told what when nodes come, fail, vanish and leave.
 */
#include "tests/support/oracles/ends.h"
#include "tests/unit/agent/cluster/stage.h"

TestSuite(coordinator, .init = make_config, .fini = end, .timeout = 300);

/* Forming */

Test(coordinator, a_world_forms_at_once_when_all_are_there)
{
    begin(1, 3, 0, 2);
    cr_assert(eq(int, actors[0].n_formed, 0), "the last call has not been made");
    enter();

    for (int i = 0; i < 3; i++)
        check_plan(i, 0, 3, i, 0);
    cr_assert(actors[0].n_formed == 1 && actors[0].plan.world_size == 3);
    for (int i = 0; i < 3; i++)
        ends_well(i);
    for (int i = 0; i < 3; i++)
        check_finished(i, 0);
}

/* A node's own world spawns its workers while it is told to start: the others must not wait for that. */
Test(coordinator, start_goes_to_the_others_first)
{
    begin(2, 2, 0, 2);
    wait_for(1);

    cr_assert(actors[1].formed_at == 1 && actors[0].formed_at == 2);
}

/* The key of the connections between ranks. */
Test(coordinator, each_generation_has_a_key_of_its_own)
{
    static const unsigned char none[sizeof((struct world_plan *)0)->token];
    unsigned char first[sizeof none];

    begin(2, 2, 1, 2);
    wait_for(1);
    memcpy(first, actors[0].plan.token, sizeof first);
    cr_expect(memcmp(first, none, sizeof first) != 0);
    cr_expect(memcmp(actors[1].plan.token, first, sizeof first) == 0, "it is one for all nodes");

    ends(1, DEATH_EXIT, 3, 0);
    obeys(0);
    wait_for(2);
    cr_assert(eq(int, actors[0].plan.generation, 1));
    cr_expect(memcmp(actors[0].plan.token, first, sizeof first) != 0);
    cr_expect(memcmp(actors[0].plan.token, actors[1].plan.token, sizeof first) == 0);
}

Test(coordinator, a_node_that_waits_and_goes_is_waited_for_again)
{
    begin(3, 3, 0, 2);
    vanishes(1);
    enter();
    cr_assert(eq(int, actors[0].n_formed, 0), "two of three");
    enter();

    check_plan(0, 0, 3, 0, 0);
}

/* A fixed number of nodes */

Test(coordinator, a_lost_node_of_a_fixed_world_costs_a_restart_or_is_76)
{
    begin(2, 2, 1, 2);
    vanishes(1);
    cr_assert(eq(int, actors[0].n_stops, 1), "at once");
    obeys(0);
    cr_assert(actors[0].n_formed == 1 && actors[0].n_finished == 0, "it waits");
    enter();
    for (int i = 0; i < 3; i += 2)
        check_plan(i, 1, 2, i / 2, 1);

    vanishes(2);
    obeys(0);
    check_finished(0, FSDP_EXIT_LINK);
    cr_assert_not_null(strstr(actors[0].line, "node 1"), "%s", actors[0].line);
}

Test(coordinator, a_node_lost_between_two_generations_counts_too_and_the_last_restart_is_not_spent_twice)
{
    for (int left = -1; left < 2; left++) {
        begin(3, 3, 2 + left, 3);
        vanishes(1); /* one restart */
        obeys(0);
        obeys(2);
        vanishes(2); /* two */
        cr_assert(eq(int, actors[0].n_finished, left < 0));
        if (left >= 0) {
            enter();
            enter();
            cr_assert(eq(int, actors[0].plan.restart_count, 2));
            vanishes(3);
            obeys(0);
            obeys(4);
        }
        cr_assert(eq(int, actors[0].n_finished, left <= 0), "with %d left", left);
        cr_assert(eq(int, actors[0].status, left <= 0 ? FSDP_EXIT_LINK : 0));
        end();
    }
}

/* Three failures at 0, 40 and 60 s: the first no longer counts at the third. Then two within 20 s. */
Test(coordinator, restarts_count_within_their_window_and_the_last_line_names_it)
{
    static const int seconds[] = { 1, 41, 61, 62 };

    config.restart_window_ms = 60000;
    clock_ns = 1;
    begin(1, 1, 2, 1);
    for (int i = 0; i < 4; i++) {
        cr_assert(actors[0].n_formed == i + 1 && actors[0].plan.restart_count == i);
        clock_ns = seconds[i] * INT64_C(1000000000);
        ends(0, DEATH_EXIT, 3, 0);
    }

    check_finished(0, 3);
    cr_assert_not_null(strstr(actors[0].line, "; restarts used: 2 of 2 within 60 s"), "%s", actors[0].line);
}

/* Ranks whose peers are gone may fail before the node is known to be lost. */
Test(coordinator, nodes_that_are_stopping_are_told_of_a_loss_that_is_seen_later)
{
    begin(3, 3, 1, 3);
    ends(2, DEATH_EXIT, 1, 0);
    cr_assert(actors[0].n_stops == 1 && !actors[0].lost);
    vanishes(1);
    cr_assert(actors[0].n_stops == 2 && actors[0].lost);
    obeys(0);
    enter();
    cr_assert(eq(int, actors[0].n_formed, 2));
    ends(0, DEATH_EXIT, 1, 0);
    cr_assert(actors[2].n_stops == 1 && !actors[2].lost, "the next generation has lost none");
}

/* What fails because a node is gone may be seen before the node is: nothing had been heard of it by then. */
Test(coordinator, a_node_that_had_fallen_silent_is_blamed_for_what_failed_since)
{
    begin(1, 2, 0, 2);
    ends(0, DEATH_EXIT, 1, 0);
    coordinator_lost(coordinator, actors[1].node, 3000, "no sign of life");

    cr_assert(actors[0].n_finished == 0 && actors[0].n_formed == 2 && actors[0].plan.restart_count == 0);
}

/* A world that may be smaller */

Test(coordinator, a_lost_node_of_an_elastic_world_costs_nothing)
{
    begin(1, 3, 0, 3);
    vanishes(1);
    obeys(0);
    obeys(2);

    for (int i = 0; i < 3; i += 2)
        check_plan(i, 1, 2, i / 2, 0);
}

Test(coordinator, newcomers_are_taken_in_together_and_without_a_restart)
{
    config.last_call_timeout_ms = 1;
    begin(1, 5, 0, 1);
    wait_for(1);
    for (int i = 0; i < 3; i++)
        enter();
    cr_assert(eq(int, actors[0].n_stops, 0), "more may be on their way");
    while (actors[0].n_stops == 0)
        uv_run(&loop, UV_RUN_ONCE);
    obeys(0);

    for (int i = 0; i < 4; i++)
        check_plan(i, 1, 4, i, 0);
}

/*
 * A job is asked to save and leave when a node comes. The agent of node 1 stands still, so no clock of its
 * own stops its rank.
 */
Test(coordinator, a_job_that_does_not_leave_after_a_change_is_stopped_after_the_grace)
{
    config.job_json = "{}";
    config.grace_ms = 30000;
    config.last_call_timeout_ms = 1;
    clock_ns = 1;
    begin(2, 3, 0, 2);
    pass_ms(1);
    enter();
    pass_ms(1);
    cr_assert(eq(int, actors[0].n_notices, 1));
    ends(0, DEATH_NONE, FSDP_EXIT_NOTICE, 0);
    pass_ms(30000);
    cr_assert(eq(int, actors[1].n_stops, 0), "it has the grace");

    pass_ms(2000);
    cr_assert(eq(int, actors[1].n_stops, 1));
    ends(1, DEATH_SIGNAL, SIGKILL, SIGKILL);

    for (int i = 0; i < 3; i++)
        check_plan(i, 1, 3, i, 0);
}

/* Nodes that come and go */

/* Lets time pass in short steps. Every rank obeys when it is told to stop. */
static void live_ms(int64_t ms)
{
    for (; ms > 0; ms -= 500) {
        pass_ms(500);
        for (int i = 0; i < n_actors; i++)
            if (actors[i].n_stops > 0)
                obeys(i);
    }
}

/* The node of the last actor dies and comes back. Returns how many seconds it has to wait. */
static int bounce(void)
{
    vanishes(n_actors - 1);
    live_ms(500);
    enter();
    return welcome_of(n_actors - 1).wait == PROTO_WAIT_QUARANTINE ? welcome_of(n_actors - 1).seconds : 0;
}

/* Node 1 of 1:2 dies 3 s after it came, and comes back at once, 19 times: the world used to form 39 times. */
Test(coordinator, a_node_that_comes_and_goes_costs_a_world_of_two_few_generations)
{
    int wait_s = 0;

    config.last_call_timeout_ms = 1;
    clock_ns = 1;
    begin(1, 2, 0, 2);
    for (int i = 0; i < 19; i++) {
        live_ms(3000);
        wait_s = bounce();
    }

    cr_assert(actors[0].n_formed >= 4 && actors[0].n_formed <= 9, "%d generations", actors[0].n_formed);
    cr_assert(wait_s > 0 && actors[0].plan.n_nodes == 1);
    live_ms(wait_s * 1000 + 2000);
    cr_assert(eq(int, actors[0].plan.n_nodes, 2), "it stays, and is taken in");
    cr_assert(eq(int, actors[0].plan.restart_count, 0));
}

/* Node 2 of 2:3 has 40 s to wait when node 1 is lost: 10 s at most, and never beyond the time to join. */
Test(coordinator, a_node_in_quarantine_that_is_needed_waits_for_ten_seconds_at_most)
{
    static const int join_timeouts_ms[] = { 600000, 5000 };

    for (int i = 0; i < 2; i++) {
        config.join_timeout_ms = join_timeouts_ms[i];
        clock_ns = 1;
        begin(2, 3, 0, 3);
        for (int strike = 1; strike < 4; strike++)
            live_ms(bounce() * 1000 + 3000);
        cr_assert(eq(int, actors[0].plan.n_nodes, 3));
        cr_assert(eq(int, bounce(), 40));
        live_ms(3000);
        vanishes(1);
        live_ms(4000);
        cr_assert(eq(int, actors[n_actors - 1].n_formed, 0));

        live_ms(i == 0 ? 4000 : 2000);
        cr_assert(actors[n_actors - 1].n_formed == 1 && actors[0].plan.n_nodes == 2, "join timeout %d", i);
        end();
    }
}

/* A node that its user stops, and a node of a world of fixed size, is taken in as soon as it comes again. */
Test(coordinator, goodbyes_and_fixed_worlds_have_no_quarantine)
{
    config.last_call_timeout_ms = 1;
    clock_ns = 1;
    begin(1, 2, 0, 2);
    for (int i = 1; i < 5; i++) {
        asks(i, SIGTERM, REPORTER_STOP);
        live_ms(500);
        enter();
        live_ms(2000);
        cr_assert(actors[i + 1].n_formed == 1 && actors[0].plan.n_nodes == 2, "goodbye %d", i);
    }
    end();
    begin(2, 2, 9, 2);
    for (int i = 1; i < 5; i++) {
        cr_assert(eq(int, bounce(), 0));
        live_ms(500);
        cr_assert(eq(int, actors[i + 1].n_formed, 1), "loss %d", i);
    }
}

/* The queue */

/* All of it comes from within one action, when nothing is taken from the queue. */
Test(coordinator, no_number_of_failures_and_signals_fills_the_queue)
{
    begin(2, 2, 0, 2);
    actors[0].n_storm = 2 * COORDINATOR_QUEUE;
    actors[1].n_storm = 1;
    asks(0, SIGTERM, REPORTER_STOP);

    check_finished(0, 1);
}

static void fill_queue(void)
{
    begin(2, 2, 0, 0);
    for (int i = 0; i <= COORDINATOR_QUEUE; i++)
        coordinator_post(coordinator, CE_PREPARED);
}

static void end_before_the_beginning(void)
{
    begin(2, 2, 0, 0);
    coordinator_post(coordinator, CE_DOWN_OK);
    coordinator_run(coordinator);
}

Test(coordinator, a_full_queue_and_an_event_out_of_order_stop_as_a_bug)
{
    char text[300];

    cr_expect(eq(int, run_to_its_end(fill_queue, text, sizeof text), FSDP_EXIT_BUG));
    cr_expect(eq(str, text,
                 "fsdprun: bug: event prepared has no place in the queue, in state gathering; stopping\n"));
    cr_expect(eq(int, run_to_its_end(end_before_the_beginning, text, sizeof text), FSDP_EXIT_BUG));
    cr_expect(eq(str, text, "fsdprun: bug: event down_ok came out of order, in state gathering; stopping\n"));
}

/* Goodbyes */

Test(coordinator, where_too_few_would_remain_a_goodbye_stops_the_job)
{
    begin(2, 2, 3, 2);
    asks(1, SIGINT, REPORTER_STOP);
    obeys(0);
    obeys(1);

    for (int i = 0; i < 2; i++)
        check_finished(i, 128 + SIGINT);
}

Test(coordinator, a_spare_takes_the_place_of_who_says_goodbye)
{
    begin(2, 2, 0, 3);
    cr_assert(eq(int, actors[2].n_formed, 0));
    asks(1, SIGTERM, REPORTER_STOP);
    obeys(0);
    obeys(1);

    cr_assert(actors[2].n_formed == 1 && actors[2].plan.node_rank == 1);
    cr_assert(actors[1].status == 128 + SIGTERM && actors[0].n_finished == 0);
}

Test(coordinator, who_leaves_on_notice_is_asked_to_save_first)
{
    begin(1, 2, 0, 2);
    asks(1, SIGUSR1, REPORTER_SAVE);
    for (int i = 0; i < 2; i++)
        cr_assert(actors[i].n_notices == 1 && actors[i].n_stops == 0);
    ends(0, DEATH_NONE, FSDP_EXIT_NOTICE, 0);
    ends(1, DEATH_NONE, FSDP_EXIT_NOTICE, 0);

    check_finished(1, FSDP_EXIT_NOTICE);
    cr_assert(actors[0].n_formed == 2 && actors[0].n_finished == 0);
}

/* Slurm signals every node of a step: the first that hears of it speaks for all. */
Test(coordinator, a_signal_for_all_ends_the_job_whichever_node_gets_it)
{
    static const enum reporter_ask how[] = { REPORTER_SAVE, REPORTER_STOP };

    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        config.signals_for_all = true;
        begin(1, 2, 0, 2);
        asks(1, SIGUSR1, how[i]);
        asks(0, SIGUSR1, how[i]);
        cr_assert(actors[0].n_notices == (how[i] == REPORTER_SAVE) && actors[0].n_formed == 1);
        for (int node = 0; node < 2; node++) {
            if (how[i] == REPORTER_SAVE)
                ends(node, DEATH_NONE, FSDP_EXIT_NOTICE, 0);
            else
                obeys(node);
        }

        for (int node = 0; node < 2; node++)
            check_finished(node, how[i] == REPORTER_SAVE ? FSDP_EXIT_NOTICE : 128 + SIGUSR1);
        end();
    }
}

/* One that came while the world was ending: as the others if the job goes on, and else not as they. */
Test(coordinator, who_comes_while_the_world_ends_has_the_jobs_status_only_after_a_part_in_it)
{
    config.last_call_timeout_ms = 50;
    for (int max_restarts = 0; max_restarts < 2; max_restarts++) {
        const struct reporter *first = &actors[0].reporter;
        struct death death = { .kind = DEATH_EXIT, .code = 41 };

        begin(1, 2, max_restarts, 1);
        wait_for(1);
        death.when_ns = agent_os_linux.now_ns(agent_os_linux.arg);
        first->exited(first->to, 0, &death, NULL);
        enter();
        cr_assert(eq(int, (int)welcome_of(1).wait, PROTO_WAIT_ENDING));
        first->stopped(first->to, 0);
        if (max_restarts == 1) {
            wait_for(2);
            cr_assert(eq(int, actors[1].n_formed, 1));
            ends(0, DEATH_EXIT, 41, 0);
            obeys(1);
        }

        check_finished(0, 41);
        check_finished(1, max_restarts == 1 ? 41 : FSDP_EXIT_PEER);
        end();
    }
}

/* What was sent in an older generation means nothing now. */
Test(coordinator, reports_of_an_older_generation_are_dropped)
{
    begin(1, 2, 0, 2);
    vanishes(1);
    obeys(0);
    check_plan(0, 1, 1, 0, 0);
    actors[0].plan.generation = 0;
    ends(0, DEATH_EXIT, 9, 0);

    cr_assert(actors[0].n_finished == 0 && actors[0].n_stops == 0);
    actors[0].plan.generation = 1;
    ends_well(0);
    check_finished(0, 0);
}

/* The timeline of a restart */

static char timelines[2][512];
static int n_timelines;

static void keep_timeline(void *arg, const char *event)
{
    (void)arg;
    if (strstr(event, "\"timeline\"") != NULL && n_timelines < 2)
        snprintf(timelines[n_timelines++], sizeof timelines[0], "%s", strchr(event, ','));
}

/*
 * A member's spawn comes as text, the host's as fields. A generation that fails before its last one is
 * told.
 */
Test(coordinator, a_restart_writes_its_timeline_whole_or_when_the_next_begins)
{
    struct events *events;

    begin(2, 2, 2, 2);
    cr_assert(eq(int, events_open(&events, -1, "events", NULL), FSDP_OK));
    events_watch(events, keep_timeline, NULL);
    coordinator->services.events = events;
    ends(1, DEATH_SIGNAL, SIGSEGV, 0);
    obeys(0);
    actors[0].reporter.record(actors[0].reporter.to, 1, "spawn", NULL);
    ends(0, DEATH_EXIT, 3, 0);
    obeys(1);
    cr_assert(eq(int, n_timelines, 1));
    cr_expect_not_null(strstr(timelines[0], "\"generation\": 1, \"reason\": \"signal\", \"rank\": 1,"));
    cr_expect_not_null(strstr(timelines[0], "\"spawned_ms\": null"), "%s", timelines[0]);

    actors[1].reporter.event(actors[1].reporter.to, 2, -1, "{\"event\": \"spawn\", \"rank\": 1}", 30);
    actors[1].reporter.event(actors[1].reporter.to, 2, 1, "{\"event\": \"spawn\"}", 18);
    cr_assert(eq(int, n_timelines, 1), "a worker's event, not an agent's");
    actors[0].reporter.record(actors[0].reporter.to, 2, "spawn", NULL);
    cr_assert(eq(int, n_timelines, 2));
    cr_expect_not_null(strstr(timelines[1], "\"generation\": 2, \"reason\": \"exit\", \"rank\": 0,"));
    cr_expect_null(strstr(timelines[1], "\"spawned_ms\": null"), "%s", timelines[1]);

    end();
    events_close(events);
}

static void puts_key(int i, const char *key, const char *value)
{
    actors[i].reporter.put(actors[i].reporter.to, actors[i].plan.generation, key, value, strlen(value));
}

static void wants(int i, const char *key)
{
    actors[i].reporter.want(actors[i].reporter.to, actors[i].plan.generation, key);
}

static int n_told_puts(void)
{
    int n = 0;

    for (int i = 0; i < n_actors; i++)
        n += actors[i].n_puts;
    return n;
}

Test(coordinator, a_value_goes_once_to_each_node_that_asked_for_its_key_and_to_no_other)
{
    begin(8, 8, 1, 8);
    wait_for(1);
    puts_key(3, "early", "1");
    cr_assert(eq(int, n_told_puts(), 0), "no node waits for it");
    wants(5, "late");
    wants(6, "late");
    wants(0, "early");
    cr_assert(eq(int, n_told_puts(), 1));
    cr_assert(eq(str, actors[0].put, "early=1"));

    wants(2, "late");
    puts_key(2, "late", "2");
    cr_assert(eq(int, n_told_puts(), 3), "the node that put it needs nothing");
    cr_assert(eq(str, actors[5].put, "late=2"));
    cr_assert(eq(str, actors[6].put, "late=2"));
    wants(7, "late");
    puts_key(4, "late", "3");
    cr_assert(eq(int, n_told_puts(), 4), "it was put before");
    cr_assert(eq(str, actors[7].put, "late=2"));
}

Test(coordinator, keys_and_who_asked_for_them_are_forgotten_with_their_generation)
{
    begin(2, 2, 1, 2);
    wait_for(1);
    puts_key(0, "old", "1");
    wants(0, "new");
    ends(1, DEATH_EXIT, 1, 0);
    obeys(0);
    wait_for(2);
    wants(1, "old");
    puts_key(1, "new", "2");
    cr_assert(eq(int, n_told_puts(), 0));
}
