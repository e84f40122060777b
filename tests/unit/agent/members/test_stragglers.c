/*
 * Who is a straggler. The laws run with times of steps that are random, as steps are: the mean of a window is
 * what the agents report.
 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>

#include "agent/members/stragglers.h"

enum { N = 64, STEPS = 10 };
#define S 1e9

/* What is added to the time of a step of one rank (-1: of none). */
struct slow {
    int rank;
    double compute_s, data_s, idle_s, delay_s;
};

static const struct slow none = { .rank = -1 };
static const struct straggler_news *news;
static uint64_t seed;

static double uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return ((double)(seed >> 11) + 0.5) / 9007199254740992.0;
}

/* Of mean 0 and deviation 1. */
static double normal(void)
{
    return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

/*
 * A window of n ranks whose steps take step_s, with white noise. On a busy machine each rank is also kept
 * from running, for up to busy_s in each step. Every rank waits for the slowest one.
 */
static int window(struct stragglers *s, int n, double step_s, double noise, double busy_s,
                  const struct slow *slow)
{
    struct pace paces[N];
    double longest_s = 0;
    int n_news = 0;

    for (int i = 0; i < n; i++) {
        const struct slow more = i == slow->rank ? *slow : none;
        const double data_s = 0.05 * step_s + more.data_s, delay_s = busy_s * uniform() + more.delay_s,
                     own_s = step_s * (0.95 + noise * normal() / sqrt(STEPS)) + data_s + more.compute_s +
                             more.idle_s + delay_s;

        paces[i] = (struct pace){ .rank = i,
                                  .step = 100,
                                  .n_steps = STEPS,
                                  .own_ns = (int64_t)(STEPS * own_s * S),
                                  .data_ns = (int64_t)(STEPS * data_s * S),
                                  .idle_ns = (int64_t)(STEPS * more.idle_s * S),
                                  .delay_ns = (int64_t)(STEPS * delay_s * S) };
        longest_s = own_s > longest_s ? own_s : longest_s;
    }
    for (int i = 0; i < n; i++) {
        cr_assert(eq(int, n_news, 0), "before all have reported");
        paces[i].total_ns = (int64_t)(STEPS * longest_s * S);
        n_news = stragglers_take(s, &paces[i], &news);
    }
    return n_news;
}

static void never(struct stragglers *s, int n_windows, int n, double step_s, double noise, double busy_s,
                  const struct slow *slow)
{
    for (int i = 0; i < n_windows; i++)
        cr_assert(eq(int, window(s, n, step_s, noise, busy_s, slow), 0), "window %d: rank %d", i,
                  news[0].rank);
}

static void begin(struct stragglers *s, int n)
{
    seed = 1;
    cr_assert(eq(int, stragglers_begin(s, n, NULL), FSDP_OK));
}

Test(stragglers, more_than_a_tenth_is_found_in_five_windows_as_what_it_is_and_told_once, .timeout = 120)
{
    static const struct {
        int n;
        struct slow slow;
        enum straggler_class class;
    } cases[] = { { N, { 17, .compute_s = 0.13 }, STRAGGLER_COMPUTE },
                  { N, { 17, .data_s = 0.13 }, STRAGGLER_DATA },
                  { N, { 17, .idle_s = 0.13 }, STRAGGLER_IDLE },
                  { N, { 0, .compute_s = 0.5, .data_s = 0.1 }, STRAGGLER_COMPUTE },
                  { 3, { 2, .data_s = 0.13 }, STRAGGLER_DATA },
                  { 2, { 1, .idle_s = 0.13 }, STRAGGLER_IDLE } };
    struct stragglers s = { 0 };

    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const struct slow *slow = &cases[c].slow;

        begin(&s, cases[c].n);
        never(&s, STRAGGLER_WINDOWS - 1, cases[c].n, 1, 0.01, 0, slow);
        cr_assert(eq(int, window(&s, cases[c].n, 1, 0.01, 0, slow), 1));
        cr_expect(eq(int, news[0].rank, slow->rank));
        cr_expect(eq(int, (int)news[0].class, (int)cases[c].class), "case %zu", c);
        cr_expect(fabs(news[0].median_s - 1) < 0.02 && news[0].own_s > 1.1 * news[0].median_s);
        never(&s, 20, cases[c].n, 1, 0.01, 0, slow);
        never(&s, STRAGGLER_WINDOWS - 1, cases[c].n, 1, 0.01, 0, &none);
        cr_assert(eq(int, window(&s, cases[c].n, 1, 0.01, 0, &none), 1), "it is over");
        cr_expect(eq(int, (int)news[0].class, STRAGGLER_NONE));
    }
    stragglers_fini(&s);
}

/* Steps of ten ranks and more differ by a tenth at random: in two hours are 240 windows, here are 20,000. */
Test(stragglers, what_is_no_straggler_is_never_told, .timeout = 600)
{
    static const struct {
        int n_windows, n;
        double step_s, noise, busy_s;
        struct slow slow;
    } cases[] = { { 20000, N, 1, 0.10, 0, { .rank = -1 } },
                  { 20000, 2, 1, 0.10, 0, { .rank = -1 } },
                  { 2000, N, 1, 0.01, 0, { 3, .compute_s = 0.07 } },
                  /* the machine is busy, and gives one rank even less time than the others */
                  { 2000, 3, 1, 0.05, 3, { 1, .delay_s = 2 } },
                  { 2000, N, 1, 0.05, 3, { 1, .delay_s = 2 } },
                  /* steps of 10 ms: 4 ms more are too little to be worth a line */
                  { 2000, N, 0.01, 0.01, 0, { 3, .compute_s = 0.004 } } };
    struct stragglers s = { 0 };

    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        begin(&s, cases[c].n);
        never(&s, cases[c].n_windows, cases[c].n, cases[c].step_s, cases[c].noise, cases[c].busy_s,
              &cases[c].slow);
    }
    stragglers_fini(&s);
}

Test(stragglers, a_straggler_is_found_on_a_busy_machine_too)
{
    static const struct slow slow = { 1, .data_s = 5 };
    struct stragglers s = { 0 };

    begin(&s, 3);
    never(&s, STRAGGLER_WINDOWS - 1, 3, 1, 0.01, 3, &slow);
    cr_assert(eq(int, window(&s, 3, 1, 0.01, 3, &slow), 1));
    cr_expect(news[0].rank == 1 && news[0].class == STRAGGLER_DATA);
    stragglers_fini(&s);
}

Test(stragglers, four_slow_windows_are_forgotten_and_one_rank_is_not_watched)
{
    static const struct slow slow = { 1, .compute_s = 1 };
    struct stragglers s = { 0 };

    begin(&s, 3);
    for (int i = 0; i < 3; i++) {
        never(&s, STRAGGLER_WINDOWS - 1, 3, 1, 0.01, 0, &slow);
        never(&s, 1, 3, 1, 0.01, 0, &none);
    }
    cr_expect(eq(int, stragglers_take(&s, &(struct pace){ .rank = 3, .n_steps = 1 }, &news), 0));
    cr_expect(eq(int, stragglers_take(&s, &(struct pace){ .rank = -1, .n_steps = 1 }, &news), 0));
    begin(&s, 1);
    cr_expect(eq(int, stragglers_take(&s, &(struct pace){ .n_steps = 1 }, &news), 0));
    stragglers_fini(&s);
}
