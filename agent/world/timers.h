/*
 * Watchdog timers of the workers, in the protocol of PyTorch's FileTimerClient: one JSON object a line,
 *   {"version": 1, "pid": 4242, "scope_id": "step", "expiration_time": 1700000000.5, "signal": 9}
 * sets (or sets anew) the timer `scope_id` of process `pid`; a negative expiration_time releases it. A signal of 0 or
 * less asks for a report only. Times are of the epoch clock. Pure: agent/world/timer_pipe.c reads the lines, knows the time
 * and sends the signals.
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
    char scope[TIMERS_SCOPE_BYTES]; /* a longer one is cut */
    int64_t expires_us;             /* negative: released */
    int signal;                     /* 0: report only */
};

struct timers {
    struct timer_request *items; /* each (pid, scope) at most once, in no order */
    size_t n, capacity;
};

void timers_fini(struct timers *timers);

/** One line, without its newline. FSDP_ERR_FORMAT: it is no request. Other keys than the five are let be. */
enum fsdp_status timers_parse(struct timer_request *request, const char *line, size_t length,
                              struct fsdp_err *err);

/** Set or release. FSDP_ERR_BUSY: there are TIMERS_MAX already; FSDP_ERR_NOMEM. Releasing what is not set is well. */
enum fsdp_status timers_take(struct timers *timers, const struct timer_request *request,
                             struct fsdp_err *err);

/** When the first one expires; -1: none is set. */
int64_t timers_next_us(const struct timers *timers);

/** Take the one that expired first out of the set; false when none has at `now_us`. */
bool timers_pop(struct timers *timers, int64_t now_us, struct timer_request *expired);

/**
 * Did a timer end its process, which was sent `sent` and ended `after_ns` later by the signal `by` (0: by itself)? By that
 * very signal, or before TIMERS_BLAMED_MS: who lives on for longer has survived it, and dies of something else.
 */
bool timers_ended(int sent, int by, int64_t after_ns);

/** Forget those of a process. */
void timers_drop(struct timers *timers, pid_t pid);
/** Forget those of which `keep` is false. */
void timers_sieve(struct timers *timers, bool (*keep)(void *arg, pid_t pid), void *arg);

/** All of them expire so much later: nothing of ours ran meanwhile. */
void timers_shift(struct timers *timers, int64_t us);

#endif
