#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>

#include "launcher/cost.h"

/*
 * Daly's model, without an approximation: the time that a second of work takes. A save of w follows after
 * every tau, and failures come at random, M apart on average. The factor e^(R/M) is left out, because it does
 * not depend on tau.
 */
static double model(double tau, double w, double M)
{
    return M / tau * expm1((tau + w) / M);
}

/* The tau that is best by the model: where its derivative is 0. */
static double best(double w, double M)
{
    double low = 0, high = M;

    for (int i = 0; i < 200; i++) {
        const double tau = (low + high) / 2;

        if ((1 - tau / M) * exp((tau + w) / M) > 1)
            low = tau;
        else
            high = tau;
    }
    return low;
}

Test(cost, the_interval_is_the_best_of_dalys_model_to_one_percent)
{
    for (double M = 60; M < 1e7; M *= 3)
        for (double part = 1e-6; part <= 0.5; part *= 1.7) {
            const double w = part * M, tau = cost_interval_s(w, M);

            cr_expect(lt(dbl, fabs(tau / best(w, M) - 1), 0.01), "w %g, M %g: %g, not %g", w, M, tau,
                      best(w, M));
            cr_expect(lt(dbl, model(tau, w, M) / model(best(w, M), w, M), 1.0001), "w %g, M %g", w, M);
        }
    /* the first term alone is Young's */
    cr_expect(lt(dbl, fabs(cost_interval_s(1, 1e6) / sqrt(2e6) - 1), 0.001));
    /* where a save takes as long as two failures are apart, one save in that time is all there is */
    cr_expect(eq(dbl, cost_interval_s(1000, 100), 100.0));
}

Test(cost, advice_needs_a_save_a_failure_and_a_step)
{
    const struct cost whole = {
        .seconds = 7300, .waiting_s = 100, .save_s = 2, .step_s = 0.5, .n_failures = 2
    };
    struct cost cost = whole;

    cr_assert(cost_advise(&cost).known);
    cr_expect(eq(dbl, cost_advise(&cost).between_failures_s, 3600.0));
    /* sqrt(2 * 2 * 3600) = 120 s; Daly's next two terms add 0.67 s, and the save itself counts */
    cr_expect(eq(u64, cost_advise(&cost).every_steps, 237));
    cost.n_failures = 0;
    cr_expect(not(cost_advise(&cost).known));
    cost = whole, cost.save_s = 0;
    cr_expect(not(cost_advise(&cost).known));
    cost = whole, cost.step_s = 0;
    cr_expect(not(cost_advise(&cost).known));
    cost = whole, cost.step_s = 1e9;
    cr_expect(eq(u64, cost_advise(&cost).every_steps, 1), "one step at least");
}

Test(cost, what_is_lost_is_not_effective)
{
    const struct cost cost = { .seconds = 100, .training_s = 80, .repeated_s = 30 }, none = { 0 };

    cr_expect(eq(dbl, cost_effective(&cost), 0.5));
    cr_expect(eq(dbl, cost_effective(&none), 0.0));
}

Test(cost, two_lines_say_it_and_the_second_only_where_the_job_saves_far_too_often_or_too_rarely)
{
    const struct cost cost = { .seconds = 11564,
                               .waiting_s = 35,
                               .starting_s = 58,
                               .training_s = 10882,
                               .saving_s = 231,
                               .restarting_s = 358,
                               .repeated_s = 197,
                               .step_s = 1.8,
                               .save_s = 0.81,
                               .n_restarts = 4,
                               .n_failures = 5 };
    const struct cost even = { .seconds = 601, .starting_s = 1, .training_s = 600 };
    char words[600];

    cost_words(&cost, 100, words, sizeof words);
    cr_expect(
        eq(str, words,
           "fsdprun: 3:12:44: training 94.1 %, saving 2.0 %, restarts 3.1 % (4), starting 0.5 %, waiting "
           "0.3 %; effective 92.4 %\n"
           "fsdprun: a save takes 0.81 s, and a failure came every 38:26: checkpoint.every 34 would lose "
           "least (now 100)\n"));
    cost_words(&cost, 33, words, sizeof words);
    cr_expect_null(strstr(words, "would lose"), "%s", words);
    cost_words(&even, 50, words, sizeof words);
    cr_expect(
        eq(str, words, "fsdprun: 10:01: training 99.8 %, starting 0.2 %; effective 99.8 %; no failure\n"));
}
