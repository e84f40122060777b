/*
 * One worker of this node in one generation: how it is started, what it is told, what became of it.
 *
 * Thread: the loop's.
 */
#ifndef AGENT_WORKER_H
#define AGENT_WORKER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/config.h"
#include "agent/link/link_server.h"
#include "agent/os/os.h"
#include "agent/output/logs.h"
#include "agent/output/relay.h"
#include "agent/placement/placement.h"
#include "agent/record/first_cause.h"

/* What the coordinator tells a node about a generation. */
struct world_plan {
    int generation, restart_count;
    int world_size, first_rank; /* this node has first_rank ... first_rank + config->n_workers - 1 */
    int n_nodes, node_rank;
    int role_rank,
        role_world_size; /* of this node's first worker among all ranks of its role; how many they are */
    int first_attempt;   /* of the run directory: generation g is attempt first_attempt + g */
    int64_t resume_step; /* -1: from initial weights */
    char master_address[256], node_address[256];
    int master_port;
    unsigned char token[32];
};

struct worker {
    int rank, local_rank;
    struct os_child child; /* pidfd -1 once it is closed */
    bool live;             /* started, and not reaped */
    int sent_signal;       /* it was asked to end by this; 0: not yet */
    bool killed;           /* KILL was sent */
    int64_t asked_us;      /* when it was asked, by the epoch clock */
    uint64_t seen_beat;    /* the progress page as last looked at, and when it last changed */
    int64_t changed_ns;
    int64_t stuck_since_ns; /* since when every look found it in state D; 0: the last one did not */
    struct death death; /* kind DEATH_NONE while it lives, and after a good end */
    uv_poll_t poll;     /* on the pidfd; `data` is the worker */
    bool polled;
    char timer[160];  /* the watchdog timer of it that expired, in words; empty: none */
    int timer_signal; /* by which it, or a process of it, was then to end, and when that was sent */
    int64_t timer_ns;
    void *world;
};

/* What a worker of this node put at FSDP_LINK_KEPT_KEY, for the hello of later ones. */
struct link_kept {
    uint32_t n_bytes;
    unsigned char bytes[FSDP_LINK_KEPT_BYTES];
};

/* What starting one needs, the same for all workers of a generation. */
struct worker_context {
    const struct agent_config *config;
    const struct agent_os *os;
    const struct os_baseline *baseline;
    const struct world_plan *plan;
    struct link_server *links;
    struct rundir *rundir; /* NULL: none */
    struct logs *logs;     /* NULL: nothing is captured */
    struct relay *relay;   /* NULL: what is inherited is not relayed */
    char *const *environment;
    const char *timer_file; /* where it sets watchdog timers; NULL: nowhere */
    const char *program;    /* resolved */
    const struct placement *placement;
    const struct link_kept *kept;
    const char *host;
};

/**
 * Start worker `local_rank`; on success it is live and has a pidfd (the caller polls it). On failure nothing of
 * it runs and worker->death says why, in the words of a user.
 */
bool worker_start(struct worker *worker, const struct worker_context *context, int local_rank);

/** Note how it ended. `noticed`: it had been asked to save and stop, so that 77 is a good end. */
void worker_ended(struct worker *worker, const siginfo_t *info, bool noticed,
                  const struct fsdp_progress *page, int64_t now_ns);

/** Phase and step from its page; they stay as they are where the page does not know. No step before there is one. */
void worker_read_place(struct death *death, const struct fsdp_progress *page);

/** Ask it to end by `signal` (its group), if it lives and was not asked before; KILL is sent always. */
void worker_end(struct worker *worker, const struct agent_os *os, int signal);

/** Where the worker of a program is told to write how it failed (TORCHELASTIC_ERROR_FILE); false: nowhere. */
bool worker_error_file(const struct agent_config *config, struct rundir *rundir, int generation,
                       const struct worker *worker, char *out, size_t size);

/** Where the stream of a rank goes. */
enum logs_mode worker_log_mode(const struct agent_config *config, int local_rank, unsigned stream);

/** Fill in `death` for a program that cannot be started: `error` is from os_find_program(), os_check_script() or exec. */
void worker_cannot_start(struct death *death, const char *program, int error, bool found);

#endif
