/* Which step in memory a generation resumes from: one that every node has, in the seats that they had. */
#include "tests/unit/agent/cluster/stage.h"

TestSuite(coordinator_memory, .init = make_config, .fini = end, .timeout = 60);

static void holds_copies(int i, int64_t newest, int64_t older, uint32_t generation, int64_t copy, int of_rank)
{
    const struct restore_steps held = { .world_size = actors[i].plan.world_size,
                                        .own_first_rank = actors[i].plan.first_rank,
                                        .own = { { { newest, generation }, { older, generation } } },
                                        .copies = { { { copy, generation }, { -1, 0 } } },
                                        .copies_first_rank = of_rank };

    actors[i].reporter.held(actors[i].reporter.to, actors[i].plan.generation, &held);
}

static void holds(int i, int64_t newest, int64_t older, uint32_t generation)
{
    holds_copies(i, newest, older, generation, -1, -1);
}

/* Node 0's rank dies, and the others' are ended with it. */
static void falls(void)
{
    const int starts = n_starts;

    ends(0, DEATH_SIGNAL, SIGKILL, 0);
    for (int i = 1; i < n_actors; i++)
        obeys(i);
    while (n_starts < starts + n_actors)
        uv_run(&loop, UV_RUN_ONCE);
}

Test(coordinator_memory, the_newest_step_that_every_node_has_is_the_one_of_all)
{
    begin(3, 3, 9, 3);
    for (int i = 0; i < 3; i++)
        cr_expect(eq(i64, actors[i].plan.memory_step, -1), "the first generation has nothing");
    holds(0, 21, 20, 0);
    holds(1, 20, 19, 0);
    holds(2, 21, 20, 0);
    falls();
    for (int i = 0; i < 3; i++)
        cr_expect(eq(i64, actors[i].plan.memory_step, 20), "node %d", i);
}

Test(coordinator_memory, a_node_that_has_nothing_sends_all_to_the_disk)
{
    begin(2, 2, 9, 2);
    holds(0, 21, 20, 0);
    falls();
    cr_expect(eq(i64, actors[0].plan.memory_step, -1));
    cr_expect(eq(i64, actors[1].plan.memory_step, -1));
}

/* Node 2 of three is lost, and a spare takes its seat. */
static void is_replaced(int lost)
{
    coordinator_lost(coordinator, actors[lost].node, 3000, "no sign of life");
    for (int i = 0; i < 3; i++)
        if (i != lost)
            obeys(i);
    while (actors[3].n_formed == 0)
        uv_run(&loop, UV_RUN_ONCE);
}

Test(coordinator_memory, a_spare_fetches_from_the_node_that_holds_the_copies)
{
    begin(3, 3, 9, 4);
    holds_copies(0, 21, 20, 0, 20, 2);
    holds_copies(1, 21, 20, 0, 20, 0);
    is_replaced(2);
    cr_expect(eq(i64, actors[3].plan.memory_step, 20));
    cr_expect(eq(int, actors[3].plan.memory_from, 0));
    cr_expect(eq(int, actors[3].plan.first_rank, 2));
    for (int i = 0; i < 2; i++) {
        cr_expect(eq(i64, actors[i].plan.memory_step, 20), "node %d", i);
        cr_expect(eq(int, actors[i].plan.memory_from, -1), "node %d has it", i);
        cr_expect(actors[i].plan.memory_is_peer, "all know that it comes from a peer");
    }
}

Test(coordinator_memory, without_a_copy_of_the_lost_ranks_all_go_to_the_disk)
{
    begin(3, 3, 9, 4);
    holds_copies(0, 21, 20, 0, -1, -1);
    holds_copies(1, 21, 20, 0, 20, 0);
    is_replaced(2);
    for (int i = 0; i < 4; i++)
        cr_expect(eq(i64, actors[i].plan.memory_step, i == 2 ? actors[2].plan.memory_step : -1), "node %d",
                  i);
    cr_expect(not(actors[3].plan.memory_is_peer));
    cr_expect(eq(int, actors[3].plan.memory_from, -1));
}

Test(coordinator_memory, steps_of_two_histories_are_not_the_same_step)
{
    begin(2, 2, 9, 2);
    holds(0, 21, -1, 0);
    holds(1, 21, -1, 1);
    falls();
    cr_expect(eq(i64, actors[0].plan.memory_step, -1));
}

Test(coordinator_memory, what_was_held_counts_for_one_generation)
{
    begin(2, 2, 9, 2);
    holds(0, 21, 20, 0);
    holds(1, 21, 20, 0);
    falls();
    cr_expect(eq(i64, actors[1].plan.memory_step, 21));
    falls();
    cr_expect(eq(i64, actors[1].plan.memory_step, -1), "it was not told again");
}
