/*
 * What a run did and where its time went: one JSON object for --summary FILE, and the lines at the end of a
 * job.
 *
 * Two processes share this struct. The agent fills it in during the run. The guard, which lives longer than
 * the agent, writes the file. So there is a summary even if the agent was killed.
 *
 * The time of a run is divided into phases. Each phase ends when the next one begins, so they add up to
 * `seconds`:
 *   waiting     on several nodes: until the first workers start
 *   starting    until the first step of a job is done, or until the first worker of a program runs
 *   training    until a worker fails, or the run ends
 *   restarting  from a failure or a change of nodes that led to a restart, until the next first step of a job
 *               or the next start of a program's worker
 *   saving      no phase of its own: the part of `training` during which rank 0 saved, taken out of
 *               `training`
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
    int64_t began_ms, since_ms; /* when the run and the phase began, CLOCK_MONOTONIC */
    int64_t failed_ms;          /* when the first worker of this generation failed; 0: none has */
    int64_t began_s;            /* when the run began, in seconds since 1970 */
    int64_t spent_ms[SUMMARY_N_PHASES];
    int64_t saving_us; /* time of saves since the phase began; added to SUMMARY_SAVING at its end */
    int generations, restarts, n_failures, n_saves;
    double save_s;  /* sum over all saves */
    uint64_t steps; /* largest number of steps that were done */
    /* steps done when this generation began to train, and now; from 0: it does not train yet */
    uint64_t from, reached;
    uint64_t n_trained; /* steps that earlier generations trained, without the first step of each */
    uint64_t n_repeated;
    bool has_trained; /* the workers have done a step since fsdprun was started */
    int notice;       /* signal that asked the job to save and end: SIGUSR1 or SIGTERM; 0: none */
    double repeated_s;
    bool saved;          /* this run has published a checkpoint */
    uint64_t saved_step; /* step of the newest checkpoint */
    /*
     * For the mean pace: tokens and time between two reports on the same generation, if steps were done
     * between them.
     */
    int rate_generation;
    int64_t rate_at_ms; /* time of the last report; 0: none */
    uint64_t rate_at, rate_tokens;
    int64_t rate_ms;
};

/**
 * Checks that a summary can be written to `path`, without making anything. NULL is accepted: the user wants
 * none.
 *   FSDP_ERR_CONFIG  it cannot; the message names --summary and the reason
 */
enum fsdp_status summary_check_path(const char *path, struct fsdp_err *err);

/**
 * Returns a summary that begins now, in memory that child processes share; NULL: no memory. `config` is
 * borrowed.
 */
struct summary *summary_create(const struct agent_config *config);

/** Initialises a summary in the caller's memory that begins at `now_ms`. */
void summary_init(struct summary *summary, const struct agent_config *config, int64_t now_ms);

/** Reads a line of events.jsonl that was written at `now_ms`. */
void summary_event(struct summary *summary, const char *line, int64_t now_ms);

/** Notes that `steps` steps of the job are done. */
void summary_steps(struct summary *summary, uint64_t steps);

/** Notes the progress of the run at `now_ms`. */
void summary_progress(struct summary *summary, const struct agent_progress *progress, int64_t now_ms);

/** Returns the mean tokens per second while steps were done, without start and restarts; 0: unknown. */
double summary_tokens_per_s(const struct summary *summary);

/** Returns what the run has cost until now. */
struct cost summary_cost(const struct summary *summary, int64_t now_ms);

/** Appends the JSON object of a run that ended at `now_ms` with the exit status `status`. */
void summary_add(const struct summary *summary, int status, int64_t now_ms, struct json_text *text);

/**
 * Writes the file for a run that ended with `status`, and frees what summary_create() returned. In a run of
 * several nodes, a node without events did not lead, and writes nothing.
 *   FSDP_ERR_IO, FSDP_ERR_NOMEM  it could not be written; the message names --summary and the reason
 */
enum fsdp_status summary_write(struct summary *summary, const char *path, int status, struct fsdp_err *err);

#endif
