/* Asks Slurm to put this job back into its queue, after the job has saved. */
#ifndef LAUNCHER_REQUEUE_H
#define LAUNCHER_REQUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include <fsdp/status.h>

enum { REQUEUE_TIMEOUT_MS = 30000 };

/**
 * Runs `scontrol requeue JOB` and waits for its end. Slurm then stops all processes of the job, including
 * this one.
 *   job         the job's number
 *   timeout_ms  how long to wait for the answer
 *   FSDP_ERR_IO  Slurm does not allow it, or did not answer; the message has what scontrol said
 */
enum fsdp_status requeue(const char *job, int64_t timeout_ms, struct fsdp_err *err);

/** Is Slurm preempting the job? Runs `scontrol show job JOB`. If there is no answer, returns false. */
bool requeue_is_preempted(const char *job, int64_t timeout_ms);

#endif
