/*
 * The workers of this node, from one generation to the next. It performs the actions of
 * agent/world/world_fsm.h on a libuv loop. The coordinator (in this process, or on another node) tells it
 * what to do, and gets its reports.
 *
 * It treats every child of this process as its own. So a process may have one world at a time, and start no
 * other children. Thread: the loop's, which must be the main thread of the process (PR_SET_PDEATHSIG).
 */
#ifndef AGENT_WORLD_H
#define AGENT_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "agent/config.h"
#include "agent/os/os.h"
#include "agent/output/console.h"
#include "agent/output/output.h"
#include "agent/world/reporter.h"
#include "agent/world/worker.h"

struct world;

/* What a world uses; borrowed until `ended` is called. */
struct world_services {
    uv_loop_t *loop;
    const struct agent_os *os;
    const struct os_baseline *baseline;
    const struct placement *placement; /* of the workers, in every generation */
    struct disk *disk;                 /* does what may wait for a disk; NULL: the loop does */
    struct error_reader *error_reader; /* reads the error files of workers; NULL: the loop does */
    struct rundir *rundir;             /* NULL: none */
    struct output *output;             /* NULL: workers write to this process's own streams */
    struct console *console;           /* NULL: lines go to descriptor 2 */
    /*
     * Optional: looks at the run directory of this node before a generation opens files in it. An error ends
     * the generation, with its status. Thread: the disk's.
     */
    enum fsdp_status (*check)(void *arg, const struct world_plan *plan, struct fsdp_err *err);
    void *check_arg;
    const struct lease *lease; /* this node's lease (agent/os/lease.h); NULL: none */
    /* Called once after world_end(), when every handle is closed. Then world_destroy() may be called. */
    void (*ended)(void *arg);
    void *ended_arg;
};

enum fsdp_status world_create(struct world **out, const struct agent_config *config,
                              const struct world_services *services, const struct reporter *reporter,
                              struct fsdp_err *err);
/** From now on, reports go to `reporter`. Call it only while the world is stopped. */
void world_report_to(struct world *world, const struct reporter *reporter);
void world_destroy(struct world *world); /* after `ended`; NULL is a no-op */

/* Calls of the coordinator: */
void world_form(struct world *world, const struct world_plan *plan); /* only when stopped */
/*
 * Ask the workers to end by `signal`, with the grace before KILL; `now`: without the grace. `signal` 0 means
 * TERM because a rank of the world failed. Workers that wait for that rank in a collective, and may ignore
 * TERM, learn of it.
 */
void world_stop(struct world *world, int signal, bool now);
/**
 * A node of this generation is lost. From now on the workers' grace period is at most LOST_GRACE_MS, also if
 * it has begun.
 */
void world_lost(struct world *world);
void world_notify(struct world *world, const struct fsdp_link_notice *notice);
void world_take_entry(struct world *world, const struct snapshot_entry *entry); /* PROTO_ENTRY */
void world_publish(struct world *world, const struct fsdp_link_published *published);
void world_put(struct world *world, int generation, const char *key, const void *value, size_t size_bytes);
/*
 * Report what every worker is doing, as the answer to question number `question`. `shown_ns`: how long ago
 * any node saw a strong sign of life of the ranks (agent/watch/hang_life.h); INT64_MAX: not known.
 */
void world_answer(struct world *world, int generation, uint64_t question, int64_t shown_ns);
/* A rank of another node hangs: report what the processes of all workers show (`explained`). */
void world_show(struct world *world, int generation);
/*
 * Rank `rank` of this node hangs, for the reason in `words`: report that, unless the rank has gone on since.
 */
void world_hung(struct world *world, int generation, int rank, const char *words);
void world_end(struct world *world); /* only when stopped */

/*
 * The next functions are for signals that this process gets: children may have ended (SIGCHLD); Ctrl-Z and
 * fg; a signal to forward.
 */
void world_reap(struct world *world);
void world_suspended(struct world *world, int64_t slept_ns); /* every deadline moves by slept_ns */
/* forward the signal to the workers; it ends nothing */
void world_forward(struct world *world, int signal);

/* What the commands over jobs show about a world, read from memory. */
struct world_view {
    bool formed;  /* a generation was formed; if not, `plan` and `progress` have nothing */
    bool started; /* its workers were started */
    /*
     * WV_UP: the generation runs; WV_LEAVING: its workers were asked to save and end; WV_ENDING: its workers
     * were asked to end
     */
    enum { WV_DOWN, WV_UP, WV_LEAVING, WV_ENDING } state;
    /* with WV_ENDING: true if a signal asked the run to end; false if a rank failed, or the nodes change */
    bool by_signal;
    const struct world_plan *plan;
    struct agent_progress progress;
    bool has_progress; /* some worker of this node reports its progress */
};
void world_view(const struct world *world, struct world_view *view);
/**
 * Shows worker `i` of this node. A generation must have been formed.
 *   pid    0: it has no process
 *   phase  enum fsdp_phase; -1, and `step` -1: it has not reported any
 */
void world_show_worker(const struct world *world, int i, int *rank, pid_t *pid, int *phase, int64_t *step);
/** Returns the progress page of worker `i`; NULL: it has none, as a program without a link. */
const struct fsdp_progress *world_page(const struct world *world, int i);

#endif
