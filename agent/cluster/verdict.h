/*
 * The verdict on a generation of which every node is down: did it end well, is there another, or what ended
 * the run and with which exit status. And the report of it for errors.json. Pure.
 */
#ifndef AGENT_VERDICT_H
#define AGENT_VERDICT_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/cluster/coordinator_fsm.h"
#include "agent/record/errors.h"
#include "agent/record/first_cause.h"

/* What is known once every node is down. */
struct verdict_run {
    const struct death *deaths; /* every exit that was told, those that ended well included */
    size_t n_deaths;
    int cause;                          /* index of the first cause; -1: nothing failed */
    const struct errors_detail *detail; /* of that rank; never NULL */
    int generation;
    int n_restarts, max_restarts; /* so far, and allowed */
    int stop_signal;              /* that stops the run; 0: none */
    int notice_signal;            /* that asked for a checkpoint first; 0: none */
    bool elastic;  /* the world may be smaller: that a node is lost is a change of membership */
    bool changing; /* it was taken down for such a change */
    int world_size;
    bool job; /* our own trainer runs, whose exit codes tell more */
    int64_t diverged_step; /* at which an earlier generation of as many ranks diverged last; -1: none did */
};

enum { VERDICT_WORDS_BYTES = 64 };

struct verdict {
    enum coordinator_event event; /* CE_DOWN_OK, CE_DOWN_RETRY or CE_DOWN_FINAL */
    int status;                   /* exit status of the run; 0 with CE_DOWN_RETRY */
    bool free_of_charge;          /* of CE_DOWN_RETRY: it does not count as a restart */
    bool failed;                  /* the first cause is what to tell; else class and words, if any */
    enum errors_class class;      /* 0 where `failed`, and where all went well */
    char words[VERDICT_WORDS_BYTES];
};

/** Did training diverge at the very step at which it had diverged before? Then the job is the cause. */
bool verdict_diverged_again(const struct verdict_run *run);

/**
 * The rules, the first that fits: nothing failed and nobody asked: well. A failure that trying again cannot
 * mend, or that may not be tried again, has its own status, whatever signal came after it. Training that diverges is
 * tried once more: it is final when it diverges at the same step again. A notice: 77 when
 * every rank has left after saving, well when all were done anyway, the status of what failed meanwhile. A
 * signal: 128 + its number. Else another generation; one for a change of membership is not counted as a restart,
 * and happens however many there were: nodes that came or said goodbye, or one that was lost where the world may
 * be smaller. A lost node of a world of fixed size is a failure as any other.
 */
void verdict_reach(const struct verdict_run *run, struct verdict *verdict);

/** The verdict on a run that a signal ended while nothing ran. */
void verdict_stopped(int signal, struct verdict *verdict);

/**
 * Everything about the end of the run, or of one generation of it, for errors_write() and errors_line().
 *   class       what ended it (`words` tell more), or 0: the first cause, run->cause, which must be one
 *   collateral  room for run->n_deaths; receives those that died only because of it. NULL: they are not
 * listed The report points into `run`, `words` and `collateral`.
 */
void verdict_report(const struct verdict_run *run, int status, enum errors_class class, const char *words,
                    struct errors_death *collateral, struct errors_report *report);

#endif
