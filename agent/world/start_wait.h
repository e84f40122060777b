/*
 * A wait within a start: for the disk's thread, or for an exec. After START_WAIT_SAY_MS a line names what is
 * waited for; after START_WAIT_LIMIT_MS the wait fails. Time is counted in looks, so a pause of this process
 * counts as one look.
 */
#ifndef AGENT_START_WAIT_H
#define AGENT_START_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/output/console.h"

enum {
    START_WAIT_LOOK_MS = 250, /* between two looks */
    START_WAIT_SAY_MS = 10000,
    START_WAIT_LIMIT_MS = 120000,
    START_WAIT_WORDS_BYTES = 64
};

struct start_wait {
    int64_t seen_ns; /* the last look */
    int waited_ms;   /* in all looks */
};

enum start_news {
    START_NO_NEWS,
    START_IS_SLOW, /* at this look, START_WAIT_SAY_MS have passed */
    START_FAILED   /* at this look, START_WAIT_LIMIT_MS have passed */
};

/** Begin to wait. */
void start_wait_begin(struct start_wait *wait, int64_t now_ns);
/** Look again. Each news comes once. */
enum start_news start_wait_look(struct start_wait *wait, int64_t now_ns);
/**
 * Looks at a wait for the disk's thread, and names it on the console when it is slow. Returns true if it has
 * failed; then `why` has the reason.
 */
bool start_wait_look_at_disk(struct start_wait *wait, int64_t now_ns, struct console *console,
                             char why[START_WAIT_WORDS_BYTES]);

#endif
