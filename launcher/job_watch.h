/*
 * The jobs of this user on this machine, as they change. Each job is asked once, and tells what changes
 * (agent/desk/desk.h, `watch`); the registry's folders are watched for jobs that come and go. So nothing is
 * asked again and again.
 */
#ifndef LAUNCHER_JOB_WATCH_H
#define LAUNCHER_JOB_WATCH_H

#include <stdbool.h>

#include <fsdp/status.h>

#include "agent/desk/desk.h"
#include "agent/desk/registry.h"

struct job_watch;
struct cJSON;
struct pollfd;

/**
 * Begin, and wait until every job has said something, for JOBS_ANSWER_MS at most.
 *   word  DESK_WATCH or DESK_WATCH_ALL
 *   only  the one job to watch; NULL: all
 *   FSDP_ERR_CONFIG, FSDP_ERR_IO  the registry is refused; cannot be read, or watched
 */
enum fsdp_status job_watch_create(struct job_watch **out, enum desk_word word,
                                  const struct registry_job *only, struct fsdp_err *err);
void job_watch_destroy(struct job_watch *watch); /* NULL is a no-op */

enum job_watch_news {
    JOB_WATCH_NOTHING, /* the time is over */
    JOB_WATCH_CHANGED, /* a job has said something, has come, or has gone */
    JOB_WATCH_OTHER,   /* one of the caller's descriptors is readable */
    JOB_WATCH_ENDED,   /* the one job that is watched has ended */
};

/**
 * Wait.
 *   others      (n_others) descriptors of the caller, which are waited for as well
 *   timeout_ms  -1: without a bound
 */
enum job_watch_news job_watch_wait(struct job_watch *watch, struct pollfd *others, int n_others,
                                   int timeout_ms);

/**
 * Returns the jobs now, the oldest first, with their ages: an array of what they said last, which the caller
 * frees by cJSON_Delete(). NULL: no memory.
 *   news  only those that have said something since the last call that took them out; else all
 */
struct cJSON *job_watch_now(struct job_watch *watch, bool news);

#endif
