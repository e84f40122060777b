#include "agent/members/stragglers.h"

#include <stdlib.h>

/*
 * When a rank is slow in a window. Its own time exceeds the median by more than SLOW of the median. The
 * excess is also at least WORTH of the median step, and at least WORTH_S seconds. A rank is even if its own
 * time exceeds the median by less than EVEN of it.
 */
static const double SLOW = 0.10, WORTH = 0.03, WORTH_S = 0.005, EVEN = 0.05;

/* The medians of a window. */
struct middle {
    double own_s, data_s, idle_s, step_s;
};

enum fsdp_status stragglers_begin(struct stragglers *stragglers, int n_ranks, struct fsdp_err *err)
{
    const size_t n = (size_t)n_ranks;

    stragglers_fini(stragglers);
    if (n_ranks < 2)
        return FSDP_OK;
    stragglers->ranks = calloc(n, sizeof *stragglers->ranks);
    stragglers->news = calloc(n, sizeof *stragglers->news);
    stragglers->scratch = calloc(n, sizeof *stragglers->scratch);
    if (stragglers->ranks == NULL || stragglers->news == NULL || stragglers->scratch == NULL) {
        stragglers_fini(stragglers);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the times of %d ranks", n_ranks);
    }
    stragglers->n_ranks = n_ranks;
    return FSDP_OK;
}

void stragglers_fini(struct stragglers *stragglers)
{
    free(stragglers->ranks);
    free(stragglers->news);
    free(stragglers->scratch);
    *stragglers = (struct stragglers){ 0 };
}

/* Returns the time `ns` of a window per step, as a mean. */

static double mean(const struct pace *pace, int64_t ns)
{
    return (double)ns / (double)pace->n_steps / 1e9;
}

static double own_of(const struct pace *pace)
{
    return mean(pace, pace->own_ns);
}

static double data_of(const struct pace *pace)
{
    return mean(pace, pace->data_ns);
}

static double idle_of(const struct pace *pace)
{
    return mean(pace, pace->idle_ns);
}

static double step_of(const struct pace *pace)
{
    return mean(pace, pace->total_ns);
}

/*
 * Returns a rank's own time per step, without the time in which it had no CPU although it was ready to run.
 */
static double least_of(const struct pace *pace)
{
    return mean(pace, pace->own_ns - pace->delay_ns);
}

static int compare(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

/* Returns the median of `of` over the ranks. With two ranks it is that of the faster one. */
static double median(struct stragglers *stragglers, double (*of)(const struct pace *pace))
{
    const size_t n = (size_t)stragglers->n_ranks;

    for (size_t i = 0; i < n; i++)
        stragglers->scratch[i] = of(&stragglers->ranks[i].pace);
    qsort(stragglers->scratch, n, sizeof *stragglers->scratch, compare);
    return stragglers->scratch[n == 2 ? 0 : n / 2];
}

static enum straggler_class classify(const struct pace *pace, const struct middle *middle)
{
    const double excess_s = least_of(pace) - middle->own_s;

    if (excess_s <= SLOW * middle->own_s || excess_s < WORTH * middle->step_s || excess_s < WORTH_S)
        return STRAGGLER_NONE;
    if (data_of(pace) - middle->data_s > excess_s / 2)
        return STRAGGLER_DATA;
    return idle_of(pace) - middle->idle_s > excess_s / 2 ? STRAGGLER_IDLE : STRAGGLER_COMPUTE;
}

/* Takes whether the rank was slow or even in a window. Returns whether the rank's class has changed. */
static bool step_state(struct straggler_rank *rank, enum straggler_class class, bool even)
{
    rank->n_slow = class != STRAGGLER_NONE ? rank->n_slow + 1 : 0;
    rank->n_even = even ? rank->n_even + 1 : 0;
    if (rank->class == STRAGGLER_NONE && rank->n_slow >= STRAGGLER_WINDOWS) {
        rank->class = class;
        return true;
    }
    if (rank->class != STRAGGLER_NONE && rank->n_even >= STRAGGLER_WINDOWS) {
        rank->class = STRAGGLER_NONE;
        return true;
    }
    return false;
}

static int close_window(struct stragglers *stragglers)
{
    const struct middle middle = { .own_s = median(stragglers, own_of),
                                   .data_s = median(stragglers, data_of),
                                   .idle_s = median(stragglers, idle_of),
                                   .step_s = median(stragglers, step_of) };
    int n = 0;

    for (int i = 0; i < stragglers->n_ranks; i++) {
        struct straggler_rank *rank = &stragglers->ranks[i];
        const enum straggler_class class = classify(&rank->pace, &middle);
        const double least_s = least_of(&rank->pace);
        const bool even = class == STRAGGLER_NONE && least_s < (1 + EVEN) * middle.own_s;

        if (step_state(rank, class, even))
            stragglers->news[n++] = (struct straggler_news){ .rank = i,
                                                             .class = rank->class,
                                                             .step = rank->pace.step,
                                                             .own_s = least_s,
                                                             .median_s = middle.own_s,
                                                             .step_s = middle.step_s };
        rank->pace = (struct pace){ 0 };
    }
    stragglers->n_reported = 0;
    return n;
}

int stragglers_take(struct stragglers *stragglers, const struct pace *pace,
                    const struct straggler_news **news)
{
    struct straggler_rank *rank;

    *news = stragglers->news;
    if (pace->rank < 0 || pace->rank >= stragglers->n_ranks || pace->n_steps <= 0)
        return 0;
    rank = &stragglers->ranks[pace->rank];
    stragglers->n_reported += rank->pace.n_steps == 0;
    rank->pace = *pace;
    return stragglers->n_reported == stragglers->n_ranks ? close_window(stragglers) : 0;
}

const char *straggler_class_name(enum straggler_class class)
{
    static const char *const names[] = {
        [STRAGGLER_NONE] = "none",
        [STRAGGLER_COMPUTE] = "compute",
        [STRAGGLER_DATA] = "data",
        [STRAGGLER_IDLE] = "idle",
    };

    return names[class];
}
