#include "launcher/jobs.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "launcher/table.h"
#include "launcher/talk.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/process_memory.h"

enum { AGAIN_MS = 5, ACCEPTED_MS = 10000 };

void jobs_ask(const struct registry_list *list, enum desk_word word, cJSON **answers)
{
    const int64_t until_ms = clock_now_ms() + JOBS_ANSWER_MS;
    struct talk *talks = calloc(list->n + 1, sizeof *talks);
    struct pollfd *fds = calloc(list->n + 1, sizeof *fds);

    memset(answers, 0, list->n * sizeof *answers);
    for (size_t i = 0; talks != NULL && i < list->n; i++)
        talk_begin(&talks[i], list, &list->jobs[i], word);
    while (talks != NULL && fds != NULL && clock_now_ms() < until_ms) {
        int64_t patience_ms = until_ms - clock_now_ms();
        bool any = false;

        for (size_t i = 0; i < list->n; i++) {
            if (talks[i].fd < 0 && !talks[i].over)
                talk_begin(&talks[i], list, &list->jobs[i], word);
            if (talks[i].fd < 0 && !talks[i].over && patience_ms > AGAIN_MS)
                patience_ms = AGAIN_MS;
            fds[i] = (struct pollfd){ .fd = talks[i].fd, .events = POLLIN };
            any |= !talks[i].over;
        }
        if (!any || (poll(fds, list->n, (int)patience_ms) < 0 && errno != EINTR))
            break;
        for (size_t i = 0; i < list->n; i++) {
            if (talks[i].fd < 0 || fds[i].revents == 0)
                continue;
            talk_take(&talks[i]);
            answers[i] = talk_next_line(&talks[i]);
            if (answers[i] != NULL)
                talk_end(&talks[i]);
        }
    }
    for (size_t i = 0; talks != NULL && i < list->n; i++) {
        talk_end(&talks[i]);
        free(talks[i].bytes);
    }
    free(talks);
    free(fds);
}

cJSON *jobs_stand_in(const struct registry_job *job)
{
    static const char *const unknown[] = { "state", "nodes",        "ranks",    "generation", "step",
                                           "loss",  "tokens_per_s", "restarts", "age_s" };
    cJSON *view = cJSON_CreateObject();

    cJSON_AddStringToObject(view, "job", job->id);
    cJSON_AddStringToObject(view, "name", job->name);
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        cJSON_AddNullToObject(view, unknown[i]);
    if (job->run_dir[0] != '\0')
        cJSON_AddStringToObject(view, "run_dir", job->run_dir);
    else
        cJSON_AddNullToObject(view, "run_dir");
    return view;
}

void jobs_add_memory(cJSON *job)
{
    cJSON *worker;

    cJSON_ArrayForEach(worker, cJSON_GetObjectItemCaseSensitive(job, "workers"))
    {
        const cJSON *pid = cJSON_GetObjectItemCaseSensitive(worker, "pid");
        char path[64], text[4096];
        uint64_t bytes = 0;
        ssize_t n = -1;
        int fd = -1;

        if (cJSON_IsNumber(pid) && snprintf(path, sizeof path, "/proc/%d/status", pid->valueint) > 0)
            fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            n = read(fd, text, sizeof text - 1);
            close(fd);
        }
        if (n > 0) {
            text[n] = '\0';
            bytes = process_memory_of_status(text);
        }
        if (bytes > 0)
            cJSON_AddNumberToObject(worker, "memory_bytes", (double)bytes);
        else
            cJSON_AddNullToObject(worker, "memory_bytes");
    }
}

/* How well does `name` match the job? 2: it is the job's id or name; 1: a prefix of one; 0: neither. */
static int match(const struct registry_job *job, const char *name)
{
    const size_t n = strlen(name);

    if (strcmp(job->id, name) == 0 || strcmp(job->name, name) == 0)
        return 2;
    return strncmp(job->id, name, n) == 0 || strncmp(job->name, name, n) == 0;
}

/* Returns the killed job that the name means: the newest of those that match best. NULL: there is none. */
static const struct registry_job *find_lost(const struct registry_list *list, const char *name)
{
    const struct registry_job *lost = NULL;
    int best = 1;

    for (size_t i = 0; i < list->n_lost; i++)
        if (match(&list->lost[i], name) >= best) {
            lost = &list->lost[i];
            best = match(lost, name);
        }
    return lost;
}

/* Fails with a message that says where the files are of a job that runs no more. */
static enum fsdp_status none_runs(const struct registry_list *list, const char *name, struct fsdp_err *err)
{
    const struct registry_job *lost = find_lost(list, name);
    char run_dir[TABLE_CELL_BYTES];

    if (lost == NULL)
        return fsdp_fail(err, FSDP_ERR_NOT_FOUND,
                         "no job %.60s runs here: `fsdprun ps` lists those that do; `fsdprun logs` and "
                         "`events` also take the run directory of one that has ended",
                         name);
    table_text(run_dir, lost->run_dir);
    return fsdp_fail(err, FSDP_ERR_NOT_FOUND,
                     "job %s was killed; `fsdprun logs` and `events` take its run directory: %s", lost->id,
                     run_dir);
}

enum fsdp_status jobs_find(const struct registry_job **out, const struct registry_list *list,
                           const char *name, struct fsdp_err *err)
{
    char all[160] = "";
    int best = 0, n = 0;

    *out = NULL;
    for (size_t i = 0; i < list->n; i++) {
        const struct registry_job *job = &list->jobs[i];
        const int how = match(job, name);

        if (how == 0 || how < best)
            continue;
        if (how > best) {
            best = how;
            n = 0;
            all[0] = '\0';
        }
        *out = job;
        n++;
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s (%.40s)", all[0] == '\0' ? "" : ", ",
                 job->id, job->name);
    }
    if (n == 0)
        return none_runs(list, name, err);
    return n == 1 ? FSDP_OK
                  : fsdp_fail(err, FSDP_ERR_CONFIG, "%.60s may be any of %s: give its id", name, all);
}

enum fsdp_status jobs_find_run(struct registry_job *out, const struct registry_list *list, const char *run,
                               struct fsdp_err *err)
{
    const struct registry_job *job;
    const enum fsdp_status found = jobs_find(&job, list, run, err);
    struct stat at, other;

    if ((job != NULL && match(job, run) == 2) || stat(run, &at) < 0 || !S_ISDIR(at.st_mode)) {
        if (found == FSDP_OK)
            *out = *job;
        if (found == FSDP_ERR_NOT_FOUND && find_lost(list, run) == NULL)
            return fsdp_fail(err, found, "%.200s is no run directory, and no job of that name runs here",
                             run);
        return found;
    }
    fsdp_err_clear(err);
    *out = (struct registry_job){ 0 };
    if (snprintf(out->run_dir, sizeof out->run_dir, "%s", run) >= (int)sizeof out->run_dir)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "the path of the run directory is too long");
    for (size_t i = 0; i < list->n; i++)
        if (list->jobs[i].run_dir[0] != '\0' && stat(list->jobs[i].run_dir, &other) == 0 &&
            other.st_dev == at.st_dev && other.st_ino == at.st_ino)
            *out = list->jobs[i];
    return FSDP_OK;
}

static enum fsdp_status silent(const struct registry_job *job, struct fsdp_err *err)
{
    return fsdp_fail(err, FSDP_ERR_PEER, "job %s (pid %d) does not answer", job->id, (int)job->pid);
}

cJSON *jobs_ask_one(const struct registry_list *list, const struct registry_job *job, enum desk_word word,
                    struct fsdp_err *err)
{
    struct registry_list one = *list;
    cJSON *answer;

    one.jobs = (struct registry_job *)(uintptr_t)job; /* jobs_ask() only reads it */
    one.n = 1;
    jobs_ask(&one, word, &answer);
    if (answer == NULL)
        silent(job, err);
    return answer;
}

/*
 * It connects to the job after it has opened the pidfd. If the job still serves its socket then, the pidfd is
 * the job's, and not that of a later process with the same pid.
 */
int jobs_watch(const struct registry_list *list, const struct registry_job *job)
{
    const int ended_fd = (int)syscall(SYS_pidfd_open, job->pid, 0);
    const int fd = ended_fd < 0 ? -1 : registry_connect(list, job);

    if (fd >= 0)
        close(fd);
    if (ended_fd < 0 || fd >= 0 || errno == EAGAIN)
        return ended_fd;
    close(ended_fd);
    return -1;
}

/*
 * Waits for the lines that the job sends about an order. The last one is the result. Once the job has
 * accepted the order, the wait has no time limit. Returns NULL if the job does not answer.
 *   ended_fd  becomes readable when the fsdprun of the job has ended
 */
static cJSON *await_result(struct talk *talk, int ended_fd)
{
    cJSON *last = NULL, *object;

    while (!talk->over) {
        struct pollfd readable = { .fd = talk->fd, .events = POLLIN };
        const int n = poll(&readable, 1, last == NULL ? ACCEPTED_MS : -1);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return NULL;
        talk_take(talk);
        while ((object = talk_next_line(talk)) != NULL) {
            cJSON_Delete(last);
            last = object;
        }
        if (cJSON_HasObjectItem(last, "generation") || cJSON_HasObjectItem(last, "refused"))
            return last; /* the job goes on, or has refused the order */
    }
    while (poll(&(struct pollfd){ .fd = ended_fd, .events = POLLIN }, 1, -1) < 0 && errno == EINTR)
        continue;
    return last;
}

void jobs_order_begin(struct jobs_order *order, const struct registry_list *list,
                      const struct registry_job *job, enum desk_word word)
{
    const int64_t until_ms = clock_now_ms() + JOBS_ANSWER_MS;
    struct talk *talk = &order->talk;

    *order = (struct jobs_order){ .talk.fd = -1, .ended_fd = jobs_watch(list, job) };
    while (order->ended_fd >= 0 && talk->fd < 0 && !talk->over && clock_now_ms() < until_ms) {
        talk_begin(talk, list, job, word);
        if (talk->fd < 0 && !talk->over)
            poll(NULL, 0, AGAIN_MS);
    }
}

cJSON *jobs_order_end(struct jobs_order *order, const struct registry_job *job, struct fsdp_err *err)
{
    cJSON *result = order->talk.fd >= 0 ? await_result(&order->talk, order->ended_fd) : NULL;

    if (result == NULL)
        silent(job, err);
    talk_end(&order->talk);
    free(order->talk.bytes);
    if (order->ended_fd >= 0)
        close(order->ended_fd);
    return result;
}
