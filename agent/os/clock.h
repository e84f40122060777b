/*
 * The clock for durations and deadlines: CLOCK_MONOTONIC, which no one sets. Where a loop runs, uv_now() is the same
 * clock as it stood when the loop's turn began; what workers write is stamped by os_epoch_us().
 */
#ifndef AGENT_CLOCK_H
#define AGENT_CLOCK_H

#include <stdint.h>

int64_t clock_now_ns(void);
int64_t clock_now_ms(void);

#endif
