/*
 * The real nodes of one job on this machine: each is an fsdprun, at one endpoint of loopback. Starts, kills
 * and ends them, and reads what their run directory says of a loss.
 *
 * A node is known by the pid of its guard, the process that fsdprun is. Its agent is the guard's only child.
 * Each function ends the bench if it fails.
 */
#ifndef TESTS_BENCH_REAL_NODES_H
#define TESTS_BENCH_REAL_NODES_H

#include <stdbool.h>
#include <sys/types.h>

enum { REAL_NODES_MOST = 4096 };

struct real_job {
    const char *fsdprun, *secret_file, *log_file; /* borrowed; all nodes append what they print to the log */
    /*
     * borrowed; NULL: there is none, so no other node can take the lead, and the nodes print only errors
     */
    const char *run_dir;
    int n_nodes, port, lease_ms;
    int n;                         /* nodes that were started */
    pid_t guards[REAL_NODES_MOST]; /* (n) */
};

/* What the run directory says of the last restart; see "The timeline of a restart" in docs/operations.md. */
struct real_restart {
    double spawned_at; /* when the last worker of the next generation was started: CLOCK_REALTIME, in s */
    double fenced_s, spawned_s; /* since the last sign of life of the lost node */
    int term;                   /* of the leader; each node that takes the lead has a higher one, from 1 on */
};

/**
 * Start the next node of `job`, with one worker that runs `program` with `argument` (NULL: none). The first
 * n_nodes take the seats in this order, and those after them are spares. Returns its guard, which dies with
 * the bench.
 */
pid_t real_job_start(struct real_job *job, const char *program, const char *argument);

/** Wait until all nodes have ended with 0. */
void real_job_wait(struct real_job *job);

/** Ask all nodes to end, and wait until they have. */
void real_job_stop(struct real_job *job);

/** Wait until `n` lines of the log have `words`. */
void real_job_await(const struct real_job *job, const char *words, int n);

/** Wait until `n` workers were started since the job began. Needs a run directory. */
void real_job_await_workers(const struct real_job *job, int n);

/** Wait until another generation runs. Needs a run directory, and a job that has restarted once. */
void real_job_await_restart(const struct real_job *job, struct real_restart *restart);

/** Returns the agent of this guard. */
pid_t real_node_agent(pid_t guard);

/** Kill the agent of a node, and its guard at the same time if `guard_too`, as if the host lost power. */
void real_node_kill(pid_t guard, bool guard_too);

#endif
