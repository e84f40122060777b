#include "agent/watch/heartbeat.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void heartbeat_init(struct heartbeat *heartbeat)
{
    *heartbeat = (struct heartbeat){ .step = -1 };
}

static void take_line(struct heartbeat *heartbeat)
{
    const char *line = heartbeat->line;
    long long step;
    char *end;

    if (strncmp(line, "phase ", 6) == 0) {
        snprintf(heartbeat->phase, sizeof heartbeat->phase, "%s", line + 6);
    } else if (strncmp(line, "step ", 5) == 0 && isdigit((unsigned char)line[5])) {
        step = strtoll(line + 5, &end, 10);
        if (*end == '\0')
            heartbeat->step = step;
    }
}

void heartbeat_take(struct heartbeat *heartbeat, const char *bytes, size_t n)
{
    heartbeat->used = heartbeat->used || n > 0;
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != '\n') {
            if (heartbeat->n_line < HEARTBEAT_LINE_BYTES)
                heartbeat->line[heartbeat->n_line++] = bytes[i];
            continue;
        }
        if (heartbeat->n_line < HEARTBEAT_LINE_BYTES) {
            heartbeat->line[heartbeat->n_line] = '\0';
            take_line(heartbeat);
        }
        heartbeat->n_line = 0;
    }
}
