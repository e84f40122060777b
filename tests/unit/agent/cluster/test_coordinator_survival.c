/* The line of each generation that says which losses of nodes the job bears. */
#include "tests/unit/agent/cluster/stage.h"
#include "tests/unit/agent/said.h"

static bool holds(void *arg)
{
    (void)arg;
    return true;
}

static void set_up(void)
{
    make_config();
    config.quiet = false;
    clock_ns = 1000000000;
    stage_services = (struct coordinator_services){ .lead = { .term = 1, .holds = holds } };
    said_begin();
}

static void tear_down(void)
{
    said_end();
    end();
    stage_services = (struct coordinator_services){ 0 };
}

TestSuite(coordinator_survival, .init = set_up, .fini = tear_down, .timeout = 300);

static void can_lead(int i)
{
    coordinator_can_lead(coordinator, actors[i].node);
}

/* A member learns from the arbiter who leads after it has joined. */
Test(coordinator_survival, the_line_waits_until_all_members_can_take_the_lead)
{
    begin(2, 3, 3, 3);
    cr_assert(eq(int, said("generation 0: the job"), 0));
    can_lead(1);
    pass_ms(1000);
    cr_assert(eq(int, said("generation 0: the job"), 0));
    can_lead(2);
    pass_ms(1000);
    cr_assert(eq(int, said("generation 0: the job bears the loss of 1 of its 3 nodes, also of "), 1));
    pass_ms(60000);
    cr_assert(eq(int, said("generation 0: the job"), 1));
}

Test(coordinator_survival, a_member_that_cannot_take_the_lead_is_not_counted_on)
{
    begin(1, 2, 3, 2);
    pass_ms(2 * config.lease_ms);
    cr_assert(eq(int, said("generation 0: the job bears the loss of 1 of its 2 nodes, but not of "), 1));
    can_lead(1);
    can_lead(1);
    pass_ms(1000);
    cr_assert(eq(int, said("generation 0: the job bears the loss of 1 of its 2 nodes, also of "), 1));
}

/* What the members said holds for the next generation too, but a node that comes again says it again. */
Test(coordinator_survival, the_next_generation_has_its_line_at_once)
{
    begin(2, 2, 3, 2);
    can_lead(1);
    ends(1, DEATH_EXIT, 3, 0);
    obeys(0);
    cr_assert(eq(int, actors[0].n_formed, 2));
    cr_assert(eq(int, said("if one of the 2 nodes is lost, the job waits for another\n"), 1));
    vanishes(1);
    obeys(0);
    enter();
    cr_assert(eq(int, actors[0].n_formed, 3));
    pass_ms(2 * config.lease_ms);
    cr_assert(eq(
        int, said("generation 2: if one of the 2 nodes is lost, the job waits for another; the loss of"), 1));
}

Test(coordinator_survival, without_an_arbiter_nobody_is_waited_for)
{
    stage_services.lead.holds = NULL;
    begin(1, 2, 3, 2);
    cr_assert(eq(int, said("the job bears the loss of 1 of its 2 nodes, but not of "), 1));
}
