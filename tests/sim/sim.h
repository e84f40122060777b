/*
 * A deterministic simulation of several nodes. The product's own code runs in it: agent/run, the arbiter,
 * meeting, sessions, rendezvous, uplink, coordinator and the state machine of the world. The simulation
 * replaces what is below that code, by functions of the same names that the linker takes first:
 *   loop.c      libuv's loops and timers, the clocks, random bytes and look-ups of names
 *   net.c       connections between hosts, as their kernels have them
 *   peer.c      agent/wire/peer.h: what a process sees of them
 *   disk.c      agent/os/disk.h and agent/arbiter/arbiter_thread.h: threads whose calls may take long
 *   ranks.c     agent/world/world.h: the workers of a node, driven by agent/world/world_fsm.h
 *   lease.c     agent/os/lease.h: the lease of a node, and its guard
 *   pulse.c     agent/rendezvous/pulse_*.h: the threads of the beats, and the datagrams
 *   store.c     agent/cluster/store_host.h: the store of a program's generation
 *   output.c    agent/output: what fsdprun says
 *   rundir.c    agent/record/rundir.h: a run directory that all hosts share
 *   leader_store.c  how a host reaches the store of the arbiter (tests/sim/arbiter/store.h)
 *   agent.c     one fsdprun, from its start to its end
 *   faults.c    what happens to the nodes of one seed
 *   oracle.c    what must hold after each event
 *   nodes.c     one history
 * A function that is new in a header of these is needed here too: else the linker takes both files, and says
 * so.
 *
 * tests/sim/history.h has what every simulation needs.
 */
#ifndef SIM_H
#define SIM_H

#include <setjmp.h>
#include <uv.h>

#include "agent/cluster/coordinator_impl.h"
#include "agent/config.h"
#include "agent/os/lease.h"
#include "agent/run/run_impl.h"
#include "agent/world/world_fsm.h"
#include "tests/sim/history.h"

enum { SIM_HOSTS = 6, SIM_WORKERS = 2, SIM_LIVES = 40, SIM_TAG_BYTES = 32 };
#define NEVER INT64_MAX

/* One rank of a node. */
struct rank {
    struct rank *next; /* in the list of its world; a dead rank leaves the list when it is reaped */
    struct process *owner;
    struct formed *formed; /* its generation */
    int number;
    bool alive;
    int sent_signal;
    bool killed;
    bool asleep;          /* inside the kernel: KILL was sent, and it ends much later */
    enum death_kind kind; /* how it ended */
    int code;
};

/* A generation that some coordinator has formed. */
struct formed {
    struct formed *next;
    struct process *leader;
    uint64_t term; /* 0: no arbiter says who leads */
    int generation, world_size, n_started;
    size_t n_ended;          /* agents of which its leader knew that they never come back */
    bool broken;             /* one of its ranks has failed: the others wait for it without end */
    unsigned char token[32]; /* names it in every START */
    int64_t at, over_at; /* over_at: a later one was formed, or its leader leads no more; NEVER: not yet */
    int64_t stall_at[SIM_HOSTS];                           /* host.stalled_ns when it was over */
    struct process *ranks_of[SIM_HOSTS * SIM_WORKERS + 1]; /* the process that has each rank */
};
extern struct formed *sim_formed; /* newest first */

/* The workers of one fsdprun. */
struct world {
    struct process *process;
    struct world_services services;
    struct reporter reporter;
    int n_timers;
    enum world_state state;
    struct formed *formed;
    int generation;
    bool lost, noticed;
    int stop_signal;
    uv_timer_t deadline;
    int64_t deadline_ms; /* by the loop's clock; 0: none */
    uv_timer_t chatter;  /* its workers put keys, ask for keys, and write events */
    uint64_t n_put;
    struct rank *ranks;
    struct rank *left; /* that KILL did not end in time */
};

/* One fsdprun. It is never freed: a history is short, and a process that was killed frees nothing. */
struct process {
    struct host *host;
    int life; /* 1: the first of its host */
    bool alive;
    int status; /* exit status; -1: it runs, or was killed */

    /* its loop */
    uv_loop_t loop;
    int64_t turn_at; /* time of the next turn */
    uint64_t turn_number, n_timers_started, loop_ms;
    uv_timer_t *timers;
    uv_idle_t *idles;
    uv_check_t *checks;
    uv_handle_t *closing;
    struct work *works;
    struct peer *peers; /* all that are not closed */
    struct peer *ready, **ready_end;
    struct peer_listener *listeners;

    /* the product */
    struct agent_config config;
    struct lease lease;
    struct run *run; /* NULL: it is over */
    struct world world;
    bool prepares;               /* a search for a checkpoint is under way */
    void (*prepared)(void *arg); /* who waits for its end; NULL: nobody */
    void *prepared_arg;
    bool leaving, stuck;
    int64_t ended_at;

    int seen_restarts;              /* of its coordinator */
    const struct coordinator *seen; /* the one that they are of */
    int known_restarts;             /* that a START has told it */
    int64_t none_stands_until;      /* of the agents that it let in, as its pulses say */

    uint64_t n_sends, crash_at_send; /* it is killed at that send; 0: never */
};

struct host {
    int number;
    bool down;
    int64_t offset_ns;
    double rate;
    /* Until then its agent stands still. `suspended`: its clock and its ranks too. */
    int64_t stalled_until;
    bool suspended;
    bool busy;                        /* only its loop stands still: its threads go on */
    int64_t suspended_ns, stalled_ns; /* in all */
    int64_t store_cut_until;          /* it does not reach the store of the arbiter */
    struct process *process;          /* the newest one; NULL: none yet */
    int n_lives;
};

/* The plan of a seed. */
struct plan {
    int n_hosts, min_nodes, max_nodes, n_workers, max_restarts;
    bool job;
    int64_t lease_ms, grace_ms, join_ms, last_call_ms, work_ns;
    int64_t chatter_ms; /* workers of a node report something so often; 0: never */
    int fails_one_in;   /* ranks that fail by themselves; 0: none */
    int ignores_one_in; /* ranks that ignore TERM */
    int sleeps_one_in;  /* ranks that KILL does not end at once */
    int64_t delay_ns;   /* usual delay of a message */
    int loses_one_in, spikes_one_in;
    int64_t last_fault;
    bool gentle; /* every fault is shorter than what a session has to bridge */
    bool quiet;  /* no fault at all */
    bool pulses; /* datagrams pass */

    bool arbiter;     /* an arbiter says who leads */
    bool etcd;        /* it is an etcd */
    bool no_endpoint; /* ... which takes the place of an endpoint too */
    bool has_run_dir; /* all hosts share one */
    bool takes_over;  /* the leader is lost once, and nothing else happens: the job bears it */
    int64_t store_ns; /* usual time of a call of its store */
    int store_slow_one_in, store_fails_one_in, store_loses_one_in;
};
extern struct plan sim_plan;
extern struct host sim_hosts[SIM_HOSTS];
extern struct process *sim_current; /* whose turn it is */
extern jmp_buf sim_turn;            /* where a process that dies within its turn goes */

/* loop.c */
int64_t sim_clock_of(const struct host *host);
/** The process has something to do: its loop turns soon. */
void sim_wake(struct process *process);
void sim_loop_begin(struct process *process);
/** Call `run` in a turn of the process, after that time. */
void sim_later(struct process *process, int64_t after_ns, void (*run)(void *arg), void *arg);
/** Does its loop have nothing left that could call it back? */
bool sim_loop_is_empty(const struct process *process);

/* net.c */
/** Does a datagram pass now? If so, *delay_ns receives how long it takes. Draws of SIM_PULSES. */
bool sim_net_passes(const struct host *from, const struct host *to, int64_t *delay_ns);
/** May a message pass from one host to another now? */
extern bool sim_cut[SIM_HOSTS][SIM_HOSTS];
/** Call the handlers of what has arrived. */
void sim_net_deliver(struct process *process);
/** The process is gone, and its kernel closes what it had open. `silent`: the host is gone too. */
void sim_net_end(struct process *process, bool silent);
/** Reset every connection between two hosts (`ss -K`). */
void sim_net_reset(int a, int b);

/* disk.c */
/** The call that the running thread makes takes so long. */
void sim_block(int64_t for_ns);

/* ranks.c */
/** Print a name of the generation into `out` (SIM_TAG_BYTES): what belongs to it carries that name. */
void sim_tag(char *out, const struct process *leader, int generation);
/** The process is gone, and its ranks with it. */
void sim_world_end(struct process *process, bool silent);

/** The guard sends KILL to all ranks of the process. */
void sim_world_sweep(struct process *process);

/* store.c */
/** A generation begins on a node: is its store where it belongs? */
void sim_check_store(const struct process *process, const struct world_plan *plan);

/* lease.c */
void sim_lease_make(struct process *process);
/** For how long the lease of its ranks has been over; NEVER: they are under none. */
int64_t sim_lease_over_ns(const struct process *process);

/* agent.c */
void sim_start(struct host *host);
/** Kill it: SIGKILL to the agent, and sometimes to its guard too; `silent`: the whole host ends. */
void sim_kill(struct process *process, bool silent);
/** It gets that signal, `times` times. */
void sim_signal(struct process *process, int signal, int times);
/** NULL: it does not coordinate. */
struct coordinator *sim_coordinator(const struct process *process);
/** It leads, by the arbiter's leave. Others cannot know whether it stands still. */
bool sim_leads(const struct process *process);
void sim_stall(struct host *host, int64_t for_ns, bool suspended);
/** Only its loop stands still. */
void sim_busy(struct host *host, int64_t for_ns);

/* faults.c */
void sim_make_plan(uint64_t seed);
void sim_schedule(void);

/* oracle.c */
void sim_check(struct process *process);
void sim_check_end(void);
/** The running process claims the lead. `let_in`: the term of the leader that had let it in when it asked. */
void sim_check_claim(uint64_t let_in);
/** The state of the process before its parts are destroyed. */
void sim_check_start(struct process *process, const struct world_plan *plan);

#endif
