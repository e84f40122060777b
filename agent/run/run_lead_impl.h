/*
 * Shared by the files that know who leads the run (struct run_lead). Which file owns what of it:
 *   - run_lead.c takes what the arbiter says, opens it and resigns: arbiter, identity, leads, takes_over,
 *     term, resigns, over, exit_status, fence_until_ms, past;
 *   - run_lead_claim.c is this node before it leads: host, port, let_in, leader, locked_out, waited_ms;
 *   - run_lead_hold.c is this node as the leader, until it is deposed: steps_down. It reads stopped_by, which
 *     run.c sets;
 *   - run_lead_directory.c opens and locks the run directory for a node that takes over: what stands from
 *     `lock` to `open_err`.
 * The timer, `tick`, belongs to the file that has started it last: a node waits for the lead, opens the
 * directory, leads or steps down, one after another.
 *
 * The functions that other files of agent/run call are in run_impl.h.
 */
#ifndef AGENT_RUN_LEAD_IMPL_H
#define AGENT_RUN_LEAD_IMPL_H

#include "agent/run/run_impl.h"

/* In run_lead_claim.c */

/** Ends the wait for the lead. */
void run_lead_end_wait(struct run *run);

/* In run_lead_hold.c */

/** This node may not lead any more, as `words` say. No effect if it does not lead. */
void run_lead_end(struct run *run, const char *words);

/* In run_lead_directory.c */

/** Opens the run directory on the disk's thread. When it is open, the node takes over. */
void run_lead_open_directory(struct run *run);
/**
 * Has the lock of the run directory taken if it is free (`wanted`), or released. The disk's thread does it,
 * and nothing waits for that.
 */
void run_lead_want_lock(struct run *run, bool wanted);
/**
 * Returns whether this leader has the lock that a host by the endpoint tries when it is started again. The
 * first leader has it. One that took over may still wait for it. With an etcd, each node may have a run
 * directory of its own, so the lock shows nothing.
 */
bool run_lead_has_lock(const struct run *run);

#endif
