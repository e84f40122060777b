/*
 * What a run reports about itself, as JSON: the object of `fsdprun ps`, and the longer ones of `status` and
 * `inspect`. Pure.
 */
#ifndef AGENT_DESK_JOB_VIEW_H
#define AGENT_DESK_JOB_VIEW_H

#include <stdint.h>
#include <sys/types.h>

#include "shard_runtime/core/json.h"

enum job_state {
    JOB_STARTING,   /* no generation was formed yet */
    JOB_RUNNING,    /* workers run */
    JOB_RESTARTING, /* a generation has ended, or is being ended, and another follows */
    JOB_STOPPING,   /* a signal or a command has asked the run to end */
    JOB_COMPLETE,   /* the run has ended with status 0, and only its last lines are missing */
    JOB_FAILED,     /* the same with another status */
    JOB_QUEUED,     /* the job waits for GPUs, and has no worker */
    JOB_STATES
};

/* A worker of this node. */
struct job_worker {
    int rank;
    pid_t pid;    /* 0: it has no process now */
    int phase;    /* enum fsdp_phase; -1: the rank does not report it, as a program without a link */
    int64_t step; /* steps that the rank has done; -1: it does not report them */
    char gpu[32]; /* the GPU's PCI address; empty: the worker has named none */
    int64_t gpu_percent, gpu_memory_bytes; /* use of that GPU by all processes together; -1: not known */
};

struct job_view {
    const char *id, *name;
    enum job_state state;
    int n_nodes, n_ranks; /* in the newest generation; before the first one, what the command line asks for */
    int generation;
    int64_t step;              /* -1: not known, as of a program without a link */
    double loss, tokens_per_s; /* NaN: not known */
    int n_restarts;            /* those that a failure made necessary */
    double age_s;
    const char *run_dir;   /* NULL: none */
    const char *waits_for; /* for a queued job: "waits for 2 GPUs: ..."; NULL: left out of the JSON */

    /* Only for `status` and `inspect`. */
    int node_rank; /* rank of this node; -1: it is in no generation yet */
    const struct job_worker *workers;
    int n_workers;
};

const char *job_state_name(enum job_state state);

/** Add the members of `ps` to an object that is open. */
void job_view_put(struct json_text *out, const struct job_view *view);

/** Add the member `command`: the words of a command line, zero-terminated; NULL: none. */
void job_view_put_command(struct json_text *out, char *const *command);

/** Add the member `workers`. */
void job_view_put_workers(struct json_text *out, const struct job_view *view);

#endif
