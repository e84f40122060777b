#include "agent/wire/lookup.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/thread.h"

enum { HOST_BYTES = 256, SERVICE_BYTES = 32 };

/* What the thread and the loop share. The one of them that ends last frees it. */
struct question {
    pthread_mutex_t lock;
    uv_async_t *answered; /* wakes the loop; NULL: the loop no longer waits */
    bool over;            /* the thread has ended, and does not use this any more */
    int error;
    struct addrinfo *found;
    bool has_service;
    char host[HOST_BYTES], service[SERVICE_BYTES];
};

struct lookup {
    struct question *question;
    uv_async_t answered;
    uv_timer_t patience;
    uint64_t within_ms;
    int n_open;
    lookup_done *done;
    void *arg;
};

static void free_question(struct question *question)
{
    if (question->found != NULL)
        freeaddrinfo(question->found);
    pthread_mutex_destroy(&question->lock);
    free(question);
}

/* The thread that looks up the name */

static void *ask(void *arg)
{
    const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
    struct question *question = arg;
    const char *service = question->has_service ? question->service : NULL;
    struct addrinfo *found = NULL;
    int error = getaddrinfo(question->host, service, &hints, &found);
    bool alone;

    /*
     * Minimal containers have no /etc/hosts. Even there, localhost must mean the loopback address (RFC 6761,
     * 6.3).
     */
    if (error != 0 && strcmp(question->host, "localhost") == 0)
        error = getaddrinfo("127.0.0.1", service, &hints, &found);

    pthread_mutex_lock(&question->lock);
    question->error = error;
    question->found = error == 0 ? found : NULL;
    question->over = true;
    alone = question->answered == NULL;
    if (!alone)
        /* the lock is held, so the handle cannot be closed at the same time */
        uv_async_send(question->answered);
    pthread_mutex_unlock(&question->lock);
    if (alone)
        free_question(question);
    return NULL;
}

/* Runs on the loop */

static void on_closed(uv_handle_t *handle)
{
    struct lookup *lookup = handle->data;

    if (--lookup->n_open == 0)
        free(lookup);
}

/*
 * Stops waiting for the thread, which may go on running. Returns true if it has ended: then the caller owns
 * the question.
 */
static bool part(struct lookup *lookup)
{
    struct question *question = lookup->question;
    bool over;

    pthread_mutex_lock(&question->lock);
    question->answered = NULL;
    over = question->over;
    pthread_mutex_unlock(&question->lock);
    uv_close((uv_handle_t *)&lookup->answered, on_closed);
    uv_close((uv_handle_t *)&lookup->patience, on_closed);
    return over;
}

static void on_answered(uv_async_t *async)
{
    struct lookup *lookup = async->data;
    struct question *question = lookup->question;
    lookup_done *done = lookup->done;
    void *arg = lookup->arg;

    if (!part(lookup))
        return; /* cannot happen: the thread is done when it wakes the loop */
    if (question->error != 0 || question->found == NULL) {
        done(arg, NULL, question->error != 0 ? gai_strerror(question->error) : "it has no address");
    } else {
        done(arg, question->found, NULL);
        question->found = NULL;
    }
    free_question(question);
}

static void on_late(uv_timer_t *timer)
{
    struct lookup *lookup = timer->data;
    struct question *question = lookup->question;
    lookup_done *done = lookup->done;
    void *arg = lookup->arg;
    char words[64];

    snprintf(words, sizeof words, "no name server answered within %.0f s",
             (double)lookup->within_ms / 1000.0);
    if (part(lookup))
        free_question(question);
    done(arg, NULL, words);
}

enum fsdp_status lookup_begin(struct lookup **out, uv_loop_t *loop, const char *host, const char *service,
                              uint64_t within_ms, lookup_done *done, void *arg, struct fsdp_err *err)
{
    struct lookup *lookup = calloc(1, sizeof *lookup);
    struct question *question = calloc(1, sizeof *question);

    *out = NULL;
    if (lookup == NULL || question == NULL || uv_async_init(loop, &lookup->answered, on_answered) != 0) {
        free(lookup);
        free(question);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory to look up %s", host);
    }
    uv_timer_init(loop, &lookup->patience);
    lookup->answered.data = lookup->patience.data = lookup;
    lookup->n_open = 2;
    lookup->question = question;
    lookup->within_ms = within_ms;
    lookup->done = done;
    lookup->arg = arg;
    pthread_mutex_init(&question->lock, NULL);
    question->answered = &lookup->answered;
    question->has_service = service != NULL;
    snprintf(question->host, sizeof question->host, "%s", host);
    snprintf(question->service, sizeof question->service, "%s", service != NULL ? service : "");
    if (thread_start(NULL, ask, question) != 0) {
        part(lookup);
        free_question(question);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no thread to look up %s", host);
    }
    uv_update_time(loop);
    uv_timer_start(&lookup->patience, on_late, within_ms, 0);
    *out = lookup;
    return FSDP_OK;
}

void lookup_cancel(struct lookup *lookup)
{
    struct question *question;

    if (lookup == NULL)
        return;
    question = lookup->question;
    if (part(lookup))
        free_question(question);
}
