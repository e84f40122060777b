/*
 * Which losses of nodes a job of several nodes survives, in words for its user.
 *
 * Pure.
 */
#ifndef AGENT_SURVIVAL_H
#define AGENT_SURVIVAL_H

#include <stdbool.h>

enum { SURVIVAL_WORDS_BYTES = 400 };

struct survival {
    int n_nodes;      /* that are there, spares included */
    int min_nodes;    /* that the job needs */
    int n_heirs;      /* nodes that can take the leader's place; 0: if the leader is lost, the job ends */
    bool waits;       /* true: if too few nodes are left, the job waits for others. false: it ends */
    const char *host; /* the leader's name */
};

/** Writes which losses the job survives, as one line without a newline. Returns `out`. */
const char *survival_words(const struct survival *survival, char out[SURVIVAL_WORDS_BYTES]);

#endif
