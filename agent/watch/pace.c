#include "agent/watch/pace.h"

static uint64_t read64(const _Atomic uint64_t *at)
{
    return atomic_load_explicit(at, memory_order_relaxed);
}

bool pace_read(struct pace_mark *mark, const struct fsdp_progress *page)
{
    const uint64_t steps[] = { atomic_load_explicit(&page->step_spent[0].step, memory_order_acquire),
                               atomic_load_explicit(&page->step_spent[1].step, memory_order_acquire) };
    const int newest = steps[1] > steps[0];
    const struct fsdp_progress_step *from = &page->step_spent[newest];

    *mark = (struct pace_mark){ .step = steps[newest], .at_ns = read64(&from->at_ns) };
    for (int i = 0; i < FSDP_SPENT_N; i++)
        mark->spent_ns[i] = read64(&from->spent_ns[i]);
    mark->on_gpu = atomic_load_explicit(&page->gpu.named, memory_order_relaxed) != 0;
    /* keeps the order of reads: the step is read again after the times */
    atomic_thread_fence(memory_order_acquire);
    return mark->step != 0 && read64(&from->step) == mark->step;
}

/* Has no value decreased? Values decrease if the page is a new worker's, or if the worker writes nonsense. */
static bool goes_on(const struct pace_mark *begin, const struct pace_mark *now)
{
    for (int i = 0; i < FSDP_SPENT_N; i++)
        if (now->spent_ns[i] < begin->spent_ns[i])
            return false;
    return begin->step != 0 && now->step >= begin->step && now->at_ns >= begin->at_ns &&
           now->at_ns - begin->at_ns <= INT64_MAX && now->step <= INT64_MAX;
}

enum pace_step pace_look(const struct pace_window *window, const struct pace_mark *now)
{
    const struct pace_mark *begin = &window->begin;

    if (!goes_on(begin, now) || now->spent_ns[FSDP_SPENT_SAVE] != begin->spent_ns[FSDP_SPENT_SAVE])
        return PACE_BEGIN;
    if (now->step - begin->step < PACE_STEPS || now->at_ns - begin->at_ns < (uint64_t)window->at_least_ns)
        return PACE_WAIT;
    return PACE_OVER;
}

static int64_t at_most(int64_t most, uint64_t ns)
{
    return ns > (uint64_t)most ? most : (int64_t)ns;
}

bool pace_sum(struct pace *pace, const struct pace_window *window, const struct pace_mark *now,
              const struct pace_toll *toll)
{
    const struct pace_mark *begin = &window->begin;
    const uint64_t data = now->spent_ns[FSDP_SPENT_DATA] - begin->spent_ns[FSDP_SPENT_DATA],
                   wait = now->spent_ns[FSDP_SPENT_WAIT] - begin->spent_ns[FSDP_SPENT_WAIT],
                   ran = toll->run_ns - window->toll.run_ns, delay = toll->delay_ns - window->toll.delay_ns;

    pace->step = (int64_t)now->step;
    pace->n_steps = (int64_t)(now->step - begin->step);
    pace->total_ns = (int64_t)(now->at_ns - begin->at_ns);
    pace->own_ns = pace->total_ns - at_most(pace->total_ns, wait);
    pace->data_ns = at_most(pace->own_ns, data);
    if (now->on_gpu)
        pace->own_ns = pace->data_ns;
    pace->delay_ns = at_most(pace->own_ns, delay);
    pace->idle_ns = pace->own_ns - pace->data_ns;
    pace->idle_ns -= at_most(pace->idle_ns, ran);
    pace->idle_ns -= at_most(pace->idle_ns, delay);
    return window->toll.run_ns != 0 && toll->run_ns >= window->toll.run_ns &&
           toll->delay_ns >= window->toll.delay_ns;
}

struct pace_toll pace_toll_of(const struct process_toll *toll)
{
    struct pace_toll sum = { .run_ns = toll->run_ns };

    for (int i = 0; i < toll->n_threads; i++)
        sum.delay_ns += toll->threads[i].delay_ns;
    return sum;
}
