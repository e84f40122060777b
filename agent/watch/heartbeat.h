/*
 * What a program writes to its heartbeat pipe (FSDPRUN_HEARTBEAT_FD). Any byte is a sign of life. The lines
 * "step N" and "phase WORD" say where the program is, and are shown if it hangs. Pure.
 */
#ifndef AGENT_HEARTBEAT_H
#define AGENT_HEARTBEAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HEARTBEAT_LINE_BYTES = 64 };

struct heartbeat {
    bool used;    /* a byte came */
    int64_t step; /* -1: none was named */
    char phase[HEARTBEAT_LINE_BYTES];
    char line[HEARTBEAT_LINE_BYTES]; /* the line that is coming in */
    size_t n_line;
};

void heartbeat_init(struct heartbeat *heartbeat);
/** Take bytes[0..n) as they come. A line of HEARTBEAT_LINE_BYTES or more says nothing. */
void heartbeat_take(struct heartbeat *heartbeat, const char *bytes, size_t n);

#endif
