/*
 * Shared by the files of agent/run. Which file owns which fields of struct run:
 *   - run.c begins a run and passes signals on: everything that the others do not own;
 *   - run_open.c opens directory, output, coordinator and world;
 *   - run_member.c is this node as a member of its coordinator's world: store, job_written, said_where,
 *     node_rank, and the status and lines of the end;
 *   - run_lead.c and the files of run_lead_impl.h know who leads the run: lead;
 *   - run_directory.c looks after the run directory: directory;
 *   - run_desk.c answers the commands over jobs: desk;
 *   - run_end.c ends a run: patience, ending, and what stands below it.
 */
#ifndef AGENT_RUN_IMPL_H
#define AGENT_RUN_IMPL_H

#include "agent/arbiter/arbiter.h"
#include "agent/cluster/coordinator.h"
#include "agent/cluster/store_host.h"
#include "agent/desk/desk.h"
#include "agent/desk/registry.h"
#include "agent/members/ended.h"
#include "agent/os/disk.h"
#include "agent/output/console.h"
#include "agent/output/output.h"
#include "agent/placement/placement_search.h"
#include "agent/record/error_reader.h"
#include "agent/record/errors.h"
#include "agent/record/events.h"
#include "agent/record/rundir.h"
#include "agent/rendezvous/nodes.h"
#include "agent/rendezvous/uplink.h"
#include "agent/run/run.h"
#include "agent/world/world.h"

enum {
    RUN_LINE_BYTES = 1024,
    RUN_WHERE_BYTES = RUNDIR_PATH_BYTES + ERRORS_PATH_BYTES + 64,
    RUN_ACCOUNT_BYTES = 16384,
    RUN_ENDING_BYTES = 3 * RUNDIR_PATH_BYTES + 1024
};

/** What the end of a run waits for (run_end.c). */
enum run_ending { RUN_GOES_ON = 0, RUN_WRITES, RUN_DRAINS, RUN_SETTLES, RUN_CLOSES };

/** Who leads the run (run_lead_impl.h). Unused without an arbiter. */
struct run_lead {
    struct arbiter *arbiter; /* NULL: there is no arbiter, and the node that hosts leads */
    uv_timer_t *tick;        /* for a leader: fires LEASE_BEATS times per lease; else see run_lead_impl.h */
    unsigned char identity[PROTO_IDENTITY_BYTES],
        leader[PROTO_IDENTITY_BYTES]; /* this agent's; its leader's */
    char host[PROTO_TEXT_BYTES];      /* with `port`: where members would reach this node, as it claimed */
    int port;
    bool leads;      /* this node leads, or is about to */
    bool takes_over; /* this node was a member, and becomes the leader with `past` */
    bool steps_down; /* this node was deposed as leader, and becomes a member with `past` */
    bool resigns, over;
    int exit_status; /* of the run, if it is over */
    int stopped_by;  /* the signal that asked this node to stop while it led or stepped down; 0: none */
    /* term: the one in which this node leads; let_in: the term of the leader that let this node in last */
    uint64_t term, let_in;
    /*
     * the work of the disk thread that takes the lock of the run directory after the leader is lost, or
     * releases it
     */
    struct disk_job lock;
    struct rundir *rundir;
    bool locking;    /* that job is under way */
    bool wants_lock; /* wants_lock: whether the job takes or releases the lock; did_lock: what it has done */
    bool did_lock;
    struct disk_job open; /* opens the run directory for a node that takes over */
    bool opening;         /* that job is under way */
    int open_ticks;       /* how many ticks this node still waits until the directory is open */
    struct events *events;
    struct fsdp_err open_err;
    bool locked_out;        /* another process has the lock, and this node hosts by the endpoint */
    int waited_ms;          /* how long the host by the endpoint has waited for the lead */
    int64_t fence_until_ms; /* CLOCK_BOOTTIME; 0: none */
    struct coordinator_past past;
};

/** Looks whether the run directory is still there (run_directory.c). */
struct run_directory {
    struct run *run;
    uv_timer_t tick;
    struct disk_job job;
    const struct rundir *rundir;
    /* how many looks in a row did not find the directory; the disk's thread writes it while `looking` */
    int n_gone;
    bool looking, said;
};

/** How the commands over jobs find and reach the run (run_desk.c). */
struct run_desk {
    struct disk_job job; /* makes the entry of the registry */
    struct registry_job about;
    struct registry_entry *entry; /* NULL: the run is not listed */
    int listen_fd;
    struct desk *desk; /* NULL: it answers nothing */
    int64_t began_ns;
    struct fsdp_err err;
};

struct run {
    uv_loop_t *loop;
    const struct agent_config *config;
    void (*done)(void *arg, int status, bool stuck);
    void *done_arg;

    /* search for the CPUs of the workers; while it runs, nothing else is open */
    struct placement_search *search;
    struct placement placement;
    /* status of the placement; if it is not FSDP_OK, there is no placement, and `unfit` has the reason */
    enum fsdp_status fit;
    char unfit[FSDP_ERR_MESSAGE_BYTES];

    struct disk *disk;                 /* NULL: this is the only node, and files are written on the loop */
    struct error_reader *error_reader; /* NULL: likewise */
    struct rundir *rundir;
    /* file access of the coordinator below the run directory; not freed if the disk is stuck; NULL: none */
    struct fsdp_io *io;
    struct events *events;
    struct console *console;
    struct output *output;
    const struct os_baseline *baseline;
    const struct lease *lease; /* NULL: the job has one node */
    /* connection of this node as a member, or while it meets the others; NULL: it is the coordinator */
    struct uplink *uplink;
    struct coordinator *coordinator; /* NULL unless this node is the coordinator */
    /* reports to the coordinator through one of these two; `to` is NULL before there is one */
    struct reporter reporter;
    struct run_lead lead;
    struct run_desk desk;
    struct nodes *nodes;      /* the other nodes, on the coordinator's node only; NULL: there are none */
    struct world *world;      /* NULL until it is decided which node coordinates */
    struct ended ended;       /* identities of agents that never come back, as far as this node knows */
    struct store_host *store; /* NULL: this node has never been told to open a store */
    uv_signal_t children;
    struct run_directory directory;
    int n_handles;
    bool job_written, said_where, captured;
    bool refused; /* the run never began, and its directory is removed if the run created it */
    int n_interrupts;
    int node_rank; /* rank of this node in the last generation; -1: it was in none */
    int status;
    char line[RUN_LINE_BYTES];
    bool explained; /* errors.json has more than the line */
    bool recorded;  /* errors.json is written */
    /* log of the rank that is the first cause, if it is on this node; empty: it is not */
    char log[ERRORS_PATH_BYTES];
    char account[RUN_ACCOUNT_BYTES]; /* text above that line: details about the failure */
    bool within_line;                /* the workers' output did not end in a newline */
    bool hurried;                    /* a signal to stop has come */

    uv_timer_t patience; /* looks at the disk while the end waits for it */
    enum run_ending ending;
    /* waited_ms: since this wait began; silent_ms: since the disk last completed something */
    int waited_ms, silent_ms;
    uint64_t progress; /* of the disk, at the last look */
    bool gave_up;      /* a disk was given up, and a line about that was printed */
    bool stuck;        /* a thread still waits for a disk, so it cannot be ended */
};

/* In run_member.c */

/** Performs the coordinator's messages for this node; `member` is the struct run. */
coordinator_tell run_member;
/** The function write_errors of the run's struct coordinator_services. */
void run_write_errors(void *run, char *text);

/**
 * Opens the run directory, if that was not done. Checks that all nodes share the one that a program's user
 * named: the coordinator has written a mark to it before it told any node to start. `arg` is the struct run.
 * Thread: the disk's.
 */
enum fsdp_status run_check_directory(void *arg, const struct world_plan *plan, struct fsdp_err *err);

/** Closes what only the coordinator needs. It is destroyed, and the disk is idle. */
void run_close_as_coordinator(struct run *run);

/* Run_lead.c, and the files of run_lead_impl.h */

/** Begins to watch who leads, if an arbiter says so. */
enum fsdp_status run_lead_open(struct run *run, struct fsdp_err *err);
/** Adds what the uplink asks the arbiter. */
void run_lead_handlers(const struct run *run, struct uplink_handlers *handlers);
/**
 * This node leads, and other nodes come to `rendezvous`. Fills in those members of `services` through which
 * the coordinator works with the arbiter.
 */
void run_lead_begin(struct run *run, struct rendezvous *rendezvous, struct coordinator_services *services);
/**
 * Returns in `out` what decides whether beats of members may be answered. NULL: there is no arbiter, and all
 * beats are answered.
 */
const struct pulse_lead *run_lead_pulses(struct run *run, struct pulse_lead *out);
/** A generation begins, in which this node has the node rank `node_rank`. */
void run_lead_sit(struct run *run, int node_rank);
/** A generation begins: tries to take the lock of the run directory, unless this node has it. */
void run_lead_lock(struct run *run);
/** This node takes over: the run uses what was opened of the run directory while it waited. */
void run_lead_take_directory(struct run *run);
/** The coordinator has ended. Was it deposed, so that this node joins again and the run goes on here? */
bool run_lead_steps_down(const struct run *run);
/** The run is over, with this status. */
void run_lead_resign(struct run *run, int exit_status);
/**
 * Returns whether the arbiter has no call in progress. If one is, run_lead_wait() makes the arbiter call
 * run_lead_answered() when it is done.
 */
bool run_lead_is_over(const struct run *run);
void run_lead_wait(struct run *run);
void run_lead_close(struct run *run);

/* In run_desk.c */

/**
 * Enters the run into the registry, and begins to answer. Called once the run goes on, so that no worker is
 * started later for it.
 */
void run_desk_open(struct run *run);
/** Leaves the registry, with run->status and run->line as the end. */
void run_desk_close(struct run *run);

/* In run_open.c */

/** Makes run->rundir, if the run has a directory. Touches no file: rundir_begin() must follow. */
enum fsdp_status run_name_directory(struct run *run, struct fsdp_err *err);
/** Opens the run directory, if the run has one, and creates it if it is missing, but does not lock it. */
enum fsdp_status run_open_directory(struct run *run, struct fsdp_err *err);
/**
 * Opens the parts that a member needs. Called for each generation until it succeeds; parts that an earlier
 * try opened are kept.
 */
enum fsdp_status run_open_as_member(struct run *run, struct fsdp_err *err);
/**
 * Opens the parts that the coordinator needs, as far as this node has not opened them as a member. The world
 * is opened last, because only the world must be ended before it may be destroyed. Parts that are open after
 * a failure stay open.
 *   rendezvous  the connections of the other nodes; taken, also after a failure; NULL: there are none
 */
enum fsdp_status run_open_as_coordinator(struct run *run, struct rendezvous *rendezvous,
                                         struct fsdp_err *err);

/* In run.c */

/** Prints a line of fsdprun on the console, or on stderr if there is no console yet. */
void run_say(const struct run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Asks for the end of the run as a signal does; `save`: after a checkpoint. */
void run_end_by(struct run *run, int signal, bool save);

/** Begins to meet the other nodes. */
enum fsdp_status run_meet(struct run *run, struct fsdp_err *err);
/** Ends a run that cannot begin. Everything open is closed, as at any other end. */
void run_refuse(struct run *run, int exit_status, const char *why);
/*
 * Ends the run as run_refuse() does, because of a signal that came before any worker could save or receive
 * it.
 */
void run_stop_before_start(struct run *run, int signal);

/* In run_directory.c */

/** Begins to look whether the run directory of the coordinator is still there. */
void run_watch_directory(struct run *run);

/* In run_end.c */

/**
 * Begins to end the run on this node: its world has ended, or it never had one. Does not block. The loop ends
 * the run later, after the waits that run_end.c lists: for the disk, and for readers of the output. `arg` is
 * the struct run.
 */
void run_world_ended(void *arg);

/**
 * The arbiter has no call in progress any more, so the end of the run may go on if it waited for that. `run`
 * is the struct run.
 */
void run_lead_answered(void *run);

/** Removes a temporary directory that was made for this run, if the run never began. */
void run_discard_directory(struct run *run);

#endif
