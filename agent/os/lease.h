/*
 * The lease of a node of a job of several nodes: until when its ranks may run without a word of the
 * coordinator. The guard makes it before it forks, so that guard and agent share its page and its timer:
 *   1. The agent extends the lease with each answer of the coordinator.
 *   2. The agent puts the ranks of a generation under the lease before it starts them.
 *   3. When the lease is over, the guard kills the ranks (agent/os/guard_lease.h), whatever the agent does:
 *      it may be stopped, or blocked.
 * The coordinator begins no other generation before the lease of a lost node must be over. So at most one
 * generation runs, also while the nodes cannot reach each other.
 *
 * The page also keeps what the agent leaves to the guard, for the case that it is killed (lease_bequeath()).
 *
 * All times are those of CLOCK_BOOTTIME: a host that was suspended finds its lease over when it wakes.
 */
#ifndef AGENT_LEASE_H
#define AGENT_LEASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

enum { LEASE_WILL_BYTES = 192 };

struct lease_page;

struct lease {
    struct lease_page *page; /* NULL: the job has one node, and there is no lease */
    int timer;               /* a timerfd that wakes the guard */
};

/**
 * Make a lease that has ended, with no generation under it. Processes that are forked later share it.
 * FSDP_ERR_IO: the system refused it, and nothing was made.
 */
enum fsdp_status lease_create(struct lease *lease, struct fsdp_err *err);
void lease_destroy(struct lease *lease);

/**
 * The agent calls this: the coordinator has answered a question that was sent at `sent_ns`. The lease never
 * gets shorter by that, and a lease that has ended stays ended. Thread: any of the agent's.
 */
void lease_extend(const struct lease *lease, int64_t sent_ns, int64_t lease_ms);
/**
 * The agent calls this when it joins and no generation is under the lease. Earlier answers do not count any
 * more.
 */
void lease_clear(const struct lease *lease);
/** The agent asks: does the lease still run, so that a generation may begin? */
bool lease_runs(const struct lease *lease);
/** The agent calls this: from now on, the ranks of this generation are under the lease. */
void lease_begin(const struct lease *lease, int generation);
/** The agent calls this: no process of the generation is left. */
void lease_end(const struct lease *lease);
/**
 * Have the ranks that are under the lease lost the right to run? Always false without a lease, and while no
 * generation is under it. Once true, it stays true until lease_end(). A child may call it between clone and
 * exec.
 */
bool lease_is_over(const struct lease *lease);
/** The agent asks: for how many milliseconds has the lease been over? 0: it still runs. */
int64_t lease_over_ms(const struct lease *lease);
/**
 * The agent calls this to leave these bytes to the guard, in place of earlier ones. At most LEASE_WILL_BYTES;
 * 0 bytes: leave nothing. If the agent is killed within the call, the guard finds the earlier ones.
 */
void lease_bequeath(const struct lease *lease, const void *will, size_t n_bytes);
/** The guard asks for the lease_ms of the last answer; 0: there was no answer. */
int64_t lease_answered_ms(const struct lease *lease);
/**
 * The guard calls this after the agent's end, to take what the agent has left. Returns false if that is not
 * exactly n_bytes.
 */
bool lease_inherit(const struct lease *lease, void *will, size_t n_bytes);

/**
 * The guard asks when the lease ends. 0: no generation is under it. INT64_MIN: it has ended, for good. If its
 * time has passed, this very call ends it.
 */
int64_t lease_look(const struct lease *lease);
/** Wake the guard at this time. */
void lease_wake_at(const struct lease *lease, int64_t when_ns);

#endif
