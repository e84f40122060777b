/*
 * Inside agent/run: run.c begins a run, passes signals on and ends it; run_open.c makes its parts; run_member.c stands between its coordinator and
 * the world of this node.
 */
#ifndef AGENT_RUN_IMPL_H
#define AGENT_RUN_IMPL_H

#include "agent/cluster/coordinator.h"
#include "agent/cluster/nodes.h"
#include "agent/cluster/uplink.h"
#include "agent/output/console.h"
#include "agent/output/logs.h"
#include "agent/output/relay.h"
#include "agent/placement/placement_search.h"
#include "agent/record/errors.h"
#include "agent/record/events.h"
#include "agent/record/rundir.h"
#include "agent/run/run.h"
#include "agent/world/world.h"

enum { RUN_LINE_BYTES = 1024, RUN_WHERE_BYTES = 2 * 4096 + 64, RUN_ACCOUNT_BYTES = 16384 };

struct run {
    uv_loop_t *loop;
    const struct agent_config *config;
    void (*done)(void *arg, int status, bool stuck);
    void *done_arg;

    struct placement_search
        *search; /* where the workers are to run is being found out; nothing else is open */
    struct placement placement;
    enum fsdp_status fit; /* of the placement; not FSDP_OK: there is none, and `unfit` says why */
    char unfit[FSDP_ERR_MESSAGE_BYTES];

    struct rundir *rundir;
    struct fsdp_io *io; /* the coordinator's, below the run directory; it stays with one that is stuck; NULL: none */
    struct events *events;
    struct console *console;
    struct logs *logs;
    struct relay *relay; /* of what a program inherits; NULL: it inherits nothing */
    const struct os_baseline *baseline;
    struct uplink *uplink; /* of several nodes: we meet, or are a member; NULL: we are the coordinator */
    struct coordinator *coordinator; /* NULL unless we are */
    struct nodes *nodes;             /* the other nodes, on the coordinator's; NULL where there are none */
    struct world *world;             /* NULL while it is open who coordinates */
    uv_signal_t children;
    uv_timer_t disk;
    int n_handles;
    bool job_written, said_where, stuck, captured, closing;
    bool refused; /* it never began: its directory goes as it came */
    int n_interrupts;
    int node_rank; /* of this node in the last generation; -1: it was in none */
    int status;
    char line[RUN_LINE_BYTES];
    char where[RUN_WHERE_BYTES];     /* files with more about it, as a line; empty: none */
    char account[RUN_ACCOUNT_BYTES]; /* what is shown above the line */
    bool within_line;                /* the output before them has no end of line */
    bool hurried;                    /* a signal to stop has come */
};

/* --- run_member.c --- */

/** This node as a member of its coordinator's world; the member is the struct run. */
extern const struct coordinator_member run_member;
/** What the world tells, on its way to the coordinator. */
struct world_listener run_world_listener(struct run *run);

/* --- run_open.c --- */

/** For each generation until it succeeds: what an earlier try opened is kept. */
enum fsdp_status run_open_as_member(struct run *run, struct fsdp_err *err);
/**
 * The world last: it alone has to be ended before it may be destroyed. What is open after a failure stays.
 *   rendezvous  where the other nodes come; taken, on failure too; NULL: there are none
 */
enum fsdp_status run_open_as_coordinator(struct run *run, struct rendezvous *rendezvous,
                                         struct fsdp_err *err);

/* --- run.c --- */

/** A line of our own on the console, or on stderr where there is none yet. */
void run_say(const struct run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** The world is over, or there is none: drain what was written, and end. `arg` is the struct run. */
void run_world_ended(void *arg);

#endif
