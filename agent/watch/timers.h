/*
 * Watchdog timers of the workers, in the protocol of PyTorch's FileTimerClient: one JSON object a line,
 *   {"version": 1, "pid": 4242, "scope_id": "step", "expiration_time": 1700000000.5, "signal": 9}
 * sets the timer `scope_id` of process `pid`, again if it is set already. A negative expiration_time releases
 * it. A signal of 0 or less asks only for a report. Times are those of the epoch clock. Pure:
 * agent/watch/timer_pipe.c reads the lines and the clock, and sends the signals.
 */
#ifndef AGENT_TIMERS_H
#define AGENT_TIMERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <fsdp/status.h>

enum { TIMERS_MAX = 4096, TIMERS_SCOPE_BYTES = 128, TIMERS_BLAMED_MS = 60000 };

struct timer_request {
    pid_t pid;
    char scope[TIMERS_SCOPE_BYTES]; /* a longer scope is cut */
    int64_t expires_us;             /* negative: released */
    int signal;                     /* 0: report only */
};

struct timers {
    struct timer_request *items; /* each pair of pid and scope at most once, in no particular order */
    size_t n, capacity;
};

void timers_fini(struct timers *timers);

/**
 * Parse a line without its newline. FSDP_ERR_FORMAT: it is no request. Keys other than the five are ignored.
 */
enum fsdp_status timers_parse(struct timer_request *request, const char *line, size_t length,
                              struct fsdp_err *err);

/**
 * Set or release a timer. Releasing one that is not set does nothing.
 *   FSDP_ERR_BUSY   there are TIMERS_MAX timers already
 *   FSDP_ERR_NOMEM  out of memory
 */
enum fsdp_status timers_take(struct timers *timers, const struct timer_request *request,
                             struct fsdp_err *err);

/** When the first timer expires; -1: none is set. */
int64_t timers_next_us(const struct timers *timers);

/** Remove the timer that expired first. False: none has expired at `now_us`. */
bool timers_pop(struct timers *timers, int64_t now_us, struct timer_request *expired);

/**
 * Did a timer end its process? The process got the signal `sent`, and ended `after_ns` later by the signal
 * `by` (0: by itself). True if the signals are equal, or if it ended within TIMERS_BLAMED_MS. A process that
 * lives longer has survived the signal, and ends for another reason.
 */
bool timers_ended(int sent, int by, int64_t after_ns);

/** Drop the timers of a process. */
void timers_drop(struct timers *timers, pid_t pid);
/** Drop the timers of processes for which `keep` returns false. */
void timers_sieve(struct timers *timers, bool (*keep)(void *arg, pid_t pid), void *arg);

/** Move all deadlines by `us`: the processes were stopped for that long. */
void timers_shift(struct timers *timers, int64_t us);

#endif
