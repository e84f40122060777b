/*
 * The clocks of the process. Any thread may call these functions.
 *
 * clock_now_*() reads CLOCK_MONOTONIC, for durations and deadlines. No process can set that clock, and its
 * zero has no meaning. In code with a libuv loop, uv_now() returns the same clock, as it was when the current
 * iteration of the loop began. clock_epoch_*() reads the time of day, since 1970 in UTC, for timestamps that
 * people and other programs read.
 */
#ifndef CORE_CLOCK_H
#define CORE_CLOCK_H

#include <stdint.h>

/** Returns the monotonic time in nanoseconds. */
int64_t clock_now_ns(void);

/**
 * Returns the time since boot in nanoseconds (CLOCK_BOOTTIME). It also counts time that the host was
 * suspended, and is the same in every process of the host.
 */
int64_t clock_boot_ns(void);

/** Returns the same in milliseconds, rounded down. */
int64_t clock_boot_ms(void);

/** Returns the monotonic time in milliseconds, rounded down. */
int64_t clock_now_ms(void);

/** Returns the monotonic time in seconds. */
double clock_now_s(void);

/** Returns the time of day in microseconds since the epoch, rounded down. */
int64_t clock_epoch_us(void);

/** Returns the time of day in seconds since the epoch. */
double clock_epoch_s(void);

#endif
