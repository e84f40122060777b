/*
 * What a rank spent, from the page that the worker fills in to the report of its agent.
 */
#include "agent/watch/pace.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "shard_runtime/comm/flight.h"

#define S INT64_C(1000000000)

static struct fsdp_progress page;
static struct pace_window window;

/* A step of the worker, which ends now. */
static void step(uint64_t number, int64_t now_s, int64_t data_s, int64_t wait_s)
{
    flight_spend(&page, FSDP_SPENT_DATA, (uint64_t)(data_s * S));
    flight_spend(&page, FSDP_SPENT_WAIT, (uint64_t)(wait_s * S));
    flight_end_step(&page, number, (uint64_t)(now_s * S));
}

static struct pace_mark mark(void)
{
    struct pace_mark now;

    cr_assert(pace_read(&now, &page));
    return now;
}

static enum pace_step look(void)
{
    const struct pace_mark now = mark();

    return pace_look(&window, &now);
}

/* Window of 30 s, which begins at the end of step 5 and second 100. */
static void begin(void)
{
    page = (struct fsdp_progress){ .magic = FSDP_PROGRESS_MAGIC };
    step(4, 90, 1, 2);
    step(5, 100, 1, 2);
    window = (struct pace_window){ 30 * S, mark(), { .run_ns = 7, .delay_ns = 8 } };
}

TestSuite(pace, .init = begin);

Test(pace, a_window_has_enough_steps_and_enough_time)
{
    step(14, 200, 0, 0);
    cr_assert(eq(int, (int)look(), PACE_WAIT), "9 steps");
    step(15, 201, 0, 0);
    cr_assert(eq(int, (int)look(), PACE_OVER));

    begin();
    step(50, 129, 0, 0);
    cr_assert(eq(int, (int)look(), PACE_WAIT), "29 s");
    step(51, 130, 0, 0);
    cr_assert(eq(int, (int)look(), PACE_OVER));
}

Test(pace, a_save_or_another_worker_begins_another_window)
{
    step(50, 129, 0, 0);
    flight_spend(&page, FSDP_SPENT_SAVE, 1);
    cr_assert(eq(int, (int)look(), PACE_WAIT), "after the last step that has ended");
    step(51, 131, 0, 0);
    cr_assert(eq(int, (int)look(), PACE_BEGIN));

    begin();
    page = (struct fsdp_progress){ 0 };
    cr_assert(not(pace_read(&(struct pace_mark){ 0 }, &page)), "no step has ended");
    step(1000, 10000, 0, 0);
    cr_assert(eq(int, (int)look(), PACE_BEGIN), "its counters begin again");
    window = (struct pace_window){ .at_least_ns = 30 * S };
    cr_assert(eq(int, (int)look(), PACE_BEGIN), "there is no window");
}

Test(pace, the_time_of_a_window_is_split)
{
    const struct pace_toll toll = { .run_ns = 7 + 12 * (uint64_t)S, .delay_ns = 8 + 3 * (uint64_t)S };
    struct pace pace = { .rank = 4 };
    struct pace_mark now;

    for (int i = 0; i < 10; i++)
        step((uint64_t)(6 + i), 104 + 4 * i, 1, 1);
    cr_assert(eq(int, (int)look(), PACE_OVER));
    now = mark();
    cr_assert(pace_sum(&pace, &window, &now, &toll));

    cr_expect(pace.rank == 4 && pace.step == 15 && pace.n_steps == 10 && pace.total_ns == 40 * S);
    cr_expect(eq(i64, pace.own_ns, 30 * S));
    cr_expect(eq(i64, pace.data_ns, 10 * S));
    cr_expect(eq(i64, pace.delay_ns, 3 * S));
    cr_expect(eq(i64, pace.idle_ns, 5 * S));
}

Test(pace, on_a_gpu_the_own_time_is_that_of_data)
{
    const struct pace_toll toll = { .run_ns = 8, .delay_ns = 8 };
    struct pace pace = { .rank = 4 };
    struct pace_mark now;

    atomic_store(&page.gpu.named, 1);
    step(15, 140, 10, 1);
    now = mark();
    cr_assert(pace_sum(&pace, &window, &now, &toll));

    cr_expect(pace.total_ns == 40 * S && pace.own_ns == 10 * S && pace.data_ns == 10 * S);
    cr_expect(eq(i64, pace.idle_ns, 0));
}

Test(pace, nothing_is_said_of_a_rank_whose_time_on_a_cpu_is_not_known)
{
    struct pace pace;
    struct pace_mark now;

    step(50, 140, 1, 1);
    now = mark();
    cr_expect(not(pace_sum(&pace, &window, &now, &(struct pace_toll){ .run_ns = 6, .delay_ns = 9 })));
    cr_expect(not(pace_sum(&pace, &window, &now, &(struct pace_toll){ .run_ns = 9, .delay_ns = 6 })));
    window.toll.run_ns = 0;
    cr_expect(not(pace_sum(&pace, &window, &now, &(struct pace_toll){ .run_ns = 9, .delay_ns = 9 })));
}

/* Whatever a worker has written there. */
Test(pace, no_part_is_below_zero_or_above_the_whole)
{
    static const uint64_t odd[] = { 0, 1, 40, (uint64_t)(40 * S), INT64_MAX, UINT64_MAX };
    const size_t n = sizeof odd / sizeof *odd;

    for (size_t i = 0; i < n * n * n; i++) {
        const struct pace_mark now = { .step = 15,
                                       .at_ns = window.begin.at_ns + 40 * (uint64_t)S,
                                       .spent_ns = { odd[i % n], odd[i / n % n] } };
        const struct pace_toll toll = { .run_ns = odd[i / n / n], .delay_ns = odd[i % n] };
        struct pace pace;

        (void)pace_sum(&pace, &window, &now, &toll);
        cr_assert(pace.own_ns >= 0 && pace.own_ns <= pace.total_ns && pace.data_ns >= 0 &&
                  pace.data_ns <= pace.own_ns && pace.delay_ns >= 0 && pace.delay_ns <= pace.own_ns &&
                  pace.idle_ns >= 0 && pace.idle_ns <= pace.own_ns);
    }
}

Test(pace, the_delays_of_all_threads_count)
{
    const struct process_toll toll = { .run_ns = 9,
                                       .n_threads = 2,
                                       .threads = { { 7, 20 }, { 8, 300 }, { 9, 1 } } };

    cr_expect(eq(u64, pace_toll_of(&toll).run_ns, 9));
    cr_expect(eq(u64, pace_toll_of(&toll).delay_ns, 320));
}
