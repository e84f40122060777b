/*
 * Ask Slurm to put this job into its queue again, after it has saved.
 */
#ifndef LAUNCHER_REQUEUE_H
#define LAUNCHER_REQUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include <fsdp/status.h>

enum { REQUEUE_TIMEOUT_MS = 30000 };

/**
 * Run `scontrol requeue JOB`, and wait for it. Slurm then stops all processes of the job, this one included.
 *   job         its number
 *   timeout_ms  how long the answer is waited for
 *   FSDP_ERR_IO  Slurm does not allow it, or has not answered; the message has its own words
 */
enum fsdp_status requeue(const char *job, int64_t timeout_ms, struct fsdp_err *err);

/** Is Slurm preempting the job? Asks `scontrol show job JOB`. False also if there is no answer. */
bool requeue_is_preempted(const char *job, int64_t timeout_ms);

#endif
