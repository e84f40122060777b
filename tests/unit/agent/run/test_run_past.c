/* A node takes over: it has seen a START, and finds the record of the lost leader. */
#include "agent/run/run_past.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

static struct coordinator_past seen(int generation, uint32_t n_restarts)
{
    return (struct coordinator_past){ .last_step = 40,
                                      .progress = { .generation = generation, .n_restarts = n_restarts } };
}

static struct leader_record published(int generation, uint32_t n_restarts, uint32_t n_left)
{
    return (struct leader_record){ .state = LEADER_LEADS,
                                   .progress = { .generation = generation,
                                                 .n_restarts = n_restarts,
                                                 .n_restarts_left = n_left,
                                                 .restarts_s = { 5, 60 },
                                                 .published_s = 10,
                                                 .step = 30 } };
}

Test(run_past, what_the_leader_published_stays_if_this_node_saw_nothing_newer)
{
    struct coordinator_past past = seen(2, 1);
    const struct leader_record before = published(2, 1, 3);

    run_past_merge(&past, &before, 9);

    cr_expect(eq(int, past.progress.generation, 2));
    cr_expect(eq(u32, past.progress.n_restarts, 1));
    cr_expect(eq(u32, past.progress.n_restarts_left, 3));
    cr_expect(eq(i64, past.progress.step, 30));
    cr_expect(eq(i64, past.last_step, 40));
    cr_expect(past.took_part);
    cr_expect(not(past.swept));
}

Test(run_past, times_of_restarts_age_by_the_time_since_they_were_published)
{
    struct coordinator_past past = seen(2, 1);
    struct leader_record before = published(2, 1, 3);

    before.progress.restarts_s[2] = UINT32_MAX - 3;
    run_past_merge(&past, &before, 9);

    cr_expect(eq(u32, past.progress.restarts_s[0], 15));
    cr_expect(eq(u32, past.progress.restarts_s[1], 70));
    cr_expect(eq(u32, past.progress.restarts_s[2], UINT32_MAX), "an age that does not fit");
    cr_expect(eq(u32, past.progress.published_s, 0));
}

Test(run_past, restarts_that_were_not_published_count_as_if_they_happened_now)
{
    struct coordinator_past past = seen(4, 3);
    const struct leader_record before = published(2, 1, 3);

    run_past_merge(&past, &before, 9);

    cr_expect(eq(int, past.progress.generation, 4));
    cr_expect(eq(u32, past.progress.n_restarts, 3));
    cr_expect(eq(u32, past.progress.n_restarts_left, 1));
    cr_expect(eq(u32, past.progress.restarts_s[0], 0));
    cr_expect(eq(u32, past.progress.restarts_s[1], 0));
    cr_expect(eq(u32, past.progress.restarts_s[2], 15));
    cr_expect(past.took_part);
}

Test(run_past, no_more_restarts_are_left_than_the_configuration_allows)
{
    struct coordinator_past past = seen(4, 5);
    const struct leader_record before = published(2, 1, UINT32_MAX);

    run_past_merge(&past, &before, 3);

    cr_expect(eq(u32, past.progress.n_restarts, 5));
    cr_expect(eq(u32, past.progress.n_restarts_left, 0));
}

Test(run_past, steps_of_a_node_that_was_not_in_the_newest_generation_say_nothing)
{
    struct coordinator_past past = seen(1, 0);
    const struct leader_record before = published(2, 1, 3);

    run_past_merge(&past, &before, 9);

    cr_expect(eq(int, past.progress.generation, 2));
    cr_expect(eq(i64, past.last_step, -1));
    cr_expect(not(past.took_part));
}

Test(run_past, a_swept_record_proves_nothing_about_a_generation_that_is_newer)
{
    struct coordinator_past same = seen(2, 1), newer = seen(3, 1);
    struct leader_record before = published(2, 1, 3);

    before.state = LEADER_SWEPT;
    run_past_merge(&same, &before, 9);
    run_past_merge(&newer, &before, 9);

    cr_expect(same.swept);
    cr_expect(not(newer.swept));
}
