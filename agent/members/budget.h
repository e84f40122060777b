/*
 * The restarts that a job may still have (--max-restarts N[/SECONDS]). Without SECONDS every restart of the
 * run counts. With SECONDS only the restarts of the last SECONDS count: a job that runs for weeks may fail
 * often, but not often in a row.
 *
 * Pure: the caller passes the time, by a clock that never goes back.
 */
#ifndef AGENT_BUDGET_H
#define AGENT_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/config.h"

struct budget {
    int most;                                 /* restarts allowed */
    int64_t window_ns;                        /* 0: the whole run */
    int n_restarts;                           /* restarts of the whole run so far */
    int64_t stamps[AGENT_RESTARTS_IN_WINDOW]; /* with a window: times of the last `most` restarts, a ring */
};

/**
 * Begin the budget of a new run. If there is a window, config->max_restarts is at most
 * AGENT_RESTARTS_IN_WINDOW.
 */
void budget_init(struct budget *budget, const struct agent_config *config);
/** Count a restart that begins now. It may exceed the budget. */
void budget_take(struct budget *budget, int64_t now_ns);
/**
 * Continue the budget of an earlier coordinator, which had begun `n_restarts` restarts and had `n_left` left.
 *   ages_s  (n_ages) how many seconds ago the last ones were, the newest first. If more restarts count, the
 *           times of the others are not known, and they count for as long as the oldest of these
 */
void budget_continue(struct budget *budget, int n_restarts, int n_left, const uint32_t *ages_s, int n_ages,
                     int64_t now_ns);
/** Fill in how many seconds ago the last restarts were, the newest first. Without a window all are 0. */
void budget_ages(const struct budget *budget, uint32_t *ages_s, int n_ages, int64_t now_ns);
/** Return how many restarts count now. A restart that is exactly SECONDS old no longer counts. */
int budget_used(const struct budget *budget, int64_t now_ns);
/** Return whether no restart is left now. */
bool budget_spent(const struct budget *budget, int64_t now_ns);
enum { BUDGET_WORDS_BYTES = 64 };

/** Write how many restarts are used into `out`: "2 of 3", or "2 of 3 within 60 s". Returns `out`. */
const char *budget_words(const struct budget *budget, int64_t now_ns, char out[BUDGET_WORDS_BYTES]);

#endif
