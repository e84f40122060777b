/*
 * What the ranks do in a step, noted while they do it, in the words of tests/parity/fsdp2_schedule.py. Noted
 * are each call of a collective, the freeing of a unit's parameters, and the end of a forward. Collectives
 * are noted at the back end. So the lines differ if one is left out, comes twice, goes to another group or
 * has another size.
 */
#ifndef TEST_PARITY_LIVE_H
#define TEST_PARITY_LIVE_H

#include <fsdp/model.h>

enum { LIVE_RUNS = 4, LIVE_LINE = 2048 };

/** Of one rank: a line for each run of the program. */
struct live {
    char runs[LIVE_RUNS][LIVE_LINE];
    int n_runs;
};

/**
 * way.prepare: from here on rank r's steps are noted in ((struct live *)lives)[r], as long as its thread
 * lives. Runs inline: what a second thread calls nobody notes.
 */
void live_begin(struct fsdp_model *model, void *lives);

#endif
