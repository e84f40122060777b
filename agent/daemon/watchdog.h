/*
 * systemd's watchdog (WatchdogSec=). systemd kills a service that has not sent WATCHDOG=1 for a whole period.
 *
 * A timer of the loop notes the time, eight times in a period. A thread of its own looks four times in a
 * period, and sends while that note is younger than half a period. So a service whose loop hangs is killed
 * after at most one and a half periods. One whose loop hangs for less than a period is never killed.
 */
#ifndef AGENT_DAEMON_WATCHDOG_H
#define AGENT_DAEMON_WATCHDOG_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include <fsdp/status.h>

/* One watchdog. Zero it; watchdog_begin() fills it in. */
struct watchdog {
    int64_t period_ms; /* 0: no signs of life are asked for */
    uv_timer_t timer;
    pthread_t thread;
    int end_fd;              /* the thread ends once this can be read */
    _Atomic int64_t beat_ms; /* when the loop last ran the timer */
};

/**
 * The period that systemd demands, or 0.
 *   usec, pid  the values of WATCHDOG_USEC and WATCHDOG_PID; NULL: not set
 *   self       the process id of the caller: what is meant for another process does not count
 */
int64_t watchdog_period_ms(const char *usec, const char *pid, pid_t self);

/**
 * Send signs of life from now on, if the environment demands them. The timer does not keep the loop going.
 *   FSDP_ERR_IO  the thread cannot be started
 */
enum fsdp_status watchdog_begin(struct watchdog *watchdog, uv_loop_t *loop, struct fsdp_err *err);

/** End the thread and close the timer. The loop must run once more before it is closed. */
void watchdog_end(struct watchdog *watchdog);

/** Is the loop alive at `now_ms`, if its timer last ran at `beat_ms`? */
bool watchdog_is_alive(int64_t period_ms, int64_t beat_ms, int64_t now_ms);

#endif
