/*
 * Restarts that count for the whole run, or for its last seconds.
 */
#include "agent/members/budget.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

static struct budget budget;

static int64_t at(double seconds)
{
    return (int64_t)(seconds * 1e9);
}

static void begin(int most, int window_s)
{
    budget_init(&budget,
                &(struct agent_config){ .max_restarts = most, .restart_window_ms = window_s * 1000 });
}

Test(budget, without_a_window_every_restart_of_the_run_counts)
{
    begin(2, 0);
    cr_expect(not(budget_spent(&budget, at(0))));
    budget_take(&budget, at(0));
    cr_expect(not(budget_spent(&budget, at(1e6))), "one is left");
    budget_take(&budget, at(1e6));
    cr_expect(budget_spent(&budget, at(1e9)));
    cr_expect(eq(int, budget.n_restarts, 2));
}

Test(budget, a_window_forgets_a_restart_after_its_seconds_and_not_before)
{
    begin(2, 60);
    budget_take(&budget, at(100));
    budget_take(&budget, at(130));

    cr_expect(budget_spent(&budget, at(159.999999999)));
    cr_expect(not(budget_spent(&budget, at(160))), "the first is 60 s old");
    cr_expect(eq(int, budget_used(&budget, at(160)), 1));
    budget_take(&budget, at(160));
    cr_expect(budget_spent(&budget, at(189)), "the second and the third");
    cr_expect(eq(int, budget_used(&budget, at(190)), 1));
    cr_expect(eq(int, budget_used(&budget, at(220)), 0));
    cr_expect(eq(int, budget.n_restarts, 3), "the count of the run goes on");
}

/* One failure in every 10 s, and as many restarts as there is room for. */
Test(budget, the_largest_window_keeps_as_many_as_it_allows)
{
    begin(AGENT_RESTARTS_IN_WINDOW, 10 * AGENT_RESTARTS_IN_WINDOW);
    for (int i = 0; i < 10 * AGENT_RESTARTS_IN_WINDOW; i++) {
        cr_assert(not(budget_spent(&budget, at(10.0 * i))), "restart %d", i);
        budget_take(&budget, at(10.0 * i));
    }
    cr_assert(budget_spent(&budget, at(100.0 * AGENT_RESTARTS_IN_WINDOW - 10)));
}

Test(budget, no_restart_at_all_is_spent_from_the_beginning)
{
    char words[BUDGET_WORDS_BYTES];

    begin(0, 60);
    cr_expect(budget_spent(&budget, at(0)));
    budget_take(&budget, at(0));
    cr_expect(eq(str, (char *)budget_words(&budget, at(0), words), "0 of 0 within 60 s"));
    begin(3, 0);
    cr_expect(eq(str, (char *)budget_words(&budget, at(0), words), "0 of 3"));
}

static uint32_t ages[2];

Test(budget, another_coordinator_goes_on_with_it)
{
    begin(3, 0);
    budget_continue(&budget, 2, 1, ages, 2, at(5));
    cr_expect(not(budget_spent(&budget, at(5))));
    budget_take(&budget, at(6));
    cr_expect(budget_spent(&budget, at(1e6)));
    cr_expect(eq(int, budget.n_restarts, 3));
}

/* Seven restarts of the whole run, of which one still counts: the place of the oldest is used again first. */
Test(budget, of_a_window_one_that_counts_and_was_just_now_does_so_from_now_on)
{
    begin(3, 60);
    budget_continue(&budget, 7, 2, ages, 2, at(100));
    cr_expect(eq(int, budget_used(&budget, at(100)), 1));
    budget_take(&budget, at(110));
    budget_take(&budget, at(120));
    cr_expect(budget_spent(&budget, at(159)));
    cr_expect(eq(int, budget_used(&budget, at(160)), 2), "the first one is 60 s old");
    cr_expect(eq(int, budget.n_restarts, 9));
}

/* Of four that count, the times of the last two are known. */
Test(budget, another_coordinator_knows_when_the_last_restarts_were)
{
    begin(5, 60);
    for (int i = 0; i < 4; i++)
        budget_take(&budget, at(100 + 10 * i));
    budget_ages(&budget, ages, 2, at(140.5));
    cr_expect(ages[0] == 10 && ages[1] == 20, "%u, %u", ages[0], ages[1]);
    begin(5, 60); /* on a host that has run for longer */
    budget_continue(&budget, 9, 1, ages, 2, at(1000));

    cr_expect(eq(int, budget_used(&budget, at(1000)), 4));
    cr_expect(eq(int, budget_used(&budget, at(1039.9)), 4));
    cr_expect(eq(int, budget_used(&budget, at(1040)), 1), "the others were not later than the last but one");
    cr_expect(eq(int, budget_used(&budget, at(1050)), 0));
    cr_expect(eq(int, budget.n_restarts, 9));
}

Test(budget, what_is_older_than_every_window_stays_so)
{
    begin(2, 60);
    budget_continue(&budget, 1, 2, ages, 2, at(100));
    budget_ages(&budget, ages, 2, at(100));
    cr_expect(ages[0] == UINT32_MAX && ages[1] == 0, "%u, %u", ages[0], ages[1]);
    begin(2, 0);
    budget_take(&budget, at(1));
    budget_ages(&budget, ages, 2, at(100));
    cr_expect(ages[0] == 0 && ages[1] == 0, "without a window no time counts");
}
