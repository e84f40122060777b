/*
 * The guard: the outer of the launcher's two processes, and the one that a user sees. It relays signals, job
 * control and the exit status, and does nothing else. The inner process, its child, is the agent and the
 * parent of all workers.
 *
 * Both are child subreapers, and each watches the other by pidfd. If one is killed, the other kills and reaps
 * every descendant, including other sessions and double forks, and ends. The limit: if both are killed before
 * either can act, the workers die by their parent-death signal, but processes that workers had started go on.
 *
 * On a node of several, the guard also kills the ranks when the node's lease is over (agent/os/lease.h). If
 * the agent is killed, it tells the coordinator that no process of the node is left (agent/wire/swept.h).
 *
 * Nothing stays stopped. The guard's end wakes the agent (its parent-death signal is SIGCONT). The guard
 * stops itself only after Ctrl-Z, never because the agent was stopped from outside. With a lease it does so
 * only if every rank is stopped.
 */
#ifndef AGENT_GUARD_H
#define AGENT_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/os/lease.h"
#include "agent/os/os.h"

enum { GUARD_CLEANUP_MS = 5000 };

/* The values that guard_run() passes to the inner process. */
struct guard_inside {
    /* readable once the guard is gone; the inner process then calls descendants_end() and exits */
    int guard_pidfd;
    int leaves_fd; /* used by guard_leave() */
    const struct os_baseline *baseline;
    const struct lease *lease; /* the node's lease; NULL: the job has one node */
    /* the signal mask to set once handlers are in place; until then relayed signals stay blocked */
    sigset_t mask;
};

struct guard_config {
    /*
     * how long the agent may take after a signal that ends the run; the guard kills it some time after that
     */
    int64_t grace_ms;
    /*
     * the node's own setting of the lease, as long as it does not know the leader's (guard_lease_slack_ms())
     */
    int64_t lease_ms;
    /*
     * Sets of signals: bit s stands for signal s. TSTP and CONT are relayed in addition. A signal that was
     * ignored at the start is never relayed.
     */
    uint64_t relayed;
    uint64_t ending; /* those of `relayed` that end the run */
    bool leased;     /* the job has several nodes: make a lease, and kill the ranks when it ends */
    /*
     * Called in the guard if the agent has ended and no process below it is left; the guard ends after the
     * call. Only if there is a lease. lease_inherit() takes from it what the agent has left.
     */
    void (*swept)(void *arg, const struct lease *lease);
    void *swept_arg;
};

/**
 * End the inner process with `status`, even if one of its threads is in a system call that SIGKILL cannot
 * end. Such a process is never reaped, so this tells the guard the status, and the guard ends without it.
 */
_Noreturn void guard_leave(const struct guard_inside *inside, int status);

/**
 * Fork. The child runs `inner` and exits with its result; the caller relays until the child has ended. Call
 * it before any thread exists.
 *
 * Returns in the guard only: the exit status for the guard, which is the agent's, or 128 + n if signal n
 * killed the agent.
 */
int guard_run(int (*inner)(void *arg, const struct guard_inside *inside), void *arg,
              const struct guard_config *config);

#endif
