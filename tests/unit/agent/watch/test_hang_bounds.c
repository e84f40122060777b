#include "agent/watch/hang_bounds.h"

#include <criterion/criterion.h>

static const int64_t S = 1000000000;
static struct hang_bounds bounds;

static void begin(void)
{
    bounds = (struct hang_bounds){ 0 };
    hang_bounds_begin(&bounds, 600 * S, 8, false);
}

TestSuite(hang_bounds, .init = begin);

static int64_t bound(enum hang_class class)
{
    return hang_bounds_of(&bounds, class) / S;
}

Test(hang_bounds, before_twenty_steps_the_limit_holds_and_then_five_times_the_slowest_from_ten_seconds_on)
{
    hang_bounds_saw(&bounds, HANG_FORWARD, 1 * S);
    hang_bounds_saw(&bounds, HANG_BACKWARD, 7 * S);
    hang_bounds_saw(&bounds, HANG_BACKWARD, 3 * S);
    hang_bounds_steps(&bounds, 19);
    cr_assert_eq(bound(HANG_FORWARD), 600);

    hang_bounds_steps(&bounds, 1);
    cr_assert_eq(bound(HANG_FORWARD), 10);
    cr_assert_eq(bound(HANG_BACKWARD), 35);
    cr_assert_eq(bound(HANG_SAVE), 600);
    cr_assert_eq(bound(HANG_OTHER), 600);
}

Test(hang_bounds, no_bound_is_above_the_limit_and_without_a_limit_there_is_none)
{
    hang_bounds_steps(&bounds, 20);
    hang_bounds_saw(&bounds, HANG_DATA, 500 * S);
    cr_assert_eq(bound(HANG_DATA), 600);
    bounds.limit_ns = 3 * S;
    cr_assert_eq(bound(HANG_FORWARD), 3);
    bounds.limit_ns = 0;
    cr_assert_eq(hang_bounds_of(&bounds, HANG_FORWARD), 0);
}

Test(hang_bounds, a_hiccup_is_forgotten_after_two_windows)
{
    hang_bounds_saw(&bounds, HANG_DATA, 60 * S);
    hang_bounds_steps(&bounds, 499);
    cr_assert_eq(bound(HANG_DATA), 300);
    hang_bounds_steps(&bounds, 500);
    cr_assert_eq(bound(HANG_DATA), 300);
    hang_bounds_steps(&bounds, 500);
    cr_assert_eq(bound(HANG_DATA), 10);
}

Test(hang_bounds, saves_are_learned_after_three_and_keep_thirty_seconds)
{
    hang_bounds_saw(&bounds, HANG_SAVE, 1 * S);
    hang_bounds_saved(&bounds);
    hang_bounds_saved(&bounds);
    cr_assert_eq(bound(HANG_SAVE), 600);
    hang_bounds_saved(&bounds);
    cr_assert_eq(bound(HANG_SAVE), 30);
}

Test(hang_bounds, a_start_is_learned_from_a_generation_that_stepped_and_a_load_from_one_that_loaded)
{
    hang_bounds_begin(&bounds, 600 * S, 8, true);
    cr_assert_eq(bound(HANG_START), 600, "that one ended before its first step");
    hang_bounds_saw(&bounds, HANG_OPEN, 8 * S);
    hang_bounds_saw(&bounds, HANG_FIRST, 1 * S);
    hang_bounds_steps(&bounds, 1);
    cr_assert_eq(bound(HANG_OPEN), 600, "not in the same generation");

    hang_bounds_begin(&bounds, 600 * S, 8, false);
    cr_assert_eq(bound(HANG_START), 30);
    cr_assert_eq(bound(HANG_OPEN), 40);
    cr_assert_eq(bound(HANG_FIRST), 30);
    cr_assert_eq(bound(HANG_LOAD), 30);
}

Test(hang_bounds, steps_of_another_world_size_are_learned_again)
{
    hang_bounds_saw(&bounds, HANG_COLLECTIVE, 4 * S);
    hang_bounds_steps(&bounds, 20);
    hang_bounds_begin(&bounds, 600 * S, 8, true);
    cr_assert_eq(bound(HANG_COLLECTIVE), 20);
    hang_bounds_begin(&bounds, 600 * S, 4, true);
    cr_assert_eq(bound(HANG_COLLECTIVE), 600);
    hang_bounds_steps(&bounds, 20);
    cr_assert_eq(bound(HANG_COLLECTIVE), 10);
}

Test(hang_bounds, a_wait_of_a_save_is_the_agents_to_end_and_is_not_learned)
{
    static const struct {
        struct hang_sign sign;
        enum hang_class class;
    } cases[] = {
        { { .begun = false }, HANG_START },
        { { true, FSDP_PHASE_OPEN, FSDP_PHASE_OPEN, false }, HANG_OPEN },
        { { true, FSDP_PHASE_WAIT, FSDP_PHASE_OPEN, false }, HANG_OPEN },
        { { true, FSDP_PHASE_COLLECTIVE, FSDP_PHASE_LOAD, false }, HANG_LOAD },
        { { true, FSDP_PHASE_FORWARD, FSDP_PHASE_FORWARD, true }, HANG_FIRST },
        { { true, FSDP_PHASE_COLLECTIVE, FSDP_PHASE_BACKWARD, true }, HANG_FIRST },
        { { true, FSDP_PHASE_COLLECTIVE, FSDP_PHASE_BACKWARD, false }, HANG_COLLECTIVE },
        { { true, FSDP_PHASE_OPTIMIZER, FSDP_PHASE_OPTIMIZER, false }, HANG_OPTIMIZER },
        { { true, FSDP_PHASE_COLLECTIVE, FSDP_PHASE_SAVE, false }, HANG_SAVE },
        { { true, FSDP_PHASE_WAIT, FSDP_PHASE_SAVE, false }, HANG_OTHER },
        { { true, FSDP_PHASE_DONE, FSDP_PHASE_DONE, false }, HANG_OTHER },
        { { true, 4711, 4711, false }, HANG_OTHER },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect_eq(hang_class_of(&cases[i].sign), cases[i].class, "case %zu", i);
}

/*
 * Ten seconds of silence with a bound of ten: what the rank could not use does not count, up to four
 * bounds.
 */
Test(hang_bounds, time_in_which_a_rank_cannot_run_is_excused_up_to_four_bounds)
{
    struct hang_patience starved = { 0 }, stuck = { 0 }, reading = { 0 };
    int64_t now = 1000 * S;

    for (int i = 0; i <= 100; i++, now += S) {
        hang_excuse(
            &starved, now,
            &(struct process_toll){ .n_threads = 1, .threads = { { 7, (uint64_t)(i * S * 9 / 10) } } });
        hang_excuse(&stuck, now, &(struct process_toll){ .n_threads = 1, .threads = { { 7, 5 } } });
        hang_excuse(&reading, now, &(struct process_toll){ .blocked = true });
        if (i != 20)
            continue;
        cr_expect_leq(hang_silence(1000 * S, now, 10 * S, 40 * S, &starved), 10 * S);
        cr_expect_leq(hang_silence(1000 * S, now, 10 * S, 40 * S, &reading), 10 * S);
        cr_expect_gt(hang_silence(1000 * S, now, 10 * S, 40 * S, &stuck), 10 * S);
    }
    cr_expect_gt(hang_silence(1000 * S, now, 10 * S, 40 * S, &starved), 10 * S);
    cr_expect_gt(hang_silence(1000 * S, now, 10 * S, 590 * S, &starved), 10 * S);
    cr_expect_gt(hang_silence(1000 * S, now, 10 * S, 40 * S, &reading), 10 * S);
}

Test(hang_bounds, a_rank_is_still_since_one_of_its_threads_ran)
{
    static const struct {
        uint64_t used_ns;
        int64_t still_s;
    } looks[] = { { 5, 0 }, { 5, 1 }, { 5, 2 }, { 6, 0 }, { 6, 1 }, { 0, 0 }, { 0, 0 }, { 7, 0 }, { 7, 1 } };
    struct hang_patience patience = { 0 };

    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        hang_excuse(&patience, (int64_t)(i + 1) * S, &(struct process_toll){ .used_ns = looks[i].used_ns });
        cr_expect_eq(patience.still_ns, looks[i].still_s * S, "look %zu", i);
    }
}

/* For how long a rank of this class may sleep in the kernel, if nothing else excuses it. */
static int64_t longest_sleep(enum hang_class class)
{
    const int64_t bound_ns = hang_bounds_of(&bounds, class), began = 1000 * S;
    struct hang_patience patience = { 0 };
    int64_t now = began;

    do {
        hang_excuse(&patience, now, &(struct process_toll){ .blocked = true });
        now += S;
    } while (hang_silence(began, now, bound_ns, hang_bounds_excuse(&bounds, class), &patience) <= bound_ns);
    return (now - began) / S - 1;
}

Test(hang_bounds, a_rank_that_reads_or_writes_files_may_sleep_in_the_kernel_until_the_limit)
{
    hang_bounds_steps(&bounds, 20);
    for (int i = 0; i < 3; i++)
        hang_bounds_saved(&bounds);
    hang_bounds_begin(&bounds, 600 * S, 8, true);
    hang_bounds_steps(&bounds, 1);
    hang_bounds_begin(&bounds, 600 * S, 8, true);

    cr_expect_eq(longest_sleep(HANG_DATA), 600);
    cr_expect_eq(longest_sleep(HANG_LOAD), 600);
    cr_expect_eq(longest_sleep(HANG_SAVE), 600);
    cr_expect_eq(longest_sleep(HANG_FORWARD), 50, "a driver");
    cr_expect_eq(longest_sleep(HANG_OPEN), 150);
    bounds.limit_ns = 30 * S;
    cr_expect_eq(longest_sleep(HANG_DATA), 50, "four bounds are more");
    cr_expect_eq(longest_sleep(HANG_LOAD), 150);
}
