#include "agent/wire/session_agents.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

static const unsigned char agent[SESSION_IDENTITY_BYTES] = "this agent lives",
                           other[SESSION_IDENTITY_BYTES] = "and another one.",
                           first[SESSION_IDENTITY_BYTES] = "its first one...",
                           second[SESSION_IDENTITY_BYTES] = "its second one..";
static struct session_agents agents;
static struct session_hello answer;
static struct fsdp_err err;

static void tear_down(void)
{
    session_agents_free(&agents);
}

TestSuite(session_agents, .fini = tear_down);

static enum session_verdict judge(const unsigned char *who, const unsigned char *session, uint32_t connection,
                                  uint64_t received, uint64_t sent)
{
    struct session_hello hello = { .connection = connection, .received = received, .sent = sent };

    memcpy(hello.identity, session, sizeof hello.identity);
    fsdp_err_clear(&err);
    return session_agents_judge(&agents, who, &hello, &answer, &err);
}

/* A session over three connections that has ended. */
static void live_once(void)
{
    session_agents_begin(&agents, agent, first);
    session_agents_end(&agents, agent, first,
                       &(struct session_reach){ .sent = 10, .acked = 8, .received = 6, .connection = 3 });
}

Test(session_agents, who_is_not_known_begins_a_session_and_has_none_to_go_on_with)
{
    cr_expect(eq(int, judge(agent, first, 1, 0, 0), SESSION_NEW));
    cr_expect(eq(int, judge(agent, first, 2, 7, 7), SESSION_GONE));
    cr_expect(eq(int, judge(NULL, first, 2, 7, 7), SESSION_GONE));
    cr_expect(eq(int, answer.connection, 2));
}

Test(session_agents, who_was_cut_off_learns_that_its_session_is_over_and_begins_another)
{
    live_once();
    cr_expect(eq(int, judge(agent, first, 4, 9, 6), SESSION_GONE));
    cr_expect(eq(int, judge(agent, second, 1, 0, 0), SESSION_NEW));
    session_agents_begin(&agents, agent, second);
    cr_expect(eq(int, judge(agent, first, 4, 0, 0), SESSION_GONE), "it has a later one");
    session_agents_end(&agents, agent, first, &(struct session_reach){ .sent = 99 });
    session_agents_end(&agents, agent, second, &(struct session_reach){ .connection = 1 });
    cr_expect(eq(int, judge(agent, second, 2, 0, 0), SESSION_GONE));
}

static const struct back_row {
    const char *name;
    uint64_t received, sent;
} back_rows[] = { { "it has forgotten what it received", 7, 6 }, { "what it sent", 10, 5 } };

Test(session_agents, who_goes_back_is_refused_for_good)
{
    for (size_t i = 0; i < sizeof back_rows / sizeof *back_rows; i++) {
        session_agents_free(&agents);
        live_once();
        cr_expect(
            eq(int, judge(agent, first, 4, back_rows[i].received, back_rows[i].sent), SESSION_BACKWARDS),
            "%s", back_rows[i].name);
        cr_expect(eq(str, err.message, "it was restored from an earlier state, and is refused for good"));
        cr_expect(eq(int, judge(agent, second, 1, 0, 0), SESSION_BACKWARDS), "with another session too");
        cr_expect(eq(int, judge(agent, first, 5, 10, 6), SESSION_BACKWARDS), "with numbers that fit, too");
        cr_expect(eq(int, judge(other, second, 1, 0, 0), SESSION_NEW), "another agent is not concerned");
        cr_expect(eq(int, judge(NULL, second, 1, 0, 0), SESSION_NEW), "nothing is proven without a key");
    }
}

/* A connection may bring its HELLO after the session has ended. Who was restored comes again. */
Test(session_agents, an_earlier_connection_of_the_last_session_tells_nothing)
{
    live_once();
    cr_expect(eq(int, judge(agent, first, 2, 1, 1), SESSION_STALE));
    cr_expect(eq(int, judge(agent, first, 3, 1, 1), SESSION_STALE));
    cr_expect(eq(int, judge(agent, second, 1, 0, 0), SESSION_NEW));
    cr_expect(eq(int, judge(agent, first, 4, 1, 1), SESSION_BACKWARDS));
}

Test(session_agents, an_end_that_was_restored_itself_blames_no_agent)
{
    live_once();
    cr_expect(eq(int, judge(agent, first, 4, 11, 6), SESSION_BACKWARDS));
    cr_expect(eq(str, err.message, "this node was restored from an earlier state, and is refused for good"));
    cr_expect(answer.sent == 10 && answer.received == 6, "the other end sees it too");
    cr_expect(eq(int, judge(agent, second, 1, 0, 0), SESSION_NEW));
}

Test(session_agents, an_agent_that_is_refused_while_its_session_lives_does_not_begin_another)
{
    session_agents_begin(&agents, agent, first);
    session_agents_refuse(&agents, agent);
    session_agents_refuse(&agents, other); /* it is not known */
    cr_expect(eq(int, judge(agent, second, 1, 0, 0), SESSION_BACKWARDS));
    cr_expect(answer.received == 0 && answer.sent == 0, "numbers that fit");
}
