#include "agent/record/first_cause.h"

#include <criterion/criterion.h>
#include <signal.h>

#include "tests/unit/agent/find_cause.h"

static struct death death(enum death_kind kind, int code)
{
    return (struct death){ .kind = kind, .code = code };
}

struct find_case {
    const char *name;
    struct death deaths[3];
    size_t n;
    int want;
};

/* clang-format off */
#define EXIT(c, s, t)     { .kind = DEATH_EXIT, .code = (c), .sent_signal = (s), .when_ns = (t) }
#define RAISED(c, t, age) { .kind = DEATH_EXIT, .code = (c), .when_ns = (t), .age_ns = (age) }
#define PROGRAM(c, p, t)  { .kind = DEATH_EXIT, .code = (c), .phase = (p), .when_ns = (t) }
#define SIG(c, s, t)      { .kind = DEATH_SIGNAL, .code = (c), .sent_signal = (s), .when_ns = (t) }
#define KILLED(c, s, t) \
    { .kind = DEATH_SIGNAL, .code = (c), .sent_signal = (s), .killed = true, .when_ns = (t) }
#define OTHER(k, c, t)    { .kind = (k), .code = (c), .when_ns = (t) }
#define CASE(name, want, ...) \
    { name, { __VA_ARGS__ }, sizeof((struct death[]){ __VA_ARGS__ }) / sizeof(struct death), want }
/* clang-format on */

static const struct find_case cases[] = {
    { "nobody", { { 0 } }, 0, -1 },
    CASE("all ended well", -1, OTHER(DEATH_NONE, 0, 0), OTHER(DEATH_NONE, 0, 0)),
    CASE("one among the well", 1, OTHER(DEATH_NONE, 0, 0), EXIT(3, 0, 5)),
    CASE("the earlier of two", 1, EXIT(1, 0, 9), EXIT(2, 0, 5)),
    CASE("the one we stopped is later blamed", 1, EXIT(1, SIGTERM, 1), EXIT(2, 0, 5)),
    CASE("who blames a peer comes after who was killed", 1, EXIT(75, 0, 1), SIG(SIGKILL, 0, 30)),
    CASE("even when TERM had been sent to the killed one", 1, EXIT(75, 0, 1), SIG(SIGKILL, SIGTERM, 30)),
    CASE("a lost link is a consequence too", 1, EXIT(76, 0, 1), EXIT(9, 0, 30)),
    CASE("75 and 76 of a program blame no peer", 1, PROGRAM(75, PROGRAM_STARTING, 2),
         PROGRAM(76, PROGRAM_RUNNING, 1), SIG(SIGKILL, 0, 3)),
    CASE("all blame each other: the first", 1, EXIT(75, 0, 7), EXIT(75, 0, 3), EXIT(75, SIGTERM, 1)),
    CASE("blame before being stopped", 1, EXIT(1, SIGTERM, 1), EXIT(75, SIGTERM, 2)),
    CASE("our KILL is no cause", 1, SIG(SIGKILL, SIGKILL, 1), SIG(SIGSEGV, 0, 2)),
    CASE("our TERM is no cause", 1, SIG(SIGTERM, SIGTERM, 1), SIG(SIGABRT, SIGTERM, 2)),
    CASE("the signal that we passed to all is no cause", 1, SIG(SIGINT, SIGINT, 1), SIG(SIGSEGV, SIGINT, 2)),
    CASE("one killed after the grace is none", 1, KILLED(SIGKILL, SIGTERM, 1), EXIT(3, 0, 2)),
    CASE("nor is one that takes its TERM only then", 1, KILLED(SIGTERM, SIGTERM, 1), EXIT(3, 0, 2)),
    CASE("another's KILL in addition to our TERM is one", 1, EXIT(1, SIGTERM, 1), SIG(SIGKILL, SIGTERM, 2)),
    CASE("the one that raised first, though it died last", 1, EXIT(1, 0, 5), RAISED(2, 9, 6)),
    CASE("raised in the same instant: the one that was seen first", 1, RAISED(2, 9, 6), RAISED(3, 4, 1)),
    CASE("how early it raised does not make a consequence a cause", 1, RAISED(75, 9, 8), EXIT(1, 0, 5)),
    CASE("another's TERM is one", 0, SIG(SIGTERM, 0, 1), EXIT(1, SIGTERM, 2)),
    CASE("a hang before its own KILL", 0, OTHER(DEATH_HANG, SIGKILL, 1), SIG(SIGKILL, SIGKILL, 2)),
    CASE("a lost node", 1, EXIT(75, 0, 1), OTHER(DEATH_NODE, 0, 2)),
    CASE("only stopped ones: the first of them", 1, SIG(SIGTERM, SIGTERM, 4), SIG(SIGTERM, SIGTERM, 2)),
};

Test(first_cause, find)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect_eq(find_cause(cases[i].deaths, cases[i].n), cases[i].want, "%s", cases[i].name);
}

Test(first_cause, status_is_the_code_or_128_and_the_signal)
{
    static const struct {
        enum death_kind kind;
        int code, status;
    } statuses[] = {
        { DEATH_EXIT, 9, 9 },          { DEATH_SIGNAL, SIGSEGV, 139 }, { DEATH_HANG, SIGKILL, 137 },
        { DEATH_STUCK, SIGKILL, 137 }, { DEATH_SPAWN, 127, 127 },      { DEATH_NODE, 0, 76 },
        { DEATH_NONE, 0, 0 },
    };

    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        const struct death d = death(statuses[i].kind, statuses[i].code);

        cr_expect_eq(first_cause_status(&d), statuses[i].status, "kind %d", statuses[i].kind);
    }
}

Test(first_cause, only_what_would_end_the_same_way_is_final)
{
    for (int code = 1; code < 256; code++) {
        const struct death d = death(DEATH_EXIT, code);
        const bool told = code == 2 || code == 66 || code == 74 || code == 78;

        cr_expect_not(first_cause_is_final(&d, false), "a program's %d is tried again", code);
        cr_expect(first_cause_is_final(&d, true) == told, "a job's %d", code);
    }
    for (int code = 126; code <= 127; code++) {
        const struct death d = death(DEATH_SPAWN, code);

        cr_expect(first_cause_is_final(&d, false) && first_cause_is_final(&d, true));
    }
    struct death d = death(DEATH_SPAWN, 75);
    cr_expect_not(first_cause_is_final(&d, true), "the system may have room later");
    d = death(DEATH_STUCK, SIGKILL);
    cr_expect(first_cause_is_final(&d, false), "it holds what the next one would need");
    d = death(DEATH_SIGNAL, SIGKILL);
    cr_expect_not(first_cause_is_final(&d, true));
    d = death(DEATH_NODE, 0);
    cr_expect_not(first_cause_is_final(&d, true), "another may take its place");
}

Test(first_cause, every_phase_has_a_name_and_a_programs_have_words)
{
    for (int phase = -1; phase <= PROGRAM_STOPPING + 1; phase++) {
        const bool ours = phase >= FSDP_PHASE_START && phase <= FSDP_PHASE_OPEN,
                   programs = phase >= PROGRAM_STARTING && phase <= PROGRAM_STOPPING;

        cr_assert((first_cause_phase_name(phase) != NULL) == (ours || programs), "%d", phase);
        if (phase <= FSDP_PHASE_DONE || !ours) /* a trainer's phase is told with its step */
            cr_assert((first_cause_phase_words(phase) != NULL) == programs, "%d", phase);
    }
    cr_assert_str_eq(first_cause_phase_name(PROGRAM_STOPPING), "stopping");
}
