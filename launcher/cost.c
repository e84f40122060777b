#include "launcher/cost.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/*
 * The advice is printed if the job's interval is wrong by at least this factor. A smaller error costs little:
 * the loss is flat around its minimum.
 */
static const double WORTH_SAYING = 1.5;

double cost_effective(const struct cost *cost)
{
    const double useful_s = cost->training_s - cost->repeated_s;

    return cost->seconds > 0 && useful_s > 0 ? useful_s / cost->seconds : 0;
}

double cost_interval_s(double save_s, double between_failures_s)
{
    const double half = save_s / (2 * between_failures_s);

    if (half >= 1)
        return between_failures_s;
    return sqrt(2 * save_s * between_failures_s) * (1 + sqrt(half) / 3 + half / 9) - save_s;
}

struct cost_advice cost_advise(const struct cost *cost)
{
    const double up_s = cost->seconds - cost->waiting_s;
    struct cost_advice advice = { .known = cost->n_failures > 0 && cost->save_s > 0 && cost->step_s > 0 &&
                                           up_s > 0 };
    double steps;

    if (!advice.known)
        return advice;
    advice.between_failures_s = up_s / cost->n_failures;
    steps = round(cost_interval_s(cost->save_s, advice.between_failures_s) / cost->step_s);
    advice.every_steps = steps < 1 ? 1 : steps > 1e15 ? (uint64_t)1e15 : (uint64_t)steps;
    return advice;
}

const char *cost_clock(double seconds, char out[COST_CLOCK_BYTES])
{
    const uint64_t s = seconds < 1e15 ? (uint64_t)(seconds + 0.5) : 0;

    if (s < 3600)
        snprintf(out, COST_CLOCK_BYTES, "%" PRIu64 ":%02" PRIu64, s / 60, s % 60);
    else
        snprintf(out, COST_CLOCK_BYTES, "%" PRIu64 ":%02" PRIu64 ":%02" PRIu64, s / 3600, s / 60 % 60,
                 s % 60);
    return out;
}

/* Appends a part of the line, such as ", saving 2.0 %". Appends nothing if that part took no time. */
static size_t add_part(char *out, size_t size, const char *name, double part_s, double seconds)
{
    return part_s > 0 ? (size_t)snprintf(out, size, ", %s %.1f %%", name, 100 * part_s / seconds) : 0;
}

void cost_words(const struct cost *cost, uint64_t every, char *out, size_t size)
{
    const struct cost_advice advice = cost_advise(cost);
    const double seconds = cost->seconds > 0 ? cost->seconds : 1;
    /* advised interval divided by that of the job; 1: no advice */
    const double times = advice.known && every > 0 ? (double)advice.every_steps / (double)every : 1;
    char line[512], clock[COST_CLOCK_BYTES];
    size_t n;

    n = (size_t)snprintf(line, sizeof line, "fsdprun: %s: training %.1f %%", cost_clock(cost->seconds, clock),
                         100 * cost->training_s / seconds);
    n += add_part(line + n, sizeof line - n, "saving", cost->saving_s, seconds);
    n += add_part(line + n, sizeof line - n, "restarts", cost->restarting_s, seconds);
    if (cost->n_restarts > 0)
        n += (size_t)snprintf(line + n, sizeof line - n, " (%d)", cost->n_restarts);
    n += add_part(line + n, sizeof line - n, "starting", cost->starting_s, seconds);
    n += add_part(line + n, sizeof line - n, "waiting", cost->waiting_s, seconds);
    n += (size_t)snprintf(line + n, sizeof line - n, "; effective %.1f %%%s\n", 100 * cost_effective(cost),
                          cost->n_failures == 0 ? "; no failure" : "");
    if (times >= WORTH_SAYING || times <= 1 / WORTH_SAYING)
        snprintf(line + n, sizeof line - n,
                 "fsdprun: a save takes %.3g s, and a failure came %severy %s: checkpoint.every %" PRIu64
                 " would lose least (now %" PRIu64 ")\n",
                 cost->save_s, cost->n_failures <= 2 ? "about " : "",
                 cost_clock(advice.between_failures_s, clock), advice.every_steps, every);
    snprintf(out, size, "%s", line);
}
