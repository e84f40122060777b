#include "agent/daemon/control_proto.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/version.h"

static void write_build(char build[CONTROL_BUILD_BYTES])
{
    memset(build, 0, CONTROL_BUILD_BYTES);
    snprintf(build, CONTROL_BUILD_BYTES, "%s (%s)", version_number(), version_commit());
}

/* Count the texts of a list, and add their lengths with a zero each to *n_bytes. */
static uint32_t measure(char *const *list, size_t *n_bytes)
{
    uint32_t n = 0;

    for (; list[n] != NULL; n++)
        *n_bytes += strlen(list[n]) + 1;
    return n;
}

static char *put_list(char *out, char *const *list)
{
    for (; *list != NULL; list++)
        out = stpcpy(out, *list) + 1;
    return out;
}

enum fsdp_status control_encode_job(struct control_job *job, unsigned char **payload, size_t *n_bytes,
                                    struct fsdp_err *err)
{
    char *text;

    *payload = NULL;
    *n_bytes = sizeof job->head + strlen(job->directory) + 1;
    write_build(job->head.build);
    job->head.n_arguments = measure(job->argv, n_bytes);
    job->head.n_variables = measure(job->environment, n_bytes);
    if (*n_bytes > CONTROL_MAX_BYTES)
        return fsdp_fail(err, FSDP_ERR_ARG, "the job and its environment are larger than %d bytes",
                         CONTROL_MAX_BYTES);
    *payload = malloc(*n_bytes);
    if (*payload == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a job of %zu bytes", *n_bytes);
    memcpy(*payload, &job->head, sizeof job->head);
    text = stpcpy((char *)*payload + sizeof job->head, job->directory) + 1;
    put_list(put_list(text, job->argv), job->environment);
    return FSDP_OK;
}

/* Returns the next text between *at and `end`, and moves *at past it. NULL: no text ends there. */
static char *take_text(char **at, const char *end)
{
    char *text = *at, *zero = memchr(text, '\0', (size_t)(end - text));

    if (zero == NULL)
        return NULL;
    *at = zero + 1;
    return text;
}

static bool take_list(char **list, uint32_t n, char **at, const char *end)
{
    for (uint32_t i = 0; i < n; i++)
        if ((list[i] = take_text(at, end)) == NULL)
            return false;
    list[n] = NULL;
    return true;
}

/*
 * Point the job at its texts in `bytes`. One block holds all: first the two lists, then a copy of the bytes.
 */
static enum fsdp_status take_texts(struct control_job *job, const unsigned char *bytes, size_t n_bytes,
                                   struct fsdp_err *err)
{
    const struct control_head *head = &job->head;
    const size_t n_pointers = (size_t)head->n_arguments + head->n_variables + 2;
    char **lists = malloc(n_pointers * sizeof *lists + n_bytes);
    char **variables, *at, *end;

    if (lists == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a job of %zu bytes", n_bytes);
    variables = lists + head->n_arguments + 1;
    at = memcpy(lists + n_pointers, bytes, n_bytes);
    end = at + n_bytes;
    job->owned = lists;
    job->argv = lists;
    job->environment = variables;
    job->directory = take_text(&at, end);
    if (job->directory != NULL && job->directory[0] == '/' && take_list(lists, head->n_arguments, &at, end) &&
        take_list(variables, head->n_variables, &at, end) && at == end)
        return FSDP_OK;
    return fsdp_fail(err, FSDP_ERR_FORMAT, "the request is damaged: its texts");
}

static bool is_possible(const struct control_head *head)
{
    return head->detach <= 1 && head->saves <= 1 && head->umask <= 0777 && head->n_arguments >= 1 &&
           head->n_arguments <= CONTROL_MAX_TEXTS && head->n_variables <= CONTROL_MAX_TEXTS;
}

enum fsdp_status control_decode_job(struct control_job *job, const unsigned char *payload, size_t n_bytes,
                                    struct fsdp_err *err)
{
    char build[CONTROL_BUILD_BYTES];
    enum fsdp_status status;

    memset(job, 0, sizeof *job);
    write_build(build);
    if (n_bytes < sizeof build)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "the request is damaged: it is cut short");
    if (memcmp(payload, build, sizeof build) != 0)
        return fsdp_fail(err, FSDP_ERR_MISMATCH, "the agent is version %s, this fsdprun %.*s", build,
                         (int)strnlen((const char *)payload, sizeof build), (const char *)payload);
    if (n_bytes < sizeof job->head)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "the request is damaged: it is cut short");
    memcpy(&job->head, payload, sizeof job->head);
    status = is_possible(&job->head)
                 ? take_texts(job, payload + sizeof job->head, n_bytes - sizeof job->head, err)
                 : fsdp_fail(err, FSDP_ERR_FORMAT, "the request is damaged: its head");
    if (status != FSDP_OK)
        control_job_free(job);
    return status;
}

void control_job_free(struct control_job *job)
{
    free(job->owned);
    memset(job, 0, sizeof *job);
}

size_t control_encode_number(unsigned char out[4], uint32_t number)
{
    for (int i = 0; i < 4; i++)
        out[i] = (unsigned char)(number >> 8 * i);
    return 4;
}

size_t control_encode_words(unsigned char *out, size_t size, uint32_t number, const char *words)
{
    const size_t n = strnlen(words, size - 4);

    control_encode_number(out, number);
    memcpy(out + 4, words, n);
    return 4 + n;
}

bool control_decode_number(const unsigned char *payload, size_t n_bytes, uint32_t *number)
{
    if (n_bytes != 4)
        return false;
    *number = (uint32_t)payload[0] | (uint32_t)payload[1] << 8 | (uint32_t)payload[2] << 16 |
              (uint32_t)payload[3] << 24;
    return true;
}

bool control_decode_words(const unsigned char *payload, size_t n_bytes, uint32_t *number, char *words,
                          size_t size)
{
    if (n_bytes < 4 || n_bytes - 4 > CONTROL_WORDS_BYTES || !control_decode_number(payload, 4, number))
        return false;
    snprintf(words, size, "%.*s", (int)(n_bytes - 4), (const char *)payload + 4);
    for (char *c = words; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20)
            *c = ' ';
    return true;
}

bool control_put_place(unsigned char *out, size_t *at, const struct control_place *place)
{
    const size_t n_first = strlen(place->runtime_dir) + 1, n_second = strlen(place->temporary) + 1;

    if (n_first > CONTROL_PATH_BYTES || n_second > CONTROL_PATH_BYTES ||
        *at + 4 + n_first + n_second > CONTROL_JOBS_BYTES)
        return false;
    *at += control_encode_number(out + *at, place->pid);
    memcpy(out + *at, place->runtime_dir, n_first);
    memcpy(out + *at + n_first, place->temporary, n_second);
    *at += n_first + n_second;
    return true;
}

/* Returns a path of the payload, and moves *at past it. NULL: it is too long, or does not end. */
static const char *take_path(const unsigned char *payload, size_t n_bytes, size_t *at)
{
    const size_t left = n_bytes - *at, most = left < CONTROL_PATH_BYTES ? left : CONTROL_PATH_BYTES;
    const unsigned char *text = payload + *at, *zero = most == 0 ? NULL : memchr(text, '\0', most);

    if (zero == NULL)
        return NULL;
    *at += (size_t)(zero - text) + 1;
    return (const char *)text;
}

int control_take_place(const unsigned char *payload, size_t n_bytes, size_t *at, struct control_place *place)
{
    if (*at == n_bytes)
        return 0;
    if (n_bytes - *at < 4 || !control_decode_number(payload + *at, 4, &place->pid) || place->pid == 0 ||
        place->pid > INT32_MAX)
        return -1;
    *at += 4;
    place->runtime_dir = take_path(payload, n_bytes, at);
    place->temporary = place->runtime_dir == NULL ? NULL : take_path(payload, n_bytes, at);
    return place->temporary != NULL ? 1 : -1;
}

bool control_signal_allowed(uint32_t number)
{
    return number > 0 && number < 64 && number != SIGKILL && number != SIGSTOP && number != SIGCHLD;
}

bool control_default_socket(char *out, size_t size, const char *runtime_dir, unsigned uid)
{
    int n;

    if (runtime_dir != NULL && runtime_dir[0] == '/')
        n = snprintf(out, size, "%s/fsdp/agent.sock", runtime_dir);
    else
        n = snprintf(out, size, "/tmp/fsdp-%u/agent.sock", uid);
    return n > 0 && (size_t)n < size;
}
