/*
 * When a job's own failures are counted, and which of them are the same.
 */
#include "agent/members/recurrence.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <signal.h>
#include <stdio.h>

static struct recurrence recurrence;

static const struct death crash = {
    .kind = DEATH_SIGNAL, .code = SIGSEGV, .phase = FSDP_PHASE_BACKWARD, .step = 812
};

static void forget(void)
{
    recurrence = (struct recurrence){ 0 };
}

TestSuite(recurrence, .init = forget);

static int count(struct death cause)
{
    return recurrence_count(&recurrence, &cause);
}

Test(recurrence, the_same_cause_counts_whatever_rank_and_host_it_has)
{
    struct death other = crash;

    cr_expect(eq(int, count(crash), 1));
    other.rank = 7;
    other.node_rank = 3;
    other.when_ns = 12345;
    snprintf(other.host, sizeof other.host, "elsewhere");
    cr_expect(eq(int, count(other), 2));
    cr_expect(eq(int, count(crash), 3));
}

Test(recurrence, another_step_phase_code_or_kind_begins_again)
{
    const struct death others[] = {
        { .kind = DEATH_SIGNAL, .code = SIGSEGV, .phase = FSDP_PHASE_BACKWARD, .step = 813 },
        { .kind = DEATH_SIGNAL, .code = SIGSEGV, .phase = FSDP_PHASE_FORWARD, .step = 812 },
        { .kind = DEATH_SIGNAL, .code = SIGBUS, .phase = FSDP_PHASE_BACKWARD, .step = 812 },
        { .kind = DEATH_EXIT, .code = SIGSEGV, .phase = FSDP_PHASE_BACKWARD, .step = 812 },
    };

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        forget();
        count(crash);
        count(crash);
        cr_expect(eq(int, count(others[i]), 1), "case %zu", i);
        cr_expect(eq(int, count(crash), 1), "case %zu", i);
    }
}

Test(recurrence, what_says_nothing_about_the_job_neither_counts_nor_ends_the_row)
{
    const struct death others[] = {
        { .kind = DEATH_NODE, .step = -1, .phase = -1 },
        { .kind = DEATH_SIGNAL, .code = SIGKILL, .phase = FSDP_PHASE_BACKWARD, .step = 812 },
        { .kind = DEATH_EXIT, .code = FSDP_EXIT_PEER, .phase = FSDP_PHASE_BACKWARD, .step = 812 },
        { .kind = DEATH_EXIT, .code = 1, .phase = FSDP_PHASE_DIVERGED, .step = 812 },
        { .kind = DEATH_NONE },
    };

    count(crash);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        for (int n = 0; n < 3; n++)
            cr_expect(eq(int, count(others[i]), 0), "case %zu", i);
    cr_expect(eq(int, count(crash), 2));
}

Test(recurrence, the_oom_killers_kill_counts_and_an_unknown_step_ends_the_row)
{
    struct death oom = crash, unknown = crash;

    oom.code = SIGKILL;
    oom.oom_kill = true;
    unknown.step = -1;

    cr_expect(eq(int, count(oom), 1));
    cr_expect(eq(int, count(oom), 2));
    cr_expect(eq(int, count(unknown), 0));
    cr_expect(eq(int, count(oom), 1));
}

static const char *words_of(struct death cause, const char *words)
{
    static char out[DEATH_WORDS_BYTES];

    forget();
    for (int i = 0; i < 3; i++)
        count(cause);
    recurrence_words(&recurrence, words, out, sizeof out);
    return out;
}

Test(recurrence, the_words_name_count_step_phase_and_cause)
{
    const struct death left = { .kind = DEATH_EXIT, .code = 1, .phase = FSDP_PHASE_DATA, .step = 5 },
                       hang = { .kind = DEATH_HANG, .code = 9, .phase = FSDP_PHASE_SAVE, .step = 0 };

    cr_expect(eq(str, (char *)words_of(crash, ""),
                 "failed 3 times at step 812 in backward by SIGSEGV: the job is the cause"));
    cr_expect(eq(str, (char *)words_of(left, "no such row"),
                 "failed 3 times at step 5 in data with exit code 1: the job is the cause (no such row)"));
    cr_expect(
        eq(str, (char *)words_of(hang, "no progress for 5 s"),
           "failed 3 times at step 0 in save without progress: the job is the cause (no progress for 5 s)"));
}
