/*
 * The commands over jobs: ps, status, top, inspect, logs, events, stop, restart. The table of subcommands
 * (launcher/what.h) has their options and help pages.
 */
#ifndef LAUNCHER_CMD_JOBS_H
#define LAUNCHER_CMD_JOBS_H

#include <stdio.h>

#include "launcher/job_words.h"
#include "launcher/jobs.h"

/**
 * Runs `command` with words[0] to words[n - 1], which follow its name. `agent` is the socket of an --agent
 * before the name; NULL: there was none. Returns the exit status:
 *   0        success
 *   2        bad usage, or several jobs have that name or prefix
 *   66       there is no such job, or it keeps no such file
 *   74       the registry of jobs cannot be read
 *   78       a folder of the registry was refused, because others could write to it: a list lacks the jobs
 *            that are in it, and JOB or RUN is not among the others
 *   75       the job does not answer, or cannot do that now; or no agent answers at the socket
 *   other    for stop and restart: the exit status of the job, see their help pages
 */
int cmd_jobs(const struct subcommand *command, const char *agent, char *const *words, int n, FILE *out,
             FILE *err);

/** Prints the help page of a command over jobs. Returns the exit status. */
int cmd_jobs_help(const struct subcommand *command, FILE *out);

/*
 * Functions in cmd_follow.c. `ended_fd` becomes readable when the job has ended. -1: print what there is and
 * return, without waiting for more.
 */

/** Prints the lines of events.jsonl, with words->follow until the job has ended. Returns the exit status. */
int cmd_events(const struct registry_job *job, const struct job_words *words, int ended_fd, FILE *out,
               struct fsdp_err *err);
/* What a job that runs says of logs that may not be there yet. All false: none is to come. */
struct logs_to_come {
    bool all;  /* no rank has started yet */
    bool rank; /* the rank of --rank is one of the job's */
};

/**
 * Prints what the ranks have written: their stdout to `out`, their stderr to `err_out`. With words->follow it
 * goes on until the job has ended. Logs that are still to come are no error. Returns the exit status.
 */
int cmd_logs(const struct registry_job *job, const struct job_words *words, struct logs_to_come come,
             int ended_fd, FILE *out, FILE *err_out, struct fsdp_err *err);

/** Plots the run (cmd_plot.c), as `words` asks. Returns the exit status. */
int cmd_plot(const struct registry_job *job, const struct job_words *words, FILE *out, struct fsdp_err *err);

/* A function in cmd_watch.c. */

/**
 * Runs `ps --watch`, `status --watch`, or `top` in a terminal. `job` NULL: it shows all jobs. Returns the
 * exit status.
 */
int cmd_watch(const struct subcommand *command, const struct registry_job *job, const struct job_words *words,
              FILE *out, struct fsdp_err *err);

#endif
