#include <criterion/criterion.h>
#include <string.h>

#include "agent/daemon/queue.h"

enum { N_JOBS = 6 };

static struct queue queue;
static struct queue_job jobs[N_JOBS];

static struct queue_gpus gpus(int first, int n)
{
    struct queue_gpus set = { 0 };

    for (int i = first; i < first + n; i++)
        queue_gpus_put(&set, i);
    return set;
}

static void arrive(int i)
{
    queue_arrive(&queue, &jobs[i], 100 + i);
}

/* Job `i` needs `n` of the GPUs from `first` on, of which there are `of`. */
static bool need(int i, int n, int first, int of)
{
    const struct queue_gpus usable = gpus(first, of);
    const char name[] = { (char)('a' + i), '\0' };

    return queue_need(&queue, &jobs[i], n, &usable, name);
}

static void arrive_with(int i, int n)
{
    arrive(i);
    cr_assert(need(i, n, 0, 4));
}

/* The jobs that start now, as letters. */
static const char *started(void)
{
    static char letters[N_JOBS + 1];
    struct queue_job *job;
    int n = 0;

    while ((job = queue_next(&queue)) != NULL)
        letters[n++] = (char)('a' + (job - jobs));
    letters[n] = '\0';
    return letters;
}

static const char *words(int i)
{
    static char out[QUEUE_WORDS_BYTES];

    queue_words(&queue, &jobs[i], out);
    return out;
}

Test(queue, jobs_start_while_there_are_gpus_each_with_its_own)
{
    for (int i = 0; i < 3; i++)
        arrive_with(i, i < 2 ? 2 : 1);

    cr_assert_str_eq(started(), "ab");

    cr_assert(memcmp(&jobs[0].held, &(struct queue_gpus){ { 3 } }, sizeof jobs[0].held) == 0);
    cr_assert(memcmp(&jobs[1].held, &(struct queue_gpus){ { 12 } }, sizeof jobs[1].held) == 0);
}

Test(queue, a_large_job_is_not_passed_by_small_ones)
{
    arrive_with(0, 3);
    arrive_with(1, 4);
    arrive_with(2, 1);
    cr_assert_str_eq(started(), "a");

    queue_leave(&queue, &jobs[0]);
    cr_assert_str_eq(started(), "b");

    queue_leave(&queue, &jobs[1]);
    cr_assert_str_eq(started(), "c");
}

Test(queue, a_job_that_left_keeps_nothing_from_others)
{
    arrive_with(0, 4);
    arrive_with(1, 4);
    arrive_with(2, 1);
    cr_assert_str_eq(started(), "a");

    queue_leave(&queue, &jobs[1]);
    queue_leave(&queue, &jobs[0]);

    cr_assert_str_eq(started(), "c");
}

Test(queue, jobs_that_use_other_gpus_do_not_wait_for_each_other)
{
    arrive(0), arrive(1), arrive(2);
    need(0, 1, 0, 1);
    need(1, 1, 0, 1);
    need(2, 1, 3, 1);

    cr_assert_str_eq(started(), "ac");
}

Test(queue, the_place_is_that_of_the_arrival_not_of_the_word)
{
    arrive(0), arrive(1);
    need(1, 4, 0, 4);
    cr_assert_str_eq(started(), "", "the first may need them");

    need(0, 4, 0, 4);

    cr_assert_str_eq(started(), "a");
}

Test(queue, a_job_that_is_late_loses_its_place)
{
    arrive(0), arrive(1);
    need(1, 4, 0, 4);

    queue_late(&queue, &jobs[0]);
    cr_assert_str_eq(started(), "b");

    need(0, 1, 0, 4);
    queue_late(&queue, &jobs[0]); /* it has spoken: nothing changes */
    cr_assert_eq(jobs[0].state, QUEUE_WAITS);
    queue_leave(&queue, &jobs[1]);
    cr_assert_str_eq(started(), "a");
}

Test(queue, a_job_that_needs_nothing_is_out_of_it)
{
    arrive(0), arrive(1);
    need(1, 1, 0, 4);

    cr_assert(need(0, 0, 0, 0));

    cr_assert_eq(jobs[0].state, QUEUE_OUT);
    cr_assert_str_eq(started(), "b");
}

Test(queue, what_can_never_be_is_refused)
{
    arrive(0);
    cr_assert_not(need(0, 5, 0, 4));
    cr_assert_not(need(0, -1, 0, 4));
    cr_assert_eq(jobs[0].state, QUEUE_ARRIVED);
    cr_assert(need(0, 4, 0, 4));
    cr_assert_not(need(0, 4, 0, 4), "said twice");
    cr_assert_str_eq(started(), "a");
    cr_assert_not(need(0, 1, 0, 4), "it runs");
}

Test(queue, no_order_of_arrivals_and_ends_gives_a_gpu_twice_or_leaves_one_idle)
{
    enum { ROUNDS = 20000 };
    uint32_t seed = 1;

    for (int round = 0; round < ROUNDS; round++) {
        struct queue_gpus all = { 0 };
        int n_held = 0;
        const struct queue_job *first = NULL;

        seed = seed * 1664525 + 1013904223;
        if (jobs[seed >> 8 & 3].state == QUEUE_OUT)
            arrive_with((int)(seed >> 8 & 3), (int)(1 + (seed >> 16) % 4));
        else
            queue_leave(&queue, &jobs[seed >> 8 & 3]);
        started();

        for (const struct queue_job *job = queue.first; job != NULL; job = job->next) {
            n_held += queue_gpus_count(&job->held);
            for (size_t i = 0; i < sizeof all.words / sizeof *all.words; i++)
                all.words[i] |= job->held.words[i];
            if (job->state == QUEUE_WAITS && first == NULL)
                first = job;
        }
        cr_assert_eq(n_held, queue_gpus_count(&all), "round %d: a GPU is held twice", round);
        cr_assert(first == NULL || first->n_wanted > 4 - n_held, "round %d: the first could run", round);
    }
}

Test(queue, a_job_that_waits_says_for_what)
{
    arrive_with(0, 3);
    arrive_with(1, 1);
    arrive_with(2, 2);
    arrive_with(3, 1);
    arrive(4);
    started();

    cr_assert_str_eq(words(2), "waits for 2 GPUs: job a (100) holds 0-2, job b (101) holds 3");
    cr_assert_str_eq(words(3), "waits for 1 GPU: job a (100) holds 0-2, job b (101) holds 3; 1 job is ahead");
    queue_leave(&queue, &jobs[0]);
    queue_leave(&queue, &jobs[1]);
    queue_leave(&queue, &jobs[2]);
    queue_leave(&queue, &jobs[3]);
    arrive_with(0, 4);
    cr_assert_str_eq(started(), "");
    cr_assert_str_eq(words(0), "waits for 4 GPUs: 1 job is ahead");
}

Test(queue, words_of_many_jobs_stay_within_their_room)
{
    static const char name[] =
        "\x1b[2Ja name that is longer than what a line has room for, and than the field too";

    for (int i = 0; i < 4; i++) {
        const struct queue_gpus usable = gpus(0, 256);

        arrive(i);
        cr_assert(queue_need(&queue, &jobs[i], 64, &usable, name));
    }
    arrive(4);
    cr_assert(need(4, 1, 0, 256));
    started();

    cr_assert(strlen(words(4)) < QUEUE_WORDS_BYTES);
    cr_assert_not_null(strstr(words(4), ", and 1 other job"));
    cr_assert_null(strchr(words(4), '\x1b'), "a terminal is told nothing by a name");
}
