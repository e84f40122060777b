#include "launcher/job_watch.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#include "launcher/agent_jobs.h"
#include "launcher/jobs.h"
#include "launcher/talk.h"
#include "shard_runtime/core/clock.h"

/*
 * Pauses before connecting to a job again after its connection closed. The job may have ended or been killed,
 * or had no place for another caller.
 */
enum { AGAIN_MS = 50, AGAIN_MOST_MS = 2000, ASK_AGENT_MS = 1000, ASK_GONE_MS = 10000 };

struct watched {
    struct registry_job about;
    struct talk talk;
    cJSON *said; /* the last object that the job sent; NULL: none yet */
    bool news, found, refuses;
    int64_t again_ms; /* when to connect again; 0: it is connected */
    int pause_ms;
};

struct job_watch {
    enum desk_word word;
    bool has_only;
    struct registry_job only;
    const char *agent;
    int64_t ask_ms; /* when an agent is asked for its jobs again; INT64_MAX: there is no agent */
    bool began;     /* the jobs have been read once */
    int inotify_fd;
    struct watched *jobs; /* (n) the oldest first */
    size_t n;
    struct pollfd *fds; /* (n_fds) memory for poll(): inotify, descriptors of the caller, jobs */
    size_t n_fds;
};

static void forget(struct watched *job)
{
    talk_end(&job->talk);
    free(job->talk.bytes);
    cJSON_Delete(job->said);
}

static bool is_same(const struct registry_job *one, const struct registry_job *other)
{
    return strcmp(one->socket, other->socket) == 0 && one->pid == other->pid;
}

static void connect_to(struct job_watch *watch, struct watched *job, const struct registry_list *list)
{
    job->talk.fd = -1;
    job->talk.over = false;
    job->talk.n_bytes = 0;
    talk_begin(&job->talk, list, &job->about, watch->word);
    job->again_ms = job->talk.fd >= 0 ? 0 : clock_now_ms() + job->pause_ms;
    job->pause_ms = 2 * job->pause_ms < AGAIN_MOST_MS ? 2 * job->pause_ms : AGAIN_MOST_MS;
}

/*
 * Reads the registry. Drops the jobs that are not in it any more, and adds new ones. Connects to the jobs
 * that have no connection and whose pause is over. Returns whether a job came or went.
 */
static bool refresh(struct job_watch *watch, enum fsdp_status *status, struct fsdp_err *err)
{
    struct registry_list list;
    struct watched *jobs = NULL;
    size_t n = 0, n_kept = 0;
    bool changed, gone;

    registry_watch(watch->inotify_fd); /* watch before reading the registry, so that no change is missed */
    *status = agent_jobs_read(&list, watch->agent, NULL,
                              watch->began ? AGENT_WATCH_PATIENCE_MS : AGENT_PATIENCE_MS, err);
    gone = *status == FSDP_ERR_PEER && (watch->began || watch->agent == NULL);
    if (gone || *status == FSDP_ERR_CONFIG) { /* the list has all other jobs */
        *status = FSDP_OK;
        fsdp_err_clear(err);
    }
    if (agent_jobs_are_asked(watch->agent))
        watch->ask_ms = clock_now_ms() + (gone ? ASK_GONE_MS : ASK_AGENT_MS);
    if (*status == FSDP_OK && (jobs = calloc(list.n + watch->n + 1, sizeof *jobs)) == NULL)
        *status = fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    for (size_t i = 0; *status == FSDP_OK && i < list.n; i++) {
        struct watched *known = NULL;

        if (watch->has_only && !is_same(&list.jobs[i], &watch->only))
            continue;
        for (size_t k = 0; k < watch->n; k++)
            if (is_same(&watch->jobs[k].about, &list.jobs[i]))
                known = &watch->jobs[k];
        jobs[n] =
            known != NULL ? *known : (struct watched){ .talk.fd = -1, .pause_ms = AGAIN_MS, .news = true };
        jobs[n].about = list.jobs[i];
        if (known != NULL) {
            known->found = true;
            n_kept++;
        }
        if (jobs[n].talk.fd < 0 && clock_now_ms() >= jobs[n].again_ms)
            connect_to(watch, &jobs[n], &list);
        n++;
    }
    /* An agent that is told to stop leaves its socket at once, while its jobs still save. */
    for (size_t k = 0; gone && *status == FSDP_OK && k < watch->n; k++)
        if (!watch->jobs[k].found && watch->jobs[k].talk.fd >= 0) {
            jobs[n++] = watch->jobs[k];
            watch->jobs[k].found = true;
            n_kept++;
        }
    registry_list_fini(&list);
    if (*status != FSDP_OK) {
        for (size_t k = 0; k < watch->n; k++) /* jobs whose pause is over try again later */
            if (clock_now_ms() >= watch->jobs[k].again_ms)
                watch->jobs[k].again_ms = clock_now_ms() + AGAIN_MOST_MS;
        free(jobs);
        return false;
    }
    changed = n_kept < watch->n || n_kept < n;
    for (size_t k = 0; k < watch->n; k++)
        if (!watch->jobs[k].found)
            forget(&watch->jobs[k]);
    free(watch->jobs);
    watch->jobs = jobs;
    watch->n = n;
    for (size_t k = 0; k < n; k++)
        watch->jobs[k].found = false;
    return changed;
}

/* Reads what a job has sent. Returns true if it sent at least one new object. */
static bool listen_to(struct watched *job)
{
    cJSON *object;
    bool any = false;

    talk_take(&job->talk);
    while ((object = talk_next_line(&job->talk)) != NULL) {
        if (!cJSON_HasObjectItem(object,
                                 /* an agent of another build, which does not know `watch`, has refused */
                                 "job")) {
            job->refuses = true;
            cJSON_Delete(object);
            continue;
        }
        cJSON_Delete(job->said);
        job->said = object;
        job->news = any = true;
        job->pause_ms = AGAIN_MS;
    }
    if (job->talk.over) {
        job->again_ms = job->refuses ? INT64_MAX : clock_now_ms() + job->pause_ms;
        job->pause_ms = 2 * job->pause_ms < AGAIN_MOST_MS ? 2 * job->pause_ms : AGAIN_MOST_MS;
    }
    return any;
}

/*
 * Returns the timeout for poll(), in milliseconds: until `until_ms`, or until a job is to be connected again.
 */
static int patience(const struct job_watch *watch, int64_t until_ms)
{
    const int64_t now_ms = clock_now_ms();
    int64_t next_ms = watch->ask_ms < until_ms ? watch->ask_ms : until_ms;

    for (size_t i = 0; i < watch->n; i++)
        if (watch->jobs[i].talk.fd < 0 && watch->jobs[i].again_ms < next_ms)
            next_ms = watch->jobs[i].again_ms;
    if (next_ms == INT64_MAX)
        return -1;
    return next_ms <= now_ms ? 0 : (int)(next_ms - now_ms);
}

static bool is_due(const struct job_watch *watch)
{
    if (clock_now_ms() >= watch->ask_ms)
        return true;
    for (size_t i = 0; i < watch->n; i++)
        if (watch->jobs[i].talk.fd < 0 && clock_now_ms() >= watch->jobs[i].again_ms)
            return true;
    return false;
}

enum job_watch_news job_watch_wait(struct job_watch *watch, struct pollfd *others, int n_others,
                                   int timeout_ms)
{
    const int64_t until_ms = timeout_ms < 0 ? INT64_MAX : clock_now_ms() + timeout_ms;
    enum fsdp_status status;
    bool changed = false, other = false;

    do {
        const size_t n_fds = 1 + (size_t)n_others + watch->n;
        struct pollfd *fds = n_fds <= watch->n_fds ? watch->fds : realloc(watch->fds, n_fds * sizeof *fds);
        size_t at = 0;

        if (fds == NULL)
            return JOB_WATCH_ENDED;
        watch->n_fds = n_fds > watch->n_fds ? n_fds : watch->n_fds;
        watch->fds = fds;
        fds[at++] = (struct pollfd){ .fd = watch->inotify_fd, .events = POLLIN };
        for (int i = 0; i < n_others; i++)
            fds[at++] = others[i];
        for (size_t i = 0; i < watch->n; i++)
            fds[at++] = (struct pollfd){ .fd = watch->jobs[i].talk.fd, .events = POLLIN };
        if (poll(fds, at, patience(watch, until_ms)) < 0) {
            if (errno != EINTR)
                return JOB_WATCH_ENDED;
            continue;
        }
        for (int i = 0; i < n_others; i++) {
            others[i].revents = fds[1 + i].revents;
            other |= others[i].revents != 0;
        }
        for (size_t i = 0; i < watch->n; i++)
            if (watch->jobs[i].talk.fd >= 0 && fds[1 + (size_t)n_others + i].revents != 0)
                changed |= listen_to(&watch->jobs[i]);
        /* if the registry cannot be read now, the jobs stay as they were */
        if ((fds[0].revents != 0 && registry_changed(watch->inotify_fd)) || is_due(watch))
            changed |= refresh(watch, &status, NULL);
        if (watch->has_only && watch->n == 0)
            return JOB_WATCH_ENDED;
    } while (!changed && !other && clock_now_ms() < until_ms);
    return other ? JOB_WATCH_OTHER : changed ? JOB_WATCH_CHANGED : JOB_WATCH_NOTHING;
}

enum fsdp_status job_watch_create(struct job_watch **out, enum desk_word word,
                                  const struct registry_job *only, const char *agent, struct fsdp_err *err)
{
    const int64_t until_ms = clock_now_ms() + JOBS_ANSWER_MS;
    struct job_watch *watch = calloc(1, sizeof *watch);
    enum fsdp_status status;

    *out = NULL;
    if (watch == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    watch->word = word;
    watch->has_only = only != NULL;
    watch->agent = agent;
    watch->ask_ms = INT64_MAX;
    if (only != NULL)
        watch->only = *only;
    watch->inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (watch->inotify_fd < 0) {
        free(watch);
        return fsdp_fail(err, FSDP_ERR_IO, "inotify: %s", strerror(errno));
    }
    refresh(watch, &status, err);
    watch->began = true;
    for (bool waits = status == FSDP_OK; waits && clock_now_ms() < until_ms;) {
        waits = false;
        for (size_t i = 0; i < watch->n; i++)
            waits |= watch->jobs[i].said == NULL && !watch->jobs[i].refuses;
        if (waits && job_watch_wait(watch, NULL, 0, (int)(until_ms - clock_now_ms())) == JOB_WATCH_ENDED)
            break;
    }
    if (status != FSDP_OK)
        job_watch_destroy(watch);
    else
        *out = watch;
    return status;
}

void job_watch_destroy(struct job_watch *watch)
{
    if (watch == NULL)
        return;
    for (size_t i = 0; i < watch->n; i++)
        forget(&watch->jobs[i]);
    close(watch->inotify_fd);
    free(watch->jobs);
    free(watch->fds);
    free(watch);
}

struct cJSON *job_watch_now(struct job_watch *watch, bool news)
{
    cJSON *all = cJSON_CreateArray();
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    for (size_t i = 0; all != NULL && i < watch->n; i++) {
        struct watched *job = &watch->jobs[i];
        const double age_s = (double)now.tv_sec + (double)now.tv_nsec / 1e9 - job->about.started_s;
        cJSON *view;

        if (news && !job->news)
            continue;
        job->news = false;
        view = job->said != NULL ? cJSON_Duplicate(job->said, true) : jobs_stand_in(&job->about);
        if (job->said != NULL)
            cJSON_ReplaceItemInObjectCaseSensitive(view, "age_s",
                                                   cJSON_CreateNumber((double)(int64_t)(age_s * 1e3) / 1e3));
        jobs_add_memory(view);
        cJSON_AddItemToArray(all, view);
    }
    return all;
}
