/* The second thread alone: its order, its failures, its begin and end. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdbool.h>

#include "shard_runtime/core/overlap.h"

enum { N_TASKS = 1000, CAPACITY = 16 };

struct log_of {
    int entries[N_TASKS];
    int n, fails_at;
    pthread_t thread;
};

static enum fsdp_status note(void *user, int entry, struct fsdp_err *err)
{
    struct log_of *log = user;

    log->thread = pthread_self();
    log->entries[log->n++] = entry;
    return entry == log->fails_at ? fsdp_fail(err, FSDP_ERR_PEER, "entry %d", entry) : FSDP_OK;
}

Test(overlap, entries_run_in_order_on_one_other_thread, .timeout = 600)
{
    struct log_of log = { .fails_at = -1 };
    struct overlap *overlap;

    cr_assert(overlap_create(&overlap, CAPACITY, NULL, NULL) == FSDP_OK);
    for (int i = 0; i < N_TASKS; i++) {
        overlap_give(overlap, note, &log, i);
        if (i % CAPACITY == CAPACITY - 1) {
            cr_assert(overlap_wait(overlap, i, NULL) == FSDP_OK);
            cr_assert_eq(log.n, i + 1, "what was given before is done before");
        }
    }
    cr_assert(overlap_finish(overlap, NULL) == FSDP_OK);
    cr_assert_eq(log.n, N_TASKS);
    for (int i = 0; i < N_TASKS; i++)
        cr_assert_eq(log.entries[i], i);
    cr_assert(!pthread_equal(log.thread, pthread_self()));
    overlap_destroy(overlap);
}

Test(overlap, after_a_failure_nothing_runs_until_it_was_told, .timeout = 600)
{
    struct log_of log = { .fails_at = 2 };
    struct fsdp_err err = { 0 };
    struct overlap *overlap;

    cr_assert(overlap_create(&overlap, CAPACITY, NULL, NULL) == FSDP_OK);
    for (int i = 0; i < 6; i++)
        overlap_give(overlap, note, &log, i);
    cr_assert(overlap_wait(overlap, 5, &err) == FSDP_ERR_PEER);
    cr_assert_str_eq(err.message, "entry 2");
    cr_assert(overlap_finish(overlap, NULL) == FSDP_ERR_PEER);
    cr_assert_eq(log.n, 3);
    overlap_give(overlap, note, &log, 7);
    cr_assert(overlap_finish(overlap, NULL) == FSDP_OK, "the failure is forgotten once it was told");
    cr_assert(log.n == 4 && log.entries[3] == 7);
    overlap_destroy(overlap);
}

Test(overlap, one_that_was_never_used_ends, .timeout = 600)
{
    struct overlap *overlap;

    cr_assert(overlap_create(&overlap, CAPACITY, NULL, NULL) == FSDP_OK);
    cr_assert(overlap_finish(overlap, NULL) == FSDP_OK);
    overlap_destroy(overlap);
    overlap_destroy(NULL);
}

static _Thread_local bool has_begun;

static void begin(void)
{
    has_begun = true;
}

static enum fsdp_status look(void *user, int entry, struct fsdp_err *err)
{
    (void)entry, (void)err;
    *(bool *)user = has_begun;
    return FSDP_OK;
}

Test(overlap, the_thread_begins_with_what_it_was_handed, .timeout = 600)
{
    struct overlap *overlap;
    bool seen = false;

    cr_assert(overlap_create(&overlap, CAPACITY, begin, NULL) == FSDP_OK);
    overlap_give(overlap, look, &seen, 0);
    cr_assert(overlap_finish(overlap, NULL) == FSDP_OK);
    cr_assert(seen && !has_begun);
    overlap_destroy(overlap);
}
