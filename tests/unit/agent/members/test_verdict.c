#include "agent/members/verdict.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

#include <fsdp/link.h>

#include "tests/unit/agent/find_cause.h"

static const struct errors_detail no_detail;

struct verdict_case {
    const char *name;
    struct death deaths[2];
    int n, n_restarts, max_restarts, stop_signal, notice_signal;
    bool job;
    struct verdict want;
};

/* clang-format off */
#define DEATH(k, c, s, t) { .kind = (k), .code = (c), .sent_signal = (s), .when_ns = (t) }
#define EXIT(c, s, t)     DEATH(DEATH_EXIT, c, s, t)
#define SIG(c, s, t)      DEATH(DEATH_SIGNAL, c, s, t)
#define LEFT(c)           DEATH(DEATH_NONE, c, 0, 0)
#define WELL              { .event = CE_DOWN_OK }
#define AGAIN             { .event = CE_DOWN_RETRY, .failed = true }
#define FAILED(s)         { .event = CE_DOWN_FINAL, .failed = true, .status = (s) }
#define STOPPED(s)        { .event = CE_DOWN_FINAL, .class = ERRORS_STOPPED, .status = 128 + (s) }
#define NOTICED           { .event = CE_DOWN_FINAL, .class = ERRORS_NOTICE, .status = FSDP_EXIT_NOTICE }

/* Deaths and their number, restarts so far and allowed, a signal to stop, a notice, our own trainer? */
static const struct verdict_case cases[] = {
    { "all ended well", { LEFT(0), LEFT(0) }, 2, 0, 0, 0, 0, false, WELL },
    { "no restarts", { EXIT(3, 0, 1), LEFT(0) }, 2, 0, 0, 0, 0, false, FAILED(3) },
    { "one restart is left", { SIG(SIGSEGV, 0, 1) }, 1, 1, 2, 0, 0, false, AGAIN },
    { "none is left", { SIG(SIGSEGV, 0, 1) }, 1, 2, 2, 0, 0, false, FAILED(139) },
    { "two that blame each other", { EXIT(75, 0, 1), EXIT(75, 0, 2) }, 2, 0, 1, 0, 0, false, AGAIN },
    { "and fail when they may not", { EXIT(75, 0, 1), EXIT(75, 0, 2) }, 2, 0, 0, 0, 0, false, FAILED(75) },
    { "a program's 66 may go away", { EXIT(66, 0, 1) }, 1, 0, 1, 0, 0, false, AGAIN },
    { "the trainer's does not", { EXIT(66, 0, 1) }, 1, 0, 1, 0, 0, true, FAILED(FSDP_EXIT_INPUT) },
    { "a lost node", { DEATH(DEATH_NODE, 0, 0, 0) }, 1, 0, 0, 0, 0, false, FAILED(FSDP_EXIT_LINK) },
    { "a lost node that may be replaced", { DEATH(DEATH_NODE, 0, 0, 0) }, 1, 0, 1, 0, 0, false, AGAIN },
    { "no such program", { DEATH(DEATH_SPAWN, 127, 0, 0) }, 1, 0, 9, 0, 0, false, FAILED(127) },
    { "a signal, and all left well", { LEFT(0) }, 1, 0, 0, SIGINT, 0, false, STOPPED(SIGINT) },
    { "a signal, and all stopped", { SIG(15, 15, 1) }, 1, 0, 0, SIGTERM, 0, false, STOPPED(SIGTERM) },
    { "a signal after the last failure", { EXIT(3, 0, 1) }, 1, 0, 0, SIGTERM, 0, false, FAILED(3) },
    { "a signal before a restart", { EXIT(3, 0, 1) }, 1, 0, 1, SIGTERM, 0, false, STOPPED(SIGTERM) },
    { "a notice, saved by all", { LEFT(77), LEFT(77) }, 2, 0, 0, 0, SIGUSR1, true, NOTICED },
    { "a notice that one rank saw", { LEFT(0), LEFT(77) }, 2, 0, 0, 0, SIGUSR1, true, NOTICED },
    { "a notice after the last step", { LEFT(0), LEFT(0) }, 2, 0, 0, 0, SIGUSR1, true, WELL },
    { "no new try after a notice", { EXIT(3, 0, 1) }, 1, 0, 9, 0, SIGUSR1, true, FAILED(3) },
    { "killed when the grace was over", { SIG(9, 9, 1) }, 1, 0, 9, 0, SIGUSR1, true, STOPPED(SIGUSR1) },
    { "a notice, then a signal", { LEFT(77) }, 1, 0, 9, SIGTERM, SIGUSR1, true, STOPPED(SIGTERM) },
};
/* clang-format on */

static struct verdict verdict_of(const struct verdict_case *c)
{
    const struct verdict_run run = { .deaths = c->deaths,
                                     .n_deaths = (size_t)c->n,
                                     .detail = &no_detail,
                                     .job = c->job,
                                     .cause = find_cause(c->deaths, (size_t)c->n),
                                     .spent = c->n_restarts >= c->max_restarts,
                                     .stop_signal = c->stop_signal,
                                     .notice_signal = c->notice_signal };
    struct verdict verdict;

    verdict_reach(&run, &verdict);
    return verdict;
}

Test(verdict, of_a_run)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct verdict_case *c = &cases[i];
        const struct verdict verdict = verdict_of(c);

        cr_expect(verdict.event == c->want.event && verdict.status == c->want.status &&
                      verdict.failed == c->want.failed && verdict.class == c->want.class,
                  "%s: %s, status %d, failed %d, class %s", c->name, coordinator_event_name(verdict.event),
                  verdict.status, verdict.failed, errors_class_name(verdict.class));
    }
}

/* Of every combination of one death, a signal, a notice and restarts: what no verdict may be. */
Test(verdict, is_sound_for_every_combination)
{
    static const enum death_kind kinds[] = { DEATH_NONE, DEATH_EXIT,  DEATH_SIGNAL, DEATH_SPAWN,
                                             DEATH_HANG, DEATH_STUCK, DEATH_NODE };
    static const int codes[] = { 0, 1, 9, 15, 64, 75, 76, 77, 126, 127 };

    for (int i = 0; i < 7 * 10 * 3 * 64; i++) {
        const int bits = i % 64, sent = (int[]){ 0, SIGTERM, SIGKILL }[i / 64 % 3];
        struct verdict_case c = { .n = 1,
                                  .n_restarts = bits & 3,
                                  .max_restarts = bits >> 2 & 1,
                                  .job = bits >> 3 & 1,
                                  .stop_signal = bits >> 4 & 1 ? SIGTERM : 0,
                                  .notice_signal = bits >> 5 ? SIGUSR1 : 0 };
        struct verdict verdict;
        bool asked, well;

        c.deaths[0] =
            (struct death){ .kind = kinds[i / 192 / 10], .code = codes[i / 192 % 10], .sent_signal = sent };
        if (c.deaths[0].kind != DEATH_NONE && c.deaths[0].code == 0)
            continue; /* 0 is how one ends well */
        asked = c.stop_signal != 0 || c.notice_signal != 0;
        well = c.deaths[0].kind == DEATH_NONE;

        verdict = verdict_of(&c);

        if (verdict.event == CE_DOWN_RETRY)
            cr_assert(!asked && !well && c.n_restarts < c.max_restarts, "combination %d is tried again", i);
        else if (verdict.event == CE_DOWN_OK)
            cr_assert(well && c.stop_signal == 0 && verdict.status == 0, "combination %d is well", i);
        else
            cr_assert(verdict.event == CE_DOWN_FINAL && verdict.status != 0, "combination %d ends with %d", i,
                      verdict.status);
        cr_assert(!verdict.failed || !well, "combination %d blames who ended well", i);
        cr_assert_eq(verdict.class != 0, verdict.event == CE_DOWN_FINAL && !verdict.failed, "combination %d",
                     i);
        cr_assert_eq(verdict.words[0] != '\0', verdict.class != 0, "combination %d", i);
    }
}

/* Restarts are spent: what goes on all the same is a change of membership, and nothing else. */
static struct verdict change_of(struct death first, struct death second, bool elastic, bool changing,
                                int signal)
{
    struct death deaths[2] = { first, second };
    struct verdict_run run = { .deaths = deaths,
                               .n_deaths = 2,
                               .detail = &no_detail,
                               .cause = find_cause(deaths, 2),
                               .spent = true,
                               .elastic = elastic,
                               .changing = changing,
                               .stop_signal = signal,
                               .world_size = 2 };
    struct verdict verdict;

    verdict_reach(&run, &verdict);
    cr_assert(!verdict.free_of_charge || verdict.event == CE_DOWN_RETRY);
    return verdict;
}

#define D(...) ((struct death){ __VA_ARGS__ })

Test(verdict, a_change_of_membership_costs_no_restart)
{
    const struct death well = D(.kind = DEATH_NONE), saved = D(.kind = DEATH_NONE, .code = 77),
                       told = D(.kind = DEATH_SIGNAL, .code = SIGTERM, .sent_signal = SIGTERM),
                       obeyed = D(.kind = DEATH_NONE, .sent_signal = SIGTERM),
                       failed = D(.kind = DEATH_EXIT, .code = 3), lost = D(.kind = DEATH_NODE);

    cr_expect(change_of(told, told, true, true, 0).free_of_charge, "stopped for it");
    cr_expect(change_of(told, well, true, true, 0).free_of_charge, "one had ended");
    cr_expect(change_of(obeyed, obeyed, true, true, 0).free_of_charge,
              "both ended well because they were told to");
    cr_expect(change_of(saved, saved, true, true, 0).free_of_charge, "saved for it");
    cr_expect(change_of(told, lost, true, false, 0).free_of_charge, "a node was lost");
    cr_expect(change_of(told, lost, true, false, 0).failed, "and that is told");
    cr_expect(change_of(told, told, false, true, 0).free_of_charge, "one left and a spare came");

    cr_expect_eq(change_of(well, well, true, true, 0).event, CE_DOWN_OK, "both had ended before");
    cr_expect_eq(change_of(told, lost, false, false, 0).status, FSDP_EXIT_LINK, "a world of fixed size");
    cr_expect_eq(change_of(failed, told, true, true, 0).status, 3, "a failure meanwhile is one");
    cr_expect_eq(change_of(failed, lost, true, true, 0).status, 3, "also before a node was lost");
    cr_expect_eq(change_of(told, lost, true, true, SIGINT).status, 130, "a signal ends it");
    cr_expect_eq(change_of(told, told, true, true, SIGTERM).status, 143);
}

/* With three restarts left: the verdict on a divergence in `step`, after one in `before` (-1: none). */
static enum coordinator_event event_of_divergence(int64_t step, int64_t before, int phase)
{
    const struct death death = { .kind = DEATH_EXIT, .code = 1, .step = step, .phase = phase };
    const struct verdict_run run = { .deaths = &death,
                                     .n_deaths = 1,
                                     .detail = &no_detail,
                                     .world_size = 1,
                                     .job = true,
                                     .diverged_step = before };
    struct verdict verdict;

    verdict_reach(&run, &verdict);
    return verdict.event;
}

Test(verdict, a_divergence_is_tried_again_unless_the_same_step_diverged_before)
{
    cr_expect_eq(event_of_divergence(7, -1, FSDP_PHASE_DIVERGED), CE_DOWN_RETRY);
    cr_expect_eq(event_of_divergence(7, 7, FSDP_PHASE_DIVERGED), CE_DOWN_FINAL);
    cr_expect_eq(event_of_divergence(9, 7, FSDP_PHASE_DIVERGED), CE_DOWN_RETRY, "7 has passed");
    cr_expect_eq(event_of_divergence(7, 7, FSDP_PHASE_FORWARD), CE_DOWN_RETRY, "another failure there");
}

/* Restarts are left; the failure has come n times in a row. */
Test(verdict, a_job_that_fails_for_the_third_time_in_the_same_way_is_not_tried_again)
{
    const struct death death = { .kind = DEATH_EXIT, .code = 3 };

    for (int n = 0; n < 5; n++) {
        const struct verdict_run run = {
            .deaths = &death, .n_deaths = 1, .detail = &no_detail, .job = true, .world_size = 1, .n_same = n
        };
        struct verdict verdict;

        verdict_reach(&run, &verdict);
        cr_expect_eq(verdict.event, n < 3 ? CE_DOWN_RETRY : CE_DOWN_FINAL, "%d times", n);
        cr_expect_eq(verdict.status, n < 3 ? 0 : 3, "%d times", n);
        cr_expect(!verdict.spent && verdict.failed);
    }
}

static struct errors_death collateral[3];
static struct errors_report report;

/* The report on these deaths, of which the one at `cause` is the first. */
static void report_on(const struct death *deaths, size_t n, int cause, int status, enum errors_class class,
                      const char *words)
{
    const struct verdict_run run = {
        .deaths = deaths, .n_deaths = n, .cause = cause, .generation = 4, .detail = &no_detail
    };

    verdict_report(&run, status, class, words, collateral, &report);
}

Test(verdict, report_parts_the_cause_from_what_died_of_it)
{
    const struct death deaths[] = {
        { .kind = DEATH_NONE, .rank = 0 },
        { .kind = DEATH_EXIT, .rank = 1, .code = 75 },
        { .kind = DEATH_SIGNAL, .rank = 2, .code = SIGSEGV, .step = 17, .pid = 42 }
    };

    report_on(deaths, 3, 2, 139, 0, "");
    cr_expect(report.class == ERRORS_SIGNAL && report.cause.rank == 2 && report.cause.signal == SIGSEGV &&
              report.cause.exit_code == -1 && report.step == 17 && report.generation == 4);
    cr_expect(report.message == NULL && report.detail == NULL);
    cr_expect(report.n_collateral == 1 && collateral[0].rank == 1 && collateral[0].exit_code == 75);
}

Test(verdict, a_hang_is_not_its_own_collateral)
{
    const struct death deaths[] = {
        { .kind = DEATH_HANG, .rank = 1, .code = SIGKILL, .words = "no progress for 3 s" },
        { .kind = DEATH_SIGNAL, .rank = 1, .code = SIGKILL, .sent_signal = SIGKILL }
    };

    report_on(deaths, 2, 0, 137, 0, "");
    cr_expect(report.class == ERRORS_HANG && report.n_collateral == 0);
    cr_expect_str_eq(report.message, "no progress for 3 s");
}

Test(verdict, report_of_a_stopped_run_names_no_cause)
{
    const struct death stopped = { .kind = DEATH_SIGNAL, .code = SIGTERM, .sent_signal = SIGTERM };

    report_on(&stopped, 1, 0, 143, ERRORS_STOPPED, "stopped by SIGTERM");
    cr_expect(report.cause.rank == -1 && report.n_collateral == 1);
    cr_expect_str_eq(report.message, "stopped by SIGTERM");
}

/* The number may come from another node. */
Test(verdict, a_signal_without_a_short_name_is_named_too)
{
    struct verdict verdict;

    verdict_stopped(SIGRTMIN + 2, &verdict);

    cr_assert_str_eq(verdict.words, "stopped by SIGRTMIN+2");
    cr_assert_eq(verdict.status, 128 + SIGRTMIN + 2);
}
