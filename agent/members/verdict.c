#include "agent/members/verdict.h"
#include "agent/members/recurrence.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static enum errors_class class_of(const struct death *death)
{
    switch (death->kind) {
    case DEATH_SIGNAL:
        return ERRORS_SIGNAL;
    case DEATH_SPAWN:
        return death->code == FSDP_EXIT_PEER ? ERRORS_WORLD : ERRORS_EXEC;
    case DEATH_HANG:
    case DEATH_STUCK:
        return ERRORS_HANG;
    case DEATH_NODE:
        return ERRORS_NODE;
    case DEATH_NONE:
    case DEATH_EXIT:
        break;
    }
    return ERRORS_EXIT;
}

static struct errors_death as_errors_death(const struct death *death)
{
    const bool exited = death->kind == DEATH_EXIT || death->kind == DEATH_SPAWN;

    return (struct errors_death){ .rank = death->rank,
                                  .local_rank = death->local_rank,
                                  .host = death->host,
                                  .pid = death->pid,
                                  .exit_code = exited ? death->code : -1,
                                  .signal = death->kind == DEATH_SIGNAL ? death->code : 0 };
}

void verdict_report(const struct verdict_run *run, int status, enum errors_class class, const char *words,
                    struct errors_death *collateral, struct errors_report *report)
{
    *report = (struct errors_report){ .class = class,
                                      .status = status,
                                      .generation = run->generation,
                                      .step = -1,
                                      .cause = { .rank = -1, .local_rank = -1, .exit_code = -1 },
                                      .message = class != 0 && words[0] != '\0' ? words : NULL,
                                      .collateral = collateral };
    if (class == 0) {
        const struct death *cause = &run->deaths[run->cause];

        report->class = class_of(cause);
        report->cause = as_errors_death(cause);
        report->phase = first_cause_phase_name(cause->phase);
        report->where = first_cause_phase_words(cause->phase);
        report->step = cause->step;
        report->message = cause->words[0] != '\0'           ? cause->words
                          : run->detail->message[0] != '\0' ? run->detail->message
                                                            : NULL;
        report->detail = errors_detail_is_empty(run->detail) ? NULL : run->detail;
        report->oom_kill = cause->oom_kill;
        report->hang = cause->kind == DEATH_HANG ? run->hang : NULL;
    }
    for (size_t i = 0; collateral != NULL && i < run->n_deaths; i++)
        if (run->deaths[i].kind != DEATH_NONE &&
            (class != 0 || ((int)i != run->cause && run->deaths[i].rank != report->cause.rank)))
            collateral[report->n_collateral++] = as_errors_death(&run->deaths[i]);
}

static bool all_complete(const struct verdict_run *run)
{
    for (size_t i = 0; i < run->n_deaths; i++)
        if (run->deaths[i].code != 0)
            return false;
    return true;
}

static void blame(const struct death *cause, struct verdict *verdict)
{
    *verdict =
        (struct verdict){ .event = CE_DOWN_FINAL, .status = first_cause_status(cause), .failed = true };
}

/*
 * Judges a run that was asked to end. Its status is 128 + n after signal n, unless the run had failed for
 * good before the signal came.
 */
static void judge_stopped(const struct verdict_run *run, const struct death *cause, struct verdict *verdict)
{
    const int signal = run->stop_signal != 0 ? run->stop_signal : run->notice_signal;

    if (run->stop_signal == 0 && cause == NULL) {
        if (all_complete(run))
            return; /* every rank completed its last step before it saw the notice */
        *verdict =
            (struct verdict){ .event = CE_DOWN_FINAL, .status = FSDP_EXIT_NOTICE, .class = ERRORS_NOTICE };
        snprintf(verdict->words, sizeof verdict->words, "stopped on notice after saving; run again to go on");
        return;
    }
    if (cause != NULL && !first_cause_is_consequence(cause) && run->stop_signal == 0) {
        blame(cause, verdict);
        return;
    }
    verdict_stopped(signal, verdict);
}

void verdict_stopped(int signal, struct verdict *verdict)
{
    char name[32];

    *verdict = (struct verdict){ .event = CE_DOWN_FINAL, .status = 128 + signal, .class = ERRORS_STOPPED };
    snprintf(verdict->words, sizeof verdict->words, "stopped by %s", errors_signal_name(signal, name));
}

/* Returns whether every rank had finished its work before it was asked to stop. */
static bool all_finished(const struct verdict_run *run)
{
    size_t n = 0;

    assert(run->n_deaths == 0 || run->deaths != NULL);
    for (size_t i = 0; i < run->n_deaths; i++)
        n += run->deaths[i].kind == DEATH_NONE && run->deaths[i].code == 0 && run->deaths[i].sent_signal == 0;
    return n >= (size_t)run->world_size;
}

/* Returns whether the generation ended only because its nodes change, while no part of the program failed. */
static bool is_change(const struct verdict_run *run, const struct death *cause)
{
    if (cause != NULL && cause->kind == DEATH_NODE)
        return run->elastic;
    return run->changing && (cause == NULL ? !all_finished(run) : first_cause_is_consequence(cause));
}

bool verdict_diverged_again(const struct verdict_run *run)
{
    const struct death *cause = run->cause >= 0 ? &run->deaths[run->cause] : NULL;

    return run->job && cause != NULL && first_cause_is_divergence(cause) && run->diverged_step >= 0 &&
           cause->step == run->diverged_step;
}

void verdict_reach(const struct verdict_run *run, struct verdict *verdict)
{
    const struct death *cause = run->cause >= 0 ? &run->deaths[run->cause] : NULL;
    const bool asked = run->stop_signal != 0 || run->notice_signal != 0;
    bool hopeless, final;

    *verdict = (struct verdict){ .event = CE_DOWN_OK };
    if (!asked && is_change(run, cause)) {
        *verdict = (struct verdict){ .event = CE_DOWN_RETRY,
                                     .free_of_charge = true,
                                     .failed = cause != NULL && cause->kind == DEATH_NODE };
        return;
    }
    if (cause == NULL && !asked)
        return;
    hopeless = cause != NULL && (first_cause_is_final(cause, run->job) || verdict_diverged_again(run) ||
                                 run->n_same >= RECURRENCE_LIMIT);
    final = cause != NULL && !first_cause_is_consequence(cause) && !is_change(run, cause) &&
            (hopeless || run->spent);
    if (asked && !final) {
        judge_stopped(run, cause, verdict);
        return;
    }
    blame(cause, verdict);
    verdict->spent = !hopeless && run->spent;
    if (!final && !run->spent)
        *verdict = (struct verdict){ .event = CE_DOWN_RETRY, .failed = true };
}
