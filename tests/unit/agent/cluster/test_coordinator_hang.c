/*
 * The search for a hang over nodes that are only played: who is asked, whose answers count, and who is told
 * of the culprit. Ranks 0 and 1 are on nodes of their own, in a world group.
 */
#include "tests/unit/agent/cluster/stage.h"

static void form(void)
{
    make_config();
    begin(2, 2, 0, 2);
    wait_for(1);
}

TestSuite(coordinator_hang, .init = form, .fini = end, .timeout = 300);

static void suspects(int i)
{
    actors[i].reporter.suspects(actors[i].reporter.to, actors[i].plan.generation);
}

/* With --hang-timeout: how long ago each node has seen a strong sign. */
static int shown_s[2];

/* Node i answers that `rank` has begun so many collectives, is inside the last of them, and for how long. */
static void answers(int i, int rank, uint64_t begun, bool inside, int silent_s)
{
    struct hang_rank row = { .rank = rank,
                             .answered = true,
                             .live = true,
                             .silent_ns = silent_s * INT64_C(1000000000),
                             .bound_ns = 10 * INT64_C(1000000000),
                             .shown_ns = shown_s[i] * INT64_C(1000000000),
                             .pass = FSDP_PHASE_FORWARD,
                             .group = inside ? 0 : -1,
                             .sequence = begun,
                             .kind = "all_gather",
                             .peer = -1,
                             .n_groups = 1,
                             .groups = { { "world", 0, 1, 2, begun, begun - inside } } };

    actors[i].reporter.rank(actors[i].reporter.to, actors[i].plan.generation, actors[i].question, &row);
}

/* Node i shows its ranks, which its report names. */
static void shows(int i, const char *ranks)
{
    char json[256];

    snprintf(json, sizeof json, "{\"ranks\": \"%s\", \"rows\": [{\"ranks\": \"%s\", \"host\": \"n%d\"}]}",
             ranks, ranks, i);
    actors[i].reporter.explained(actors[i].reporter.to, actors[i].plan.generation, json, strlen(json));
}

/* Rank 1 on node 1 is the culprit. */
static void judged(void)
{
    suspects(0);
    answers(0, 0, 7, true, 11);
    answers(1, 1, 6, false, 12);
}

static void wait_for_question(int i, uint64_t after)
{
    while (actors[i].question <= after)
        uv_run(&loop, UV_RUN_ONCE);
}

Test(coordinator_hang, the_node_of_the_rank_that_has_not_come_is_told_and_no_other)
{
    suspects(0);
    suspects(1);
    cr_assert(actors[0].question == 1 && actors[1].question == 1, "both are asked once");
    answers(0, 0, 7, true, 11);
    cr_assert(eq(int, actors[1].n_hung, 0), "not before all have answered");
    answers(1, 1, 6, false, 12);
    cr_assert(actors[0].n_shows == 1 && actors[1].n_shows == 0);
    shows(0, "0");

    cr_assert(actors[0].n_hung == 0 && actors[1].n_hung == 1);
    cr_assert(eq(int, actors[1].hung.rank, 1));
    cr_expect(
        eq(str, actors[1].hung.words, "no progress for 10 s; 1 rank waits for it in all_gather #7 of world"));
}

Test(coordinator_hang, a_rank_that_waits_is_asked_for_again_while_the_other_goes_on)
{
    suspects(0);
    answers(0, 0, 7, true, 11);
    answers(1, 1, 6, false, 1);
    wait_for_question(0, 1);
    answers(0, 0, 7, true, 12);
    answers(1, 1, 6, false, 2);
    cr_assert(actors[0].n_hung == 0 && actors[1].n_hung == 0);

    wait_for_question(0, 2);
    answers(0, 0, 8, true, 1); /* it came */
    answers(1, 1, 8, true, 1);
    suspects(0);
    cr_expect(eq(int, (int)actors[0].question, 4), "the search was over, and begins again");
}

/* Rank 0 evaluates, and prints, for long: it does not enter the collective in which rank 1 waits. */
Test(coordinator_hang, while_a_watched_program_prints_on_one_node_no_rank_of_another_is_named)
{
    coordinator->place.is_open = false; /* it was opened a moment ago, which is a sign of life */
    shown_s[0] = 1;
    shown_s[1] = 12;
    suspects(1);
    answers(0, 0, 6, false, 1);
    answers(1, 1, 7, true, 12);
    suspects(1);
    answers(0, 0, 6, false, 11);
    answers(1, 1, 7, true, 12);
    cr_assert(actors[0].n_hung == 0 && actors[1].n_hung == 0);

    shown_s[0] = shown_s[1] = 12;
    suspects(1);
    answers(0, 0, 6, false, 11);
    answers(1, 1, 7, true, 12);
    shows(1, "1");
    cr_expect(eq(int, actors[0].n_hung, 1));
}

/* The loop's clock stands while the loop works, and is then behind the one by which its timer is set. */
Test(coordinator_hang, a_loop_whose_clock_is_behind_asks_again_and_goes_on, .timeout = 60)
{
    clock_ns = agent_os_linux.now_ns(agent_os_linux.arg) + 5 * INT64_C(1000000000);
    suspects(0);
    answers(0, 0, 7, true, 11);
    answers(1, 1, 6, false, 1);
    clock_ns += 5 * INT64_C(1000000000);
    wait_for_question(0, 1);
    cr_expect(eq(int, (int)actors[1].question, 2));
}

/* With --hang-timeout too, where no verdict comes before each rank has shown something. */
Test(coordinator_hang, a_node_whose_ranks_have_ended_is_not_waited_for)
{
    coordinator->place.is_open = false;
    shown_s[0] = 12;
    ends_well(1);
    suspects(0);
    answers(0, 0, 7, false, 11);
    cr_expect(eq(int, actors[0].n_hung, 1));
}

/* Node 0 names a rank of node 1, and node 1 says nothing. */
Test(coordinator_hang, a_node_answers_for_its_own_ranks_and_a_silent_node_is_waited_for)
{
    suspects(0);
    answers(0, 0, 7, true, 11);
    answers(0, 1, 6, false, 12);
    answers(0, 1000, 6, false, 12);
    answers(0, -1, 6, false, 12);
    wait_for_question(1, 1); /* the deadline of the first question, and a pause */

    cr_assert(actors[0].n_hung == 0 && actors[1].n_hung == 0);
    actors[1].question = 1;
    answers(1, 1, 6, false, 12); /* an answer to the first question */
    answers(0, 0, 7, true, 12);
    cr_expect(eq(int, actors[1].n_hung, 0));
}

/* What its ranks show comes before the culprit's node is told, since that one's report ends all ranks. */
Test(coordinator_hang, the_ranks_of_all_nodes_are_in_the_table)
{
    judged();
    cr_assert(eq(int, actors[1].n_hung, 0));
    shows(0, "0");
    shows(0, "7"); /* a second report does not count */
    cr_assert(eq(int, actors[1].n_hung, 1));
    cr_assert_null(coordinator->hang);
    shows(1, "1");

    cr_assert_not_null(coordinator->hang);
    cr_expect_str_eq(
        coordinator->hang,
        "{\"ranks\":\"1\",\"waiting\":0,\"omitted_rows\":0,\"missing_nodes\":0,\"rows\":[{\"ranks\":"
        "\"1\",\"host\":\"n1\"},{\"ranks\":\"0\",\"host\":\"n0\"}]}");
}

static bool is_told(void)
{
    return actors[1].n_hung == 1;
}

/* By the fake clock: the loop's own runs on meanwhile. */
Test(coordinator_hang, a_node_that_shows_nothing_delays_the_report_by_half_a_second)
{
    clock_ns = agent_os_linux.now_ns(agent_os_linux.arg);
    judged();
    clock_ns += (HANG_SHOW_MS - 1) * INT64_C(1000000);
    coordinator_hang_look(coordinator);
    cr_assert(not(is_told()));
    clock_ns += 1000000;
    coordinator_hang_look(coordinator);
    cr_assert(is_told());
    shows(1, "1");

    cr_assert_not_null(strstr(coordinator->hang, "\"missing_nodes\":1"), "%s", coordinator->hang);
    shows(0, "0");
    cr_expect_null(strstr(coordinator->hang, "n0"), "it is too late");
}

Test(coordinator_hang, a_late_node_is_in_the_table_if_the_report_is_later)
{
    clock_ns = agent_os_linux.now_ns(agent_os_linux.arg);
    judged();
    clock_ns += HANG_SHOW_MS * INT64_C(1000000);
    coordinator_hang_look(coordinator);
    shows(0, "0");
    shows(1, "1");

    cr_expect(eq(int, actors[1].n_hung, 1));
    cr_expect_not_null(strstr(coordinator->hang, "\"missing_nodes\":0"), "%s", coordinator->hang);
    cr_expect_not_null(strstr(coordinator->hang, "n0"), "%s", coordinator->hang);
}

/* A rank that fails meanwhile ends the generation, and nothing is left of the table in the next one. */
Test(coordinator_hang, a_report_without_a_culprit_is_dropped)
{
    shows(1, "1");
    cr_expect_null(coordinator->hang);
    judged();
    actors[0].n_shows = 0;
    shows(1, "1"); /* it was asked for nothing yet, but it is the culprit's node */
    cr_expect_not_null(coordinator->hang);
}
