/*
 * A wait within a start, for the disk's thread or for an exec. One that takes long is named once, and
 * one that takes too long fails. The time is counted in looks, so that a pause of this process
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
    START_IS_SLOW, /* this look came to START_WAIT_SAY_MS */
    START_FAILED   /* this look came to START_WAIT_LIMIT_MS */
};

/** Begin to wait. */
void start_wait_begin(struct start_wait *wait, int64_t now_ns);
/** Look again. Each news comes once. */
enum start_news start_wait_look(struct start_wait *wait, int64_t now_ns);
/**
 * The same for a wait for the disk's thread, which is named on the console. Returns true if it has failed;
 * then `why` has the reason.
 */
bool start_wait_look_at_disk(struct start_wait *wait, int64_t now_ns, struct console *console,
                             char why[START_WAIT_WORDS_BYTES]);

#endif
