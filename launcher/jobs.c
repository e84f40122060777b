#include "launcher/jobs.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/json.h"

enum { AGAIN_MS = 5, READ_BYTES = 65536, ACCEPTED_MS = 10000 };

/* A conversation with one job: its line is sent, and its answer comes, as far as it is here. */
struct talk {
    int fd; /* -1: not connected yet, or over */
    bool over;
    char *bytes;
    size_t n_bytes;
};

/*
 * Connect and send the line. A job at which too many connections wait is tried again later: then nothing
 * changes.
 */
static void begin(struct talk *talk, const struct registry_list *list, const struct registry_job *job,
                  enum desk_word word)
{
    char line[DESK_LINE_BYTES];
    const int n = snprintf(line, sizeof line, "%s\n", desk_word_text(word));

    talk->fd = registry_connect(list, job);
    if (talk->fd < 0) {
        talk->over = errno != EAGAIN;
    } else if (send(talk->fd, line, (size_t)n, MSG_NOSIGNAL) != n) {
        close(talk->fd);
        talk->fd = -1;
        talk->over = true;
    }
}

static void end(struct talk *talk)
{
    if (talk->fd >= 0)
        close(talk->fd);
    talk->fd = -1;
    talk->over = true;
}

/* Take what has come. */
static void take(struct talk *talk)
{
    char *bytes = realloc(talk->bytes, talk->n_bytes + READ_BYTES);
    ssize_t n;

    if (bytes == NULL) {
        end(talk);
        return;
    }
    talk->bytes = bytes;
    n = recv(talk->fd, bytes + talk->n_bytes, READ_BYTES, MSG_DONTWAIT);
    if (n > 0 && talk->n_bytes + (size_t)n <= 2 * DESK_ANSWER_BYTES)
        talk->n_bytes += (size_t)n;
    else if (n >= 0 || (errno != EAGAIN && errno != EINTR))
        end(talk);
}

/* Take the first line out of what has come. Returns its object; NULL: no whole line, or no object. */
static cJSON *next_line(struct talk *talk)
{
    const char *newline = talk->n_bytes == 0 ? NULL : memchr(talk->bytes, '\n', talk->n_bytes);
    cJSON *object;
    size_t n;

    if (newline == NULL)
        return NULL;
    n = (size_t)(newline - talk->bytes) + 1;
    object = json_parse_object(talk->bytes, n - 1);
    talk->n_bytes -= n;
    memmove(talk->bytes, talk->bytes + n, talk->n_bytes);
    return object;
}

void jobs_ask(const struct registry_list *list, enum desk_word word, cJSON **answers)
{
    const int64_t until_ms = clock_now_ms() + JOBS_ANSWER_MS;
    struct talk *talks = calloc(list->n + 1, sizeof *talks);
    struct pollfd *fds = calloc(list->n + 1, sizeof *fds);

    memset(answers, 0, list->n * sizeof *answers);
    for (size_t i = 0; talks != NULL && i < list->n; i++)
        begin(&talks[i], list, &list->jobs[i], word);
    while (talks != NULL && fds != NULL && clock_now_ms() < until_ms) {
        int64_t patience_ms = until_ms - clock_now_ms();
        bool any = false;

        for (size_t i = 0; i < list->n; i++) {
            if (talks[i].fd < 0 && !talks[i].over)
                begin(&talks[i], list, &list->jobs[i], word);
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
            take(&talks[i]);
            answers[i] = next_line(&talks[i]);
            if (answers[i] != NULL)
                end(&talks[i]);
        }
    }
    for (size_t i = 0; talks != NULL && i < list->n; i++) {
        end(&talks[i]);
        free(talks[i].bytes);
    }
    free(talks);
    free(fds);
}

/* Does the job match: 2 by its whole id or name, 1 by a prefix, 0 not at all? */
static int match(const struct registry_job *job, const char *name)
{
    const size_t n = strlen(name);

    if (strcmp(job->id, name) == 0 || strcmp(job->name, name) == 0)
        return 2;
    return strncmp(job->id, name, n) == 0 || strncmp(job->name, name, n) == 0;
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
        return fsdp_fail(err, FSDP_ERR_NOT_FOUND, "no job %.60s runs here: `fsdprun ps` lists those that do",
                         name);
    return n == 1 ? FSDP_OK
                  : fsdp_fail(err, FSDP_ERR_CONFIG, "%.60s may be any of %s: give its id", name, all);
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

    one.jobs = (struct registry_job *)(uintptr_t)job; /* which jobs_ask() only reads */
    one.n = 1;
    jobs_ask(&one, word, &answer);
    if (answer == NULL)
        silent(job, err);
    return answer;
}

/* The job still serves its socket after the pidfd was opened: so that is of no later process. */
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
 * Wait for lines of the job: the last one is the result. Once the order is accepted, the wait has no bound.
 *   ended_fd  is readable when the fsdprun of the job is gone
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
        take(talk);
        while ((object = next_line(talk)) != NULL) {
            cJSON_Delete(last);
            last = object;
        }
        if (cJSON_HasObjectItem(last, "generation") || cJSON_HasObjectItem(last, "refused"))
            return last; /* it goes on, or has ended nothing */
    }
    while (poll(&(struct pollfd){ .fd = ended_fd, .events = POLLIN }, 1, -1) < 0 && errno == EINTR)
        continue;
    return last;
}

cJSON *jobs_order(const struct registry_list *list, const struct registry_job *job, enum desk_word word,
                  struct fsdp_err *err)
{
    const int64_t until_ms = clock_now_ms() + JOBS_ANSWER_MS;
    const int ended_fd = jobs_watch(list, job);
    struct talk talk = { .fd = -1 };
    cJSON *result = NULL;

    if (ended_fd < 0) {
        silent(job, err);
        return NULL;
    }
    while (talk.fd < 0 && !talk.over && clock_now_ms() < until_ms) {
        begin(&talk, list, job, word);
        if (talk.fd < 0 && !talk.over)
            poll(NULL, 0, AGAIN_MS);
    }
    if (talk.fd >= 0)
        result = await_result(&talk, ended_fd);
    if (result == NULL)
        silent(job, err);
    end(&talk);
    free(talk.bytes);
    close(ended_fd);
    return result;
}
