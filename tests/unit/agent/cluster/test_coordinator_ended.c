/* Agents that never come back are refused by the coordinator, and by the one after it. */
#include "tests/unit/agent/cluster/stage.h"

static struct ended ended;

static bool always(void *arg)
{
    return true;
}

static void set_up(void)
{
    make_config();
    config.last_call_timeout_ms = 1;
    clock_ns = 1;
    stage_services.ended = &ended;
}

static void tear_down(void)
{
    end();
    ended_fini(&ended);
}

TestSuite(coordinator_ended, .init = set_up, .fini = tear_down, .timeout = 300);

/* The agent of that actor asks once more, and knows that generation. */
static bool is_refused(int i, int last_generation)
{
    struct proto_refused refused = { 0 };
    struct proto_join join;
    bool never;

    identity_fill(&join, &config);
    memcpy(join.identity, actors[i].identity, sizeof join.identity);
    join.last_generation = last_generation;
    never = coordinator_never_again(coordinator, &join, &refused);
    cr_assert(never == (refused.status == FSDP_EXIT_LINK));
    cr_assert(strstr(refused.words, "is refused for good") != NULL || !never, "%s", refused.words);
    return never;
}

Test(coordinator_ended, who_was_lost_may_come_again_and_who_has_left_may_not)
{
    begin(1, 3, 3, 3);
    vanishes(1);
    vanishes(2);
    coordinator_left(coordinator, actors[2].node);
    cr_assert(is_refused(2, 0) && !is_refused(1, 0));
    obeys(0);
}

Test(coordinator_ended, who_has_swept_its_node_does_not_come_again)
{
    begin(1, 3, 3, 3);
    coordinator_swept(coordinator, actors[1].node);
    cr_assert(is_refused(1, 0));
    obeys(0);
    obeys(2);
}

Test(coordinator_ended, who_knows_less_than_it_has_reported_was_restored)
{
    begin(2, 2, 3, 2);
    cr_assert_not(is_refused(1, -1), "nothing shows that it has got the generation");
    ends(0, DEATH_EXIT, 3, 0);
    obeys(1);
    check_plan(1, 1, 2, 1, 1);
    cr_assert_not(is_refused(1, 0));
    cr_assert(is_refused(1, -1));
    cr_assert(coordinator->roster.nodes[actors[1].node].present, "the one that is there stays");
    cr_assert(is_refused(1, 0), "its identity never comes back");
}

/* Its session is gone, and is known to nobody. */
Test(coordinator_ended, who_was_lost_and_knows_less_than_it_has_reported_was_restored_too)
{
    stage_services.lead.holds = always;
    begin(2, 3, 3, 2);
    pass_ms(1);
    ends(0, DEATH_EXIT, 3, 0);
    obeys(1);
    vanishes(1);
    cr_assert_not(is_refused(1, 0));
    cr_assert(is_refused(1, -1));
    stage_services.lead.holds = NULL;
}

Test(coordinator_ended, members_are_told_once_and_newcomers_of_all)
{
    begin(2, 3, 3, 3);
    coordinator_swept(coordinator, actors[2].node);
    cr_assert(eq(int, actors[1].n_ended, 0), "no message for each");
    obeys(0);
    obeys(1);
    cr_assert(actors[0].n_formed == 2 && actors[1].n_ended == 1);
    ends(0, DEATH_EXIT, 3, 0);
    obeys(1);
    cr_assert(actors[0].n_formed == 3 && actors[1].n_ended == 1 && actors[0].n_ended == 0);
    enter();
    cr_assert(eq(int, actors[3].n_ended, 1));
}

/* What a member was told is what it begins with when it leads. */
Test(coordinator_ended, the_next_coordinator_refuses_them_too)
{
    unsigned char identity[PROTO_IDENTITY_BYTES];

    begin(1, 3, 3, 3);
    coordinator_refuse(coordinator, actors[1].identity);
    memcpy(identity, actors[1].identity, sizeof identity);
    end();
    begin(1, 3, 3, 2);
    memcpy(actors[1].identity, identity, sizeof identity);
    cr_assert(is_refused(1, 5));
}
