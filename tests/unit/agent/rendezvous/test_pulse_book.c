/* What a leader's two threads know of its members by their pulses. A lease has 3 s here. */
#include "agent/rendezvous/pulse_book.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "agent/os/deadlines.h"

#define LEASE_NS (INT64_C(1000000) * LEASE_MS)
static const unsigned char first[SESSION_IDENTITY_BYTES] = "first", second[SESSION_IDENTITY_BYTES] = "second";
static struct pulse_book book;
static struct pulse_member one, two;
static struct pulse answer;
static int64_t now = 1000 * LEASE_NS;

static void set_up(void)
{
    pulse_book_init(&book, LEASE_MS, now);
    pulse_book_add(&book, &one, first);
}

static void tear_down(void)
{
    pulse_book_free(&book);
}

TestSuite(pulse_book, .init = set_up, .fini = tear_down, .timeout = 60);

/* A question of the first member at its time `sent_ns`, which has got the answer of `answered_ns`. */
static bool ask(int64_t sent_ns, int64_t answered_ns, bool holds)
{
    const struct pulse question = { .session = "first", .sent_ns = sent_ns, .answered_ns = answered_ns };

    return pulse_book_take(&book, &question, holds, now, &answer);
}

Test(pulse_book, an_answer_says_what_was_asked_and_the_lease_of_ranks)
{
    cr_assert(ask(7, 0, true));
    cr_assert(answer.is_answer && answer.sent_ns == 7 && answer.answered_ns == now);
    cr_assert(eq(i64, answer.lease_ms, LEASE_RANKS_MS(LEASE_MS)));
    cr_assert(one.told.came_ns == now && one.told.answered_ns == now && one.told.heard_ns == 0);
}

Test(pulse_book, a_question_counts_once_and_only_while_its_session_is_there)
{
    cr_assert(ask(7, 0, true));
    cr_assert(not(ask(7, 0, true)));
    cr_assert(not(ask(6, 0, true)));
    pulse_book_remove(&book, &one);
    cr_assert(not(ask(8, 0, true)));
    cr_assert(eq(i64, one.told.answered_ns, now), "what is known of it stays");
}

Test(pulse_book, without_a_hold_a_question_is_a_sign_of_life_and_gets_no_answer)
{
    cr_assert(not(ask(7, 5, false)));
    cr_assert(one.told.came_ns == now && one.told.heard_ns == 5 && one.told.answered_ns == 0);
}

Test(pulse_book, a_loop_that_does_not_turn_is_spoken_for_ten_leases)
{
    now += PULSE_LEASES * LEASE_NS;
    cr_assert(ask(7, now, true));
    cr_assert(pulse_book_contact_until_ns(&book, now) > now);
    now++;
    cr_assert(not(ask(8, now, true)));
    cr_assert(eq(i64, pulse_book_contact_until_ns(&book, now), 0));
    pulse_book_turned(&book, INT64_MAX, now);
    cr_assert(ask(9, now, true));
}

Test(pulse_book, the_contact_is_as_old_as_the_member_that_has_heard_least)
{
    pulse_book_add(&book, &two, second);
    cr_assert(ask(7, now - 5, true));
    cr_assert(eq(i64, pulse_book_contact_until_ns(&book, now), 0), "nothing is known of the second");
    pulse_book_heard(&two, now - 9);
    cr_assert(eq(i64, pulse_book_contact_until_ns(&book, now), now - 9 + LEASE_NS));
    cr_assert(ask(8, now - 6, true));
    cr_assert(eq(i64, one.told.heard_ns, now - 5), "an answer that was received stays received");

    pulse_book_remove(&book, &two);
    cr_assert(eq(i64, pulse_book_contact_until_ns(&book, now), now - 9 + LEASE_NS), "it may live");
    pulse_book_turned(&book, INT64_MAX, now);
    cr_assert(eq(i64, pulse_book_contact_until_ns(&book, now), now - 5 + LEASE_NS), "the loop knows better");
    pulse_book_turned(&book, 0, now);
    cr_assert(eq(i64, pulse_book_contact_until_ns(&book, now), 0));
}
