/*
 * The outer of the launcher's two processes. It is the one a user sees: it relays signals, job control and the
 * exit status, and does nothing else. The inner one, its child, is the agent and the parent of all workers.
 *
 * Both are child subreapers and each watches the other by pidfd. Whichever is left when the other is killed
 * kills and reaps every descendant, sessions and double forks included, and ends. Killed both at once (one
 * SIGKILL to each before either has acted), the workers die by their parent-death signal; what those had
 * started themselves is then nobody's: that is the limit.
 *
 * Nothing stays stopped: the agent is woken by the guard's end (its parent-death signal is SIGCONT), and the guard stops
 * itself only as the answer to Ctrl-Z, never because the agent was stopped from outside.
 */
#ifndef AGENT_GUARD_H
#define AGENT_GUARD_H

#include <stdint.h>

#include "agent/os/os.h"

enum { GUARD_CLEANUP_MS = 5000 };

/* What the inner process gets. */
struct guard_inside {
    int guard_pidfd; /* readable once the guard is gone: then descendants_end() and leave */
    int leaves_fd;   /* for guard_leave() */
    const struct os_baseline *baseline;
    sigset_t mask; /* to set once handlers are in place: until then relayed signals wait, blocked */
};

struct guard_config {
    int64_t
        grace_ms; /* how long the agent may take after a signal that stops it; a slack later the guard ends it */
    /* Sets of signals, bit s for signal s. TSTP and CONT are relayed too; what was ignored at the start never is. */
    uint64_t relayed;
    uint64_t ending; /* of those: what stops the run */
};

/**
 * End the inner process with `status`, although a thread of it may be in a system call from which even SIGKILL does not
 * bring it back. Such a process is never reaped: the guard hears its status here, and leaves it behind.
 */
_Noreturn void guard_leave(const struct guard_inside *inside, int status);

/**
 * Fork; run `inner` in the child, which exits with what it returns; in the caller relay until it has ended.
 * Call it before any thread exists.
 *
 * Returns, in the guard only, the exit status to leave with: the agent's, or 128 + n when signal n killed it.
 */
int guard_run(int (*inner)(void *arg, const struct guard_inside *inside), void *arg,
              const struct guard_config *config);

#endif
