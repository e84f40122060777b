#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "agent/members/timeline.h"

enum { S = 1000000000, MS = 1000000 };

static char line[1024];

static const char *as_line(const struct timeline *timeline)
{
    struct events_field fields[TIMELINE_FIELDS];

    timeline_fields(timeline, fields);
    cr_assert(gt(sz, events_format(line, sizeof line, 0, timeline->generation, "timeline", fields), 0));
    return line;
}

/* A generation of two ranks that began its first step at `from_s`. */
static void train_from(struct timeline *timeline, int64_t resume_step, int64_t from_s)
{
    timeline_form(timeline, 2, resume_step, 0, (from_s - 1) * S);
    timeline_event(timeline, -1, "spawn", -1, from_s * S);
    timeline_event(timeline, -1, "spawn", -1, from_s * S);
    timeline_event(timeline, 0, "first_step", resume_step + 1, from_s * (int64_t)S);
}

Test(timeline, a_restart_of_a_job_has_every_moment_since_the_failure_and_what_is_repeated)
{
    const struct timeline_failure failure = { "hang", 1, 41LL * S, 41 };
    struct timeline timeline = { .job = true };
    char words[320];

    train_from(&timeline, 0, 1);
    timeline_saved(&timeline, 20LL * S); /* so 40 steps took 20 of the 40 seconds */
    timeline_detect(&timeline, 51LL * S);
    timeline_detect(&timeline, 52LL * S); /* what fails because of the failure */
    timeline_restart(&timeline, 1, &failure, 51LL * S + 500 * MS);
    timeline_form(&timeline, 2, 30, 3LL * S, 51LL * S + 501 * MS); /* that fence was of an earlier one */
    cr_expect(not(timeline_event(&timeline, -1, "spawn", -1, 51LL * S + 502 * MS)));
    cr_expect(not(timeline_event(&timeline, 0, "spawn", -1, 51LL * S + 503 * MS)), "no agent sent it");
    cr_expect(not(timeline_event(&timeline, -1, "spawn", -1, 51LL * S + 504 * MS)));
    cr_expect(not(timeline_event(&timeline, 0, "resume", 30, 52LL * S)));
    cr_expect(not(timeline_event(&timeline, 1, "first_step", 31, 52LL * S)), "another rank");
    cr_expect(timeline_event(&timeline, 0, "first_step", 31, 53LL * S));

    cr_expect(eq(str, (char *)as_line(&timeline),
                 "{\"time\": 0.000000, \"event\": \"timeline\", \"generation\": 1, \"reason\": \"hang\", "
                 "\"rank\": 1, \"detected_ms\": 10000, \"stopped_ms\": 10500, \"fenced_ms\": 10500, "
                 "\"formed_ms\": 10501, "
                 "\"spawned_ms\": 10504, \"resumed_ms\": 11000, \"first_step_ms\": 12000, "
                 "\"resume_step\": 30, \"lost_steps\": 11, \"lost_s\": 5.5}\n"));
    timeline_words(&timeline, words, sizeof words);
    cr_expect(eq(
        str, words,
        "training again after 12.00 s (10.00 detected, 0.50 stopped, 0.00 fenced, 0.00 formed, 0.00 spawned, "
        "0.50 loaded, 1.00 first step); 11 steps (5.5 s) are repeated"));
}

/* The ranks found step 30 damaged, and loaded an older one. */
Test(timeline, what_is_repeated_counts_from_the_step_that_was_loaded)
{
    const struct timeline_failure failure = { "exit", 1, 41LL * S, 41 };
    struct timeline timeline = { .job = true };

    train_from(&timeline, 0, 1);
    timeline_detect(&timeline, 41LL * S);
    timeline_restart(&timeline, 1, &failure, 41LL * S);
    timeline_form(&timeline, 0, 30, 0, 41LL * S);
    timeline_event(&timeline, 0, "resume", 20, 42LL * S);
    cr_expect(timeline_event(&timeline, 0, "first_step", 21, 43LL * S));
    cr_expect(ne(ptr, strstr(as_line(&timeline), "\"resume_step\": 20, \"lost_steps\": 21"), NULL));
}

/* The wait for the lease of a lost node is a part of its own. */
Test(timeline, a_lost_node_is_fenced_before_the_next_generation_forms)
{
    const struct timeline_failure failure = { "node", -1, 10LL * S, -1 };
    struct timeline timeline = { .job = true };
    char words[320];

    train_from(&timeline, 0, 1);
    timeline_detect(&timeline, 13LL * S);
    timeline_restart(&timeline, 1, &failure, 13LL * S + 100 * MS);
    timeline_form(&timeline, 1, 4, 14LL * S + 100 * MS, 16LL * S);
    cr_expect_not_null(
        strstr(as_line(&timeline), "\"stopped_ms\": 3100, \"fenced_ms\": 4100, \"formed_ms\": 6000,"), "%s",
        line);
    cr_assert(timeline_event(&timeline, 0, "first_step", 5, 17LL * S));
    timeline_words(&timeline, words, sizeof words);
    cr_expect_not_null(strstr(words, "(3.00 detected, 0.10 stopped, 1.00 fenced, 1.90 formed, "), "%s",
                       words);
}

Test(timeline, of_a_program_it_ends_with_the_last_worker)
{
    const struct timeline_failure failure = { "exit", 0, 3LL * S, -1 };
    struct timeline timeline = { 0 };

    timeline_form(&timeline, 2, -1, 0, 1LL * S);
    cr_expect(not(timeline_event(&timeline, -1, "spawn", -1, 1LL * S)));
    cr_expect(not(timeline_event(&timeline, -1, "spawn", -1, 1LL * S)), "no restart");
    timeline_restart(&timeline, 1, &failure, 4LL * S);
    timeline_form(&timeline, 1, -1, 0, 5LL * S);
    cr_expect(timeline_event(&timeline, -1, "spawn", -1, 6LL * S));

    cr_expect(eq(
        str, (char *)as_line(&timeline),
        "{\"time\": 0.000000, \"event\": \"timeline\", \"generation\": 1, \"reason\": \"exit\", "
        "\"rank\": 0, \"detected_ms\": 1000, \"stopped_ms\": 1000, \"fenced_ms\": 1000, \"formed_ms\": 2000, "
        "\"spawned_ms\": 3000, \"resumed_ms\": null, \"first_step_ms\": null, "
        "\"resume_step\": null, \"lost_steps\": null, \"lost_s\": null}\n"));
}

Test(timeline, a_generation_that_fails_while_it_begins_leaves_the_rest_unknown)
{
    const struct timeline_failure first = { "signal", 1, 9LL * S, 5 }, second = { "node", -1, -7, -1 };
    struct timeline timeline = { .job = true };

    train_from(&timeline, 0, 1);
    timeline_restart(&timeline, 1, &first, 10LL * S);
    cr_expect_not_null(
        strstr(as_line(&timeline), "\"fenced_ms\": null, \"formed_ms\": null, \"spawned_ms\": null"));
    cr_expect_not_null(strstr(line, "\"lost_steps\": null"), "where it will resume is not known");
    timeline_form(&timeline, 2, 4, 0, 11LL * S);
    cr_expect_not_null(strstr(as_line(&timeline), "\"formed_ms\": 2000, \"spawned_ms\": null"));
    cr_expect_not_null(strstr(line, "\"lost_steps\": 1, \"lost_s\": 2}"));

    timeline_restart(&timeline, 2, &second, 12LL * S);
    cr_expect_not_null(
        strstr(as_line(&timeline), "\"detected_ms\": 12000, \"stopped_ms\": 12000, \"fenced_ms\": null"),
        "%s", line);
}
