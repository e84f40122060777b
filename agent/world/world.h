/*
 * The workers of this node, from one generation to the next: agent/world/world_fsm.h performed on a libuv loop. It
 * does what its coordinator says (this process, or the agent of another node) and tells it what happens here.
 *
 * It takes every child of this process for its own: one world at a time in a process that starts no others.
 * Thread: the loop's, which must be the one that began as the process (PR_SET_PDEATHSIG).
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
#include "agent/output/logs.h"
#include "agent/record/events.h"
#include "agent/record/first_cause.h"
#include "agent/world/worker.h"

struct world;

/* What a node tells its coordinator, on the loop's thread, also from within a call of this header. */
struct world_listener {
    void *arg;
    /* A worker ended (death->kind DEATH_NONE: well), could not be started, or hangs. `detail` may be NULL. */
    void (*exited)(void *arg, int generation, const struct death *death, const struct errors_detail *detail);
    /* None of the generation's workers, and nothing they left running, is alive here (or can be killed). */
    void (*stopped)(void *arg, int generation);
    void (*event)(void *arg, int generation, int rank, const char *json, size_t length);
    void (*saved)(void *arg, int generation, int rank, const struct fsdp_link_saved *saved, int manifest_fd);
    void (*put)(void *arg, int generation, const char *key, const void *value,
                size_t size_bytes); /* optional */
    /* A line for events.jsonl about this node. */
    void (*record)(void *arg, int generation, const char *event, const struct events_field *fields);
    void (*ended)(void *arg); /* after world_end(): every handle is closed; world_destroy() may be called */
};

/* Borrowed until `ended`. */
struct world_services {
    uv_loop_t *loop;
    const struct agent_os *os;
    const struct os_baseline *baseline;
    const struct placement *placement; /* of every generation's workers */
    struct rundir *rundir;             /* NULL: none */
    struct logs *logs;                 /* NULL: nothing is captured */
    struct relay *relay;               /* NULL: what is inherited is not relayed */
    struct console *console;           /* NULL: lines go to descriptor 2 */
};

enum fsdp_status world_create(struct world **out, const struct agent_config *config,
                              const struct world_services *services, const struct world_listener *listener,
                              struct fsdp_err *err);
void world_destroy(struct world *world); /* after `ended`; NULL is a no-op */

/* From the coordinator. */
void world_form(struct world *world, const struct world_plan *plan); /* only when stopped */
/* Ask the workers to end by `signal`, with the grace before KILL; `now`: without it. 0: by TERM, because a rank of the world failed; who
 * waits for that one in a collective, and may be deaf to TERM, is told. */
void world_stop(struct world *world, int signal, bool now);
void world_notify(struct world *world, const struct fsdp_link_notice *notice);
void world_publish(struct world *world, const struct fsdp_link_published *published);
void world_put(struct world *world, int generation, const char *key, const void *value, size_t size_bytes);
void world_end(struct world *world); /* only when stopped */

/* From the process: children may have ended (SIGCHLD); Ctrl-Z and fg; a signal to pass on. */
void world_reap(struct world *world);
void world_suspended(struct world *world, int64_t slept_ns); /* every deadline moves by so much */
void world_forward(struct world *world, int signal);         /* to the workers that it would not end */

/** What the pages say now. */
void world_progress(const struct world *world, struct agent_progress *progress);

/** Bytes taken so far of the ranks' output, which is captured or relayed; either may be NULL. */
uint64_t world_output(const struct logs *logs, const struct relay *relay);

#endif
