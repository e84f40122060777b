/*
 * What a run did and where its time went: one JSON object for --summary FILE, and the lines at the end of a
 * job.
 *
 * With --summary two processes share the struct. The agent fills it in while the run goes on. The guard,
 * which outlives the agent, writes the file. So there is a summary also of a run whose agent was killed.
 *
 * The time of a run is parted into phases. Each phase ends when the next one begins, so that they add up to
 * `seconds`:
 *   waiting     on several nodes, until the first workers start
 *   starting    until the first step of a job is done, or until the first worker of a program runs
 *   training    until a worker fails, or the run ends
 *   restarting  from a failure or a change of nodes before a restart, until the next first step (of a
 *               program: until a worker runs)
 *   saving      not a phase: the part of `training` in which rank 0 saved, which is taken out of it
 */
#ifndef LAUNCHER_SUMMARY_H
#define LAUNCHER_SUMMARY_H

#include <stdbool.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "agent/config.h"
#include "launcher/cost.h"
#include "shard_runtime/core/json.h"

enum summary_phase {
    SUMMARY_WAITING,
    SUMMARY_STARTING,
    SUMMARY_TRAINING,
    SUMMARY_SAVING,
    SUMMARY_RESTARTING,
    SUMMARY_N_PHASES
};

struct summary {
    const struct agent_config *config;
    enum summary_phase phase;
    int64_t began_ms, since_ms; /* beginning of the run and of the phase, CLOCK_MONOTONIC */
    int64_t failed_ms;          /* first worker that failed in this generation; 0: none has */
    int64_t began_s;            /* beginning of the run, epoch */
    int64_t spent_ms[SUMMARY_N_PHASES];
    int64_t saving_us; /* saves since the phase began; they become SUMMARY_SAVING when it ends */
    int generations, restarts, n_failures, n_saves;
    double save_s;          /* sum over the saves */
    uint64_t steps;         /* most steps that were ever done */
    uint64_t from, reached; /* steps done when this training began, and now; from 0: no training */
    uint64_t n_trained;     /* steps of the trainings before, each without its first step */
    uint64_t n_repeated;
    bool has_trained; /* the workers have done a step since fsdprun was started */
    int notice;       /* the signal that asked the job to save and end: SIGUSR1 or SIGTERM; 0: none has */
    double repeated_s;
    bool saved;          /* a checkpoint was published ... */
    uint64_t saved_step; /* ... the newest of this step */
    /* Tokens and time between looks at one generation, in which steps were done. */
    int rate_generation;
    int64_t rate_at_ms; /* the last look; 0: none */
    uint64_t rate_at, rate_tokens;
    int64_t rate_ms;
};

/**
 * Look whether a summary can be written to `path`, without making anything. NULL is fine: none is wanted.
 *   FSDP_ERR_CONFIG  it cannot; the line names --summary and the reason
 */
enum fsdp_status summary_check_path(const char *path, struct fsdp_err *err);

/** A summary that begins now, in memory that child processes share; NULL: no memory. `config` is borrowed. */
struct summary *summary_create(const struct agent_config *config);

/** The same on the caller's storage, beginning at `now_ms`. */
void summary_init(struct summary *summary, const struct agent_config *config, int64_t now_ms);

/** Take a line of events.jsonl that was written at `now_ms`. */
void summary_event(struct summary *summary, const char *line, int64_t now_ms);

/** `steps` steps of the job are done. */
void summary_steps(struct summary *summary, uint64_t steps);

/** The run was looked at, at `now_ms`. */
void summary_progress(struct summary *summary, const struct agent_progress *progress, int64_t now_ms);

/** Returns the mean pace while steps were done, without start and restarts; 0: unknown. */
double summary_tokens_per_s(const struct summary *summary);

/** What the run cost until now. */
struct cost summary_cost(const struct summary *summary, int64_t now_ms);

/** Append the object: the run has ended at `now_ms` with the exit status `status`. */
void summary_add(const struct summary *summary, int status, int64_t now_ms, struct json_text *text);

/**
 * Write the file of a run that has ended with `status`, and release what summary_create() gave. A node of
 * several that saw no event was not the host, and writes nothing.
 *   FSDP_ERR_IO, FSDP_ERR_NOMEM  it could not be written; the line names --summary and the reason
 */
enum fsdp_status summary_write(struct summary *summary, const char *path, int status, struct fsdp_err *err);

#endif
