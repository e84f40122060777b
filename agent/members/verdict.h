/*
 * The verdict on a generation, once every node is down. Did it end well, does another one follow, or what
 * ended the run? And what is the exit status? Also makes the report about that end for errors.json.
 *
 * Pure: no loop, no clock.
 */
#ifndef AGENT_VERDICT_H
#define AGENT_VERDICT_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/members/coordinator_fsm.h"
#include "agent/record/errors.h"
#include "agent/record/first_cause.h"

/* The facts about a generation, known once every node is down. */
struct verdict_run {
    const struct death *deaths; /* all ends of workers that were reported, also of workers that ended well */
    size_t n_deaths;
    int cause;                          /* index of the first cause; -1: nothing failed */
    const struct errors_detail *detail; /* details about the rank of that cause; never NULL */
    const char *hang;                   /* JSON for struct errors_report; NULL: no rank hung */
    int generation;
    bool spent;        /* no restart is left */
    int stop_signal;   /* signal that stops the run; 0: none */
    int notice_signal; /* signal that asked for a checkpoint first; 0: none */
    bool elastic;      /* the world may become smaller, so the loss of a node is only a change of members */
    bool changing;     /* the generation was stopped because its members change */
    int world_size;
    bool job; /* the run is one of our trainer, whose exit codes have exact meanings */
    /* the step at which an earlier generation with as many ranks diverged; -1: none did */
    int64_t diverged_step;
    int n_same; /* how many generations in a row have failed like this one; 0: not counted */
};

enum { VERDICT_WORDS_BYTES = 64 };

struct verdict {
    enum coordinator_event event; /* CE_DOWN_OK, CE_DOWN_RETRY or CE_DOWN_FINAL */
    int status;                   /* exit status of the run; 0 with CE_DOWN_RETRY */
    bool free_of_charge;          /* with CE_DOWN_RETRY: this retry does not count as a restart */
    bool spent;                   /* with CE_DOWN_FINAL: the run ends only because no restart is left */
    /*
     * true: the report is about the first cause. false: the report has `class` and `words`, if there are any
     */
    bool failed;
    enum errors_class class; /* 0 if `failed`, or if the run ended well */
    char words[VERDICT_WORDS_BYTES];
};

/**
 * Did training diverge at the same step as in an earlier generation? Then the cause is the job, not the
 * hardware.
 */
bool verdict_diverged_again(const struct verdict_run *run);

/**
 * Fills in `verdict`. The first rule that fits decides:
 *   1. The membership changed, and no signal came: another generation, which is not counted as a restart.
 *      Nodes came, or wanted to leave, or one was lost from a world that may be smaller. There is no limit to
 *      such generations.
 *   2. Nothing failed and no signal came: the run ended well.
 *   3. A failure that another try cannot mend, or that may not be tried again. The run ends with the status
 *      of that failure, whatever signal came after it. Training that diverges is tried once more. If it
 *      diverges at the same step again, the failure is final. So is a failure of a job that has come
 *      RECURRENCE_LIMIT times in a row.
 *   4. The run got a notice. The status is 77 if every rank has left after saving, and success if all were
 *      done anyway. Otherwise it is that of a failure that came meanwhile.
 *   5. A signal came: status 128 + its number.
 *   6. Anything else is a failure that may be tried again: another generation, counted as a restart. This
 *      includes a node that is lost from a world of fixed size.
 */
void verdict_reach(const struct verdict_run *run, struct verdict *verdict);

/** Fill `verdict` for a run that `signal` ended while no generation ran. */
void verdict_stopped(int signal, struct verdict *verdict);

/**
 * Describes the end of the run, or of one generation, for errors_write() and errors_line().
 *
 *   status      exit status of the run
 *   class       the kind of end, which `words` describe; 0: the first cause, run->cause, ended the run, and
 *               must not be -1
 *   collateral  room for run->n_deaths entries. It receives the workers that died only because of the cause.
 *               NULL: they are not listed
 *   report      receives the description. It points into `run`, `words` and `collateral`
 */
void verdict_report(const struct verdict_run *run, int status, enum errors_class class, const char *words,
                    struct errors_death *collateral, struct errors_report *report);

#endif
