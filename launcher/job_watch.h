/*
 * Follows the jobs of this user on this machine. It connects to each job once, and the job then sends its
 * changes (agent/desk/desk.h, `watch`). inotify on the registry's folders shows jobs that come and go. So it
 * does not poll. Only an agent is asked for its new jobs, once a second (launcher/agent_jobs.h).
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
 * Begins to follow the jobs. It waits until each of them has sent its first object, at most JOBS_ANSWER_MS.
 *   word   DESK_WATCH or DESK_WATCH_ALL
 *   only   the one job to follow; NULL: all jobs
 *   agent  which jobs there are, as for agent_jobs_read(); borrowed
 * A folder of the registry that is refused is left out (agent/desk/registry.h).
 *   FSDP_ERR_IO      the registry cannot be read or watched
 */
enum fsdp_status job_watch_create(struct job_watch **out, enum desk_word word,
                                  const struct registry_job *only, const char *agent, struct fsdp_err *err);
void job_watch_destroy(struct job_watch *watch); /* NULL is a no-op */

enum job_watch_news {
    JOB_WATCH_NOTHING, /* the timeout is over */
    JOB_WATCH_CHANGED, /* a job has sent something, has come, or has gone */
    JOB_WATCH_OTHER,   /* one of the caller's descriptors is readable */
    JOB_WATCH_ENDED,   /* the only job that is followed has ended, or the wait failed */
};

/**
 * Waits for news of the jobs, or for one of the caller's descriptors.
 *   others      (n_others) descriptors that it also waits for; their `revents` are set
 *   timeout_ms  -1: no limit
 */
enum job_watch_news job_watch_wait(struct job_watch *watch, struct pollfd *others, int n_others,
                                   int timeout_ms);

/**
 * Returns an array of the jobs, the oldest first. Each entry is the last object that the job sent, with its
 * age now. The caller frees the array by cJSON_Delete(). NULL: no memory.
 *   news  true: only jobs that have sent something since a call of this function last returned them; false:
 *         all
 */
struct cJSON *job_watch_now(struct job_watch *watch, bool news);

#endif
