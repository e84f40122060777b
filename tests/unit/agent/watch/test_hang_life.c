#include "agent/watch/hang_life.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include <stdio.h>

#include "agent/record/first_cause.h"

static const int64_t S = 1000000000;

Test(hang_life, a_start_may_be_silent_for_a_minute)
{
    struct hang_life life = { .limit_ns = 4 * S };

    cr_expect(eq(i64, hang_life_bound(&life), 60 * S));
    life.shown = true;
    cr_expect(eq(i64, hang_life_bound(&life), 4 * S));
    life.limit_ns = 90 * S;
    life.shown = false;
    cr_expect(eq(i64, hang_life_bound(&life), 90 * S));
}

Test(hang_life, weak_signs_count_until_nine_limits_after_the_last_strong_one)
{
    const struct hang_life life = { .limit_ns = 4 * S, .shown_ns = 100 * S, .shown = true };

    cr_expect(hang_life_takes_weak(&life, 135 * S));
    cr_expect(not(hang_life_takes_weak(&life, 136 * S)));
}

Test(hang_life, processes_are_looked_at_only_in_silence_and_four_times_a_limit)
{
    const struct hang_life life = { .limit_ns = 4 * S, .shown_ns = 100 * S, .shown = true };
    struct hang_sample sample = { 0 };

    cr_expect(not(hang_life_wants_sample(&life, &sample, 100 * S + S / 2)));
    cr_expect(hang_life_wants_sample(&life, &sample, 101 * S));
    sample.taken_ns = 101 * S;
    cr_expect(not(hang_life_wants_sample(&life, &sample, 101 * S + S / 2)));
    cr_expect(hang_life_wants_sample(&life, &sample, 102 * S));
}

static bool works_after(uint64_t cpu_ns, uint64_t work)
{
    struct hang_sample sample = { 100 * S, { .cpu_ns = (uint64_t)S, .work = 1000 } };

    return hang_life_works(&sample, 101 * S, &(struct process_usage){ .cpu_ns = cpu_ns, .work = work });
}

Test(hang_life, cpu_time_is_a_sign_only_with_other_work)
{
    struct hang_sample none = { 0 };

    cr_expect(not(hang_life_works(&none, S, &(struct process_usage){ (uint64_t)S, 1000, 0 })),
              "a first look");
    cr_expect(works_after((uint64_t)(S + S / 20), 1008));
    cr_expect(not(works_after((uint64_t)(2 * S), 1007)), "it spins");
    cr_expect(not(works_after((uint64_t)(S + S / 21), 9999)),
              "it sleeps, and looks around from time to time");
    cr_expect(works_after((uint64_t)S, 1), "a descendant has ended");
}

/* The judge. The bound is 4 s. */

static struct hang_rank rows[3];
static struct hang_verdict verdict;

static void silent_for(int64_t first, int64_t second, int64_t third)
{
    const int64_t silences[] = { first, second, third };

    for (int r = 0; r < 3; r++)
        rows[r] = (struct hang_rank){ .rank = r,
                                      .answered = true,
                                      .live = true,
                                      .program = true,
                                      .state = 'S',
                                      .silent_ns = silences[r] * S,
                                      .bound_ns = 4 * S,
                                      .shown_ns = 9 * S,
                                      .pass = PROGRAM_RUNNING,
                                      .group = -1 };
}

static int culprit(int64_t store_s)
{
    hang_life_judge(&verdict, rows, 3, store_s * S);
    return verdict.kind == HANG_STUCK ? verdict.ranks[0] : -1;
}

Test(hang_life, the_rank_that_is_silent_for_longest_is_named)
{
    silent_for(5, 7, 6);
    cr_expect(eq(int, culprit(100), 1));
    silent_for(5, 5, 5);
    cr_expect(eq(int, culprit(100), 0));
    silent_for(1, 2, 4);
    cr_expect(eq(int, culprit(100), -1));
    cr_expect(eq(i64, verdict.again_ns, 0), "none was silent for too long");
    silent_for(7, 6, 5);
    rows[0].live = false;
    cr_expect(eq(int, culprit(100), 1), "a rank that has ended is not judged");
}

Test(hang_life, a_strong_sign_on_any_node_or_in_the_store_excuses_all_without_a_heartbeat)
{
    silent_for(5, 7, 6);
    rows[2].shown_ns = 3 * S;
    cr_expect(eq(int, culprit(100), -1));
    cr_expect(gt(i64, verdict.again_ns, 0));
    silent_for(5, 7, 6);
    cr_expect(eq(int, culprit(3), -1));
    cr_expect(gt(i64, verdict.again_ns, 0));
    rows[0].hearts = true;
    cr_expect(eq(int, culprit(3), 0));
}

Test(hang_life, what_is_known_of_a_rank_counts_more_than_how_long_it_is_silent)
{
    silent_for(5, 7, 6);
    rows[0].pass = PROGRAM_STARTING;
    cr_expect(eq(int, culprit(100), 0));
    rows[1].hearts = true;
    cr_expect(eq(int, culprit(100), 1));
    rows[0].state = 'D';
    cr_expect(eq(int, culprit(100), 0));
    rows[2].state = 'T';
    cr_expect(eq(int, culprit(100), 2));
}

Test(hang_life, while_a_node_has_not_answered_no_rank_is_named)
{
    silent_for(5, 7, 6);
    rows[2] = (struct hang_rank){ .rank = 2 };
    cr_expect(eq(int, culprit(100), -1));
    cr_expect(gt(i64, verdict.again_ns, 0));
}

static void stands_at(int rank, const char *line, bool waits)
{
    rows[rank].python = true;
    rows[rank].waits = waits;
    snprintf(rows[rank].layer, sizeof rows[rank].layer, "%s", line);
}

Test(hang_life, the_rank_that_does_not_wait_is_named_then_the_one_that_stands_where_no_other_does)
{
    silent_for(7, 5, 6);
    stands_at(0, "a.py:1 in f", true);
    stands_at(1, "a.py:2 in f", false);
    stands_at(2, "a.py:1 in f", true);
    cr_expect(eq(int, culprit(100), 1));
    stands_at(1, "a.py:2 in f", true);
    cr_expect(eq(int, culprit(100), 1), "all wait");
    stands_at(1, "a.py:1 in f", true);
    cr_expect(eq(int, culprit(100), 0), "all wait at one line");
    rows[2].state = 'T';
    cr_expect(eq(int, culprit(100), 2));
}

Test(hang_life, a_rank_that_waits_for_one_that_works_is_excused)
{
    silent_for(7, 1, 7);
    stands_at(0, "a.py:1 in f", true);
    stands_at(1, "a.py:2 in f", false);
    stands_at(2, "a.py:1 in f", true);
    cr_expect(eq(int, culprit(100), -1));
    cr_expect(gt(i64, verdict.again_ns, 0));
    rows[1].silent_ns = 5 * S;
    cr_expect(eq(int, culprit(100), 1));
}

Test(hang_life, while_it_is_open_whether_another_rank_works_none_is_named)
{
    silent_for(7, 3, 1);
    cr_expect(eq(int, culprit(100), -1));
    cr_expect(gt(i64, verdict.again_ns, 0));
    rows[0].pass = PROGRAM_STARTING;
    cr_expect(eq(int, culprit(100), -1));
    rows[1].silent_ns = 2 * S;
    cr_expect(eq(int, culprit(100), 0));
    rows[1].silent_ns = 3 * S;
    rows[0].state = 'T';
    cr_expect(eq(int, culprit(100), 0), "a stopped rank does not work");
}

Test(hang_life, nothing_is_judged_while_a_node_does_not_watch_its_ranks)
{
    silent_for(0, 7, 6);
    rows[0].program = false;
    rows[0].bound_ns = rows[0].shown_ns = 0;
    cr_expect(eq(int, culprit(100), -1));
    cr_expect(eq(i64, hang_life_shown(rows, 3, 100 * S), -1));
    rows[0].bound_ns = 10 * S; /* its node watches its page alone */
    cr_expect(ge(i64, hang_life_shown(rows, 3, 100 * S), 1));
    rows[0].live = false; /* it has ended */
    cr_expect(eq(int, culprit(100), 1));
}

/* The rank has a progress page, by which it is inside a collective (`inside`) or computes. */
static void shows_steps(int rank, bool inside)
{
    rows[rank].program = false;
    rows[rank].step = 5;
    rows[rank].pass = FSDP_PHASE_FORWARD;
    rows[rank].group = inside ? 0 : -1;
}

Test(hang_life, a_rank_that_shows_steps_is_judged_beside_those_that_show_none)
{
    silent_for(7, 6, 7);
    shows_steps(1, false);
    stands_at(0, "a.py:1 in f", true);
    stands_at(2, "a.py:1 in f", true);
    cr_expect(eq(int, culprit(100), 1), "the others wait");
    rows[1].silent_ns = S;
    cr_expect(eq(int, culprit(100), -1), "it works, and they wait for it");
    cr_expect(gt(i64, verdict.again_ns, 0));

    silent_for(5, 7, 7);
    shows_steps(1, true);
    shows_steps(2, true);
    cr_expect(eq(int, culprit(100), 0), "they wait for the one that has no steps");
    rows[2].still = true;
    cr_expect(eq(int, culprit(100), 2), "something holds it inside");
    rows[2].queued = rows[2].still = false;
    rows[1].state = 'T';
    cr_expect(eq(int, culprit(100), 1));
}

Test(hang_life, a_strong_sign_shortens_the_silence_of_all_without_a_heartbeat)
{
    silent_for(5, 7, 6);
    rows[1].hearts = true;
    hang_life_share(rows, 3, 6 * S - 1);
    cr_expect(eq(i64, rows[0].silent_ns, 5 * S));
    cr_expect(eq(i64, rows[1].silent_ns, 7 * S));
    cr_expect(eq(i64, rows[2].silent_ns, 6 * S - 1));
}

Test(hang_life, a_node_that_sees_nothing_asks_what_others_see)
{
    const struct hang_life life = { .limit_ns = 4 * S, .shown_ns = 100 * S, .shown = true };

    cr_expect_not(hang_life_wants_news(&life, 111 * S, 0));
    cr_expect(hang_life_wants_news(&life, 113 * S, 0));
    cr_expect_not(hang_life_wants_news(&life, 113 * S, 110 * S));
    cr_expect_not(hang_life_wants_news(&(struct hang_life){ 0 }, 1000 * S, 0));
}
