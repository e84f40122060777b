#include "agent/record/first_cause.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <signal.h>

static struct death death(enum death_kind kind, int code, int sent_signal, int64_t when_ns)
{
    return (struct death){ .kind = kind, .code = code, .sent_signal = sent_signal, .when_ns = when_ns };
}

struct find_case {
    char name[64];
    struct death deaths[4];
    size_t n;
    int want;
};

#define EXIT(c, s, t)                                                                                        \
    {                                                                                                        \
        .kind = DEATH_EXIT, .code = (c), .sent_signal = (s), .when_ns = (t)                                  \
    }
#define SIG(c, s, t)                                                                                         \
    {                                                                                                        \
        .kind = DEATH_SIGNAL, .code = (c), .sent_signal = (s), .when_ns = (t)                                \
    }

static struct find_case cases[] = {
    { "nobody", { { 0 } }, 0, -1 },
    { "all ended well", { { .kind = DEATH_NONE }, { .kind = DEATH_NONE } }, 2, -1 },
    { "one among the well", { { .kind = DEATH_NONE }, EXIT(3, 0, 5) }, 2, 1 },
    { "the earlier of two", { EXIT(1, 0, 9), EXIT(2, 0, 5) }, 2, 1 },
    { "the one we stopped is later blamed", { EXIT(1, SIGTERM, 1), EXIT(2, 0, 5) }, 2, 1 },
    { "who blames a peer comes after who was killed", { EXIT(75, 0, 1), SIG(SIGKILL, 0, 30) }, 2, 1 },
    { "even when TERM had been sent to the killed one", { EXIT(75, 0, 1), SIG(SIGKILL, SIGTERM, 30) }, 2, 1 },
    { "a lost link is a consequence too", { EXIT(76, 0, 1), EXIT(9, 0, 30) }, 2, 1 },
    { "75 and 76 of a program blame no peer",
      { { .kind = DEATH_EXIT, .code = 75, .phase = PROGRAM_STARTING, .when_ns = 2 },
        { .kind = DEATH_EXIT, .code = 76, .phase = PROGRAM_RUNNING, .when_ns = 1 },
        SIG(SIGKILL, 0, 3) },
      3,
      1 },
    { "all blame each other: the first", { EXIT(75, 0, 7), EXIT(75, 0, 3), EXIT(75, SIGTERM, 1) }, 3, 1 },
    { "blame before being stopped", { EXIT(1, SIGTERM, 1), EXIT(75, SIGTERM, 2) }, 2, 1 },
    { "our KILL is no cause", { SIG(SIGKILL, SIGKILL, 1), SIG(SIGSEGV, 0, 2) }, 2, 1 },
    { "our TERM is no cause", { SIG(SIGTERM, SIGTERM, 1), SIG(SIGABRT, SIGTERM, 2) }, 2, 1 },
    { "the signal that we passed to all is no cause",
      { SIG(SIGINT, SIGINT, 1), SIG(SIGSEGV, SIGINT, 2) },
      2,
      1 },
    { "one killed after the grace is none",
      { { .kind = DEATH_SIGNAL, .code = SIGKILL, .sent_signal = SIGTERM, .killed = true, .when_ns = 1 },
        EXIT(3, 0, 2) },
      2,
      1 },
    { "nor is one that takes its TERM only then",
      { { .kind = DEATH_SIGNAL, .code = SIGTERM, .sent_signal = SIGTERM, .killed = true, .when_ns = 1 },
        EXIT(3, 0, 2) },
      2,
      1 },
    { "another's KILL beside our TERM is one", { EXIT(1, SIGTERM, 1), SIG(SIGKILL, SIGTERM, 2) }, 2, 1 },
    { "the one that raised first, though it died last",
      { EXIT(1, 0, 5), { .kind = DEATH_EXIT, .code = 2, .when_ns = 9, .age_ns = 6 } },
      2,
      1 },
    { "raised in the same instant: the one that was seen first",
      { { .kind = DEATH_EXIT, .code = 2, .when_ns = 9, .age_ns = 6 },
        { .kind = DEATH_EXIT, .code = 3, .when_ns = 4, .age_ns = 1 } },
      2,
      1 },
    { "how early it raised does not make a consequence a cause",
      { { .kind = DEATH_EXIT, .code = 75, .when_ns = 9, .age_ns = 8 }, EXIT(1, 0, 5) },
      2,
      1 },
    { "another's TERM is one", { SIG(SIGTERM, 0, 1), EXIT(1, SIGTERM, 2) }, 2, 0 },
    { "a hang before its own KILL",
      { { .kind = DEATH_HANG, .code = SIGKILL, .when_ns = 1 }, SIG(SIGKILL, SIGKILL, 2) },
      2,
      0 },
    { "a lost node", { EXIT(75, 0, 1), { .kind = DEATH_NODE, .when_ns = 2 } }, 2, 1 },
    { "only stopped ones: the first of them", { SIG(SIGTERM, SIGTERM, 4), SIG(SIGTERM, SIGTERM, 2) }, 2, 1 },
};

ParameterizedTestParameters(first_cause, find)
{
    return cr_make_param_array(struct find_case, cases, sizeof cases / sizeof *cases);
}

ParameterizedTest(struct find_case *c, first_cause, find)
{
    cr_expect_eq(first_cause_find(c->deaths, c->n), c->want, "%s", c->name);
}

Test(first_cause, status_is_the_code_or_128_and_the_signal)
{
    struct death d = death(DEATH_EXIT, 9, 0, 0);

    cr_expect_eq(first_cause_status(&d), 9);
    d = death(DEATH_SIGNAL, SIGSEGV, 0, 0);
    cr_expect_eq(first_cause_status(&d), 139);
    d = death(DEATH_HANG, SIGKILL, 0, 0);
    cr_expect_eq(first_cause_status(&d), 137);
    d = death(DEATH_STUCK, SIGKILL, 0, 0);
    cr_expect_eq(first_cause_status(&d), 137);
    d = death(DEATH_SPAWN, 127, 0, 0);
    cr_expect_eq(first_cause_status(&d), 127);
    d = death(DEATH_NODE, 0, 0, 0);
    cr_expect_eq(first_cause_status(&d), 76);
    d = death(DEATH_NONE, 0, 0, 0);
    cr_expect_eq(first_cause_status(&d), 0);
}

Test(first_cause, only_what_would_end_the_same_way_is_final)
{
    for (int code = 1; code < 256; code++) {
        const struct death d = death(DEATH_EXIT, code, 0, 0);
        const bool told = code == 2 || code == 66 || code == 74 || code == 78;

        cr_expect_not(first_cause_is_final(&d, false), "a program's %d is tried again", code);
        cr_expect(first_cause_is_final(&d, true) == told, "a job's %d", code);
    }
    for (int code = 126; code <= 127; code++) {
        const struct death d = death(DEATH_SPAWN, code, 0, 0);

        cr_expect(first_cause_is_final(&d, false) && first_cause_is_final(&d, true));
    }
    struct death d = death(DEATH_SPAWN, 75, 0, 0);
    cr_expect_not(first_cause_is_final(&d, true), "the system may have room later");
    d = death(DEATH_STUCK, SIGKILL, 0, 0);
    cr_expect(first_cause_is_final(&d, false), "it holds what the next one would need");
    d = death(DEATH_SIGNAL, SIGKILL, 0, 0);
    cr_expect_not(first_cause_is_final(&d, true));
    d = death(DEATH_NODE, 0, 0, 0);
    cr_expect_not(first_cause_is_final(&d, true), "another may take its place");
}

Test(first_cause, every_phase_has_a_name)
{
    for (int phase = FSDP_PHASE_START; phase <= FSDP_PHASE_DIVERGED_ALONE; phase++)
        cr_expect_not_null(first_cause_phase_name(phase), "%d", phase);
    cr_expect_null(first_cause_phase_name(-1));
    cr_expect_null(first_cause_phase_name(FSDP_PHASE_DIVERGED_ALONE + 1));
}

Test(first_cause, a_programs_phases_have_names_and_words)
{
    for (int phase = PROGRAM_STARTING; phase <= PROGRAM_STOPPING; phase++)
        cr_assert(first_cause_phase_name(phase) != NULL && first_cause_phase_words(phase) != NULL, "%d",
                  phase);
    cr_assert_null(first_cause_phase_name(PROGRAM_STOPPING + 1));
    cr_assert_null(first_cause_phase_words(PROGRAM_STOPPING + 1));
    cr_assert_str_eq(first_cause_phase_name(PROGRAM_STOPPING), "stopping");
    for (int phase = FSDP_PHASE_START; phase <= FSDP_PHASE_DONE; phase++)
        cr_assert_null(first_cause_phase_words(phase), "a trainer's is told with its step");
}
