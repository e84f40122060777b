#include "agent/watch/timers.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct timers timers;

static struct timer_request request;

static enum fsdp_status parse(const char *line)
{
    return timers_parse(&request, line, strlen(line), NULL);
}

static enum fsdp_status set(pid_t pid, const char *scope, int64_t expires_us)
{
    struct timer_request one = { .pid = pid, .expires_us = expires_us, .signal = SIGKILL };

    snprintf(one.scope, sizeof one.scope, "%s", scope);
    return timers_take(&timers, &one, NULL);
}

static void forget(void)
{
}

TestSuite(timers, .fini = forget);

Test(timers, a_line_of_the_client)
{
    cr_assert_eq(parse("{\"version\": 1, \"pid\": 4242, \"scope_id\": \"a \\\"b\\\"\", "
                       "\"expiration_time\": 1700000000.25, \"signal\": 9}"),
                 FSDP_OK);
    cr_expect_eq(request.pid, 4242);
    cr_expect_str_eq(request.scope, "a \"b\"");
    cr_expect_eq(request.expires_us, 1700000000250000);
    cr_expect_eq(request.signal, SIGKILL);

    cr_assert_eq(parse("{\"pid\":1,\"scope_id\":\"\",\"expiration_time\":-1,\"signal\":0,\"more\":[]}"),
                 FSDP_OK);
    cr_expect_lt(request.expires_us, 0);
    cr_assert_eq(parse("{\"pid\":1,\"scope_id\":\"x\",\"expiration_time\":0,\"signal\":-15}"), FSDP_OK);
    cr_expect_eq(request.expires_us, 0);
    cr_expect_eq(request.signal, 0, "none is sent");
}

Test(timers, what_is_no_request_is_refused_with_its_key)
{
#define SCOPE ",\"scope_id\":\"x\""
#define REST  ",\"expiration_time\":1,\"signal\":9}"
    static const char *const bad[][2] = {
        { "", NULL },
        { "{", NULL },
        { "[1]", NULL },
        { "{\"scope_id\":\"x\"" REST, "pid" },
        { "{\"pid\":0" SCOPE REST, "pid" },
        { "{\"pid\":-1" SCOPE REST, "pid" },
        { "{\"pid\":1.5" SCOPE REST, "pid" },
        { "{\"pid\":1e12" SCOPE REST, "pid" },
        { "{\"pid\":1,\"scope_id\":7" REST, "scope_id" },
        { "{\"pid\":1" SCOPE ",\"expiration_time\":\"1\",\"signal\":9}", "expiration_time" },
        { "{\"pid\":1" SCOPE ",\"expiration_time\":1e300,\"signal\":9}", "expiration_time" },
        { "{\"pid\":1" SCOPE ",\"expiration_time\":1,\"signal\":65}", "signal" },
        { "{\"pid\":1" SCOPE ",\"expiration_time\":1}", "signal" },
        { "{\"version\":2,\"pid\":1" SCOPE REST, "version" },
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct fsdp_err err = { 0 };
        char words[64] = "no JSON object";

        if (bad[i][1] != NULL)
            snprintf(words, sizeof words, "its %s is missing or unfit", bad[i][1]);
        cr_assert_eq(timers_parse(&request, bad[i][0], strlen(bad[i][0]), &err), FSDP_ERR_FORMAT, "%s",
                     bad[i][0]);
        cr_assert_str_eq(err.message, words, "%s", bad[i][0]);
    }
}

Test(timers, a_long_scope_is_cut)
{
    char line[1000];

    snprintf(line, sizeof line, "{\"pid\":1,\"scope_id\":\"%0500d\",\"expiration_time\":1,\"signal\":9}", 0);
    cr_assert_eq(parse(line), FSDP_OK);
    cr_expect_eq(strlen(request.scope), TIMERS_SCOPE_BYTES - 1);
}

Test(timers, they_expire_in_order_and_not_before)
{
    struct timer_request expired;

    cr_expect_eq(timers_next_us(&timers), -1);
    set(1, "b", 20);
    set(1, "a", 10);
    set(2, "a", 30);
    cr_expect_eq(timers_next_us(&timers), 10);
    cr_expect_not(timers_pop(&timers, 9, &expired));
    cr_assert(timers_pop(&timers, 25, &expired));
    cr_expect_str_eq(expired.scope, "a");
    cr_assert(timers_pop(&timers, 25, &expired));
    cr_expect_str_eq(expired.scope, "b");
    cr_expect_not(timers_pop(&timers, 25, &expired));
    cr_expect_eq(timers_next_us(&timers), 30);
    timers_shift(&timers, 100);
    cr_expect_eq(timers_next_us(&timers), 130, "after a stop of the clock");
}

static bool is_odd(void *arg, pid_t pid)
{
    return pid % 2 == 1;
}

Test(timers, those_of_the_dead_are_forgotten)
{
    for (int i = 0; i < 30; i++)
        set(i % 3 + 1, (char[]){ (char)('a' + i), '\0' }, i);
    timers_drop(&timers, 3);
    cr_expect_eq(timers.n, 20);
    timers_sieve(&timers, is_odd, NULL);
    cr_expect_eq(timers.n, 10);
    for (size_t i = 0; i < timers.n; i++)
        cr_expect_eq(timers.items[i].pid, 1);
    timers_drop(&timers, 1);
    cr_expect_eq(timers_next_us(&timers), -1);
}

Test(timers, no_more_than_the_limit)
{
    char scope[16];

    for (int i = 0; i < TIMERS_MAX; i++) {
        snprintf(scope, sizeof scope, "%d", i);
        cr_assert_eq(set(1, scope, i), FSDP_OK);
    }
    cr_expect_eq(set(1, "more", 5), FSDP_ERR_BUSY);
    cr_expect_eq(set(1, "7", 5), FSDP_OK, "one that is there can be set anew");
    cr_expect_eq(set(1, "7", -1), FSDP_OK);
    cr_expect_eq(set(1, "more", 5), FSDP_OK);
}

/* Against a model: a plain array of what each of 3 x 3 keys should be. */
Test(timers, a_thousand_random_steps_agree_with_a_model)
{
    int64_t model[3][3];
    unsigned seed = 1;

    for (int i = 0; i < 9; i++)
        model[i / 3][i % 3] = -1;
    for (int step = 0; step < 1000; step++) {
        const int pid = rand_r(&seed) % 3, scope = rand_r(&seed) % 3;
        const int64_t when = rand_r(&seed) % 4 == 0 ? -1 : rand_r(&seed) % 1000;
        int64_t next = -1;
        size_t n = 0;

        cr_assert_eq(set(pid + 1, (char[]){ (char)('a' + scope), '\0' }, when), FSDP_OK);
        model[pid][scope] = when;
        for (int i = 0; i < 9; i++)
            if (model[i / 3][i % 3] >= 0) {
                n++;
                if (next < 0 || model[i / 3][i % 3] < next)
                    next = model[i / 3][i % 3];
            }
        cr_assert_eq(timers.n, n, "step %d", step);
        cr_assert_eq(timers_next_us(&timers), next, "step %d", step);
    }
}

Test(timers, who_lives_on_for_a_minute_has_survived_its_timer)
{
    const int64_t minute_ns = 60 * INT64_C(1000000000);
    static const int ends[] = { 0, SIGTERM, SIGABRT, SIGKILL, SIGSEGV };

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const bool by_it = ends[i] == SIGTERM;

        cr_expect(timers_ended(SIGTERM, ends[i], 0), "at once, by %d", ends[i]);
        cr_expect(timers_ended(SIGTERM, ends[i], minute_ns - 1), "just within, by %d", ends[i]);
        cr_expect_eq(timers_ended(SIGTERM, ends[i], minute_ns), by_it, "a minute, by %d", ends[i]);
        cr_expect_eq(timers_ended(SIGTERM, ends[i], INT64_MAX), by_it, "an age, by %d", ends[i]);
    }
}
