/*
 * A job that fails at the same step for the same cause, again and again. The third such failure in a row ends
 * the run, however many restarts are left. The job is the cause, and another try would only cost time.
 *
 * Two failures are the same if their first causes have the same kind, exit code or signal, phase and step.
 * Rank and host are left out, because the data of a step moves with the world. Checkpoints in between change
 * nothing: a job that saves after each step still fails at that one.
 *
 * These failures say nothing about the job, and neither count nor begin a new row:
 *   - a lost node;
 *   - a rank that died because of another rank, or that we had stopped;
 *   - a SIGKILL that was not sent by the kernel's OOM killer: it comes from outside, for example from a user;
 *   - a divergence, which has a rule of its own (verdict_diverged_again()).
 * A failure at an unknown step ends the row. Only the number of restarts bounds such failures.
 *
 * Pure: no loop, no clock.
 */
#ifndef AGENT_RECURRENCE_H
#define AGENT_RECURRENCE_H

#include <stddef.h>

#include "agent/record/first_cause.h"

enum { RECURRENCE_LIMIT = 3 };

/* The last cause that counted, and how often it came in a row. All zero at the beginning. */
struct recurrence {
    enum death_kind kind;
    int code, phase;
    int64_t step;
    int n; /* times in a row; 0: none */
};

/**
 * Count the first cause of a generation of a job. Returns how many times in a row this cause has come; 0 if
 * the rule does not apply to it.
 */
int recurrence_count(struct recurrence *recurrence, const struct death *cause);
/**
 * Write why the run ends: "failed 3 times at step 812 in backward with exit code 1: the job is the cause". If
 * `words` (the message of the cause) is not empty, it follows in parentheses.
 */
void recurrence_words(const struct recurrence *recurrence, const char *words, char *out, size_t size);

#endif
