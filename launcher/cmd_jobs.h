/*
 * The commands over jobs: ps, status, top, inspect, logs, events, stop, restart. What each may be told, and
 * its help page, stands in the table of subcommands (launcher/what.h).
 */
#ifndef LAUNCHER_CMD_JOBS_H
#define LAUNCHER_CMD_JOBS_H

#include <stdio.h>

#include "launcher/job_words.h"
#include "launcher/jobs.h"

/**
 * Run a command with the words after its name. Returns the exit status:
 *   0        it is done
 *   2        bad usage, or several jobs have that name or prefix
 *   66       there is no such job, or it keeps no such file
 *   74, 78   the registry cannot be read; is refused
 *   75       the job does not answer, or cannot do that now
 *   other    of stop: the job's, see its help page
 */
int cmd_jobs(const struct subcommand *command, char *const *words, int n, FILE *out, FILE *err);

/** Print the help page of a command over jobs. Returns the exit status. */
int cmd_jobs_help(const struct subcommand *command, FILE *out);

/* Cmd_follow.c. `ended_fd` is readable when the job has ended; -1: it has ended, and nothing is followed. */

/** Print the lines of events.jsonl (words->follow: until the job has ended). Returns the exit status. */
int cmd_events(const struct registry_job *job, const struct job_words *words, int ended_fd, FILE *out,
               struct fsdp_err *err);
/** Print what the ranks have printed, likewise: their stdout to `out`, their stderr to `err_out`. */
int cmd_logs(const struct registry_job *job, const struct job_words *words, int ended_fd, FILE *out,
             FILE *err_out, struct fsdp_err *err);

/** Plot the run that words->job names (cmd_plot.c). Returns the exit status. */
int cmd_plot(const struct job_words *words, FILE *out, struct fsdp_err *err);

/* Cmd_watch.c */

/**
 * Ps or status with --watch, and top in a terminal. `job` is NULL if all are meant. Returns the exit status.
 */
int cmd_watch(const struct subcommand *command, const struct registry_job *job, const struct job_words *words,
              FILE *out, struct fsdp_err *err);

#endif
