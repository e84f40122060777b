#include "agent/arbiter/arbiter_thread.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shard_runtime/core/thread.h"

struct arbiter_thread {
    uv_async_t telling;
    struct arbiter_thread_calls calls;
    void (*closed)(void *arg);
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t change;
    bool woken, over;
};

static struct timespec after(int64_t ms)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += ms / 1000;
    at.tv_nsec += ms % 1000 * 1000000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000;
    }
    return at;
}

static void *serve(void *arg)
{
    struct arbiter_thread *thread = arg;

    pthread_mutex_lock(&thread->lock);
    while (!thread->woken && !thread->over)
        pthread_cond_wait(&thread->change, &thread->lock);
    while (!thread->over) {
        struct timespec at;

        thread->woken = false;
        pthread_mutex_unlock(&thread->lock);
        at = after(thread->calls.turn(thread->calls.arg));
        pthread_mutex_lock(&thread->lock);
        while (!thread->woken && !thread->over &&
               pthread_cond_timedwait(&thread->change, &thread->lock, &at) == 0)
            ;
    }
    pthread_mutex_unlock(&thread->lock);
    return NULL;
}

static void on_telling(uv_async_t *telling)
{
    const struct arbiter_thread *thread = telling->data;

    thread->calls.told(thread->calls.arg);
}

static void on_closed(uv_handle_t *handle)
{
    struct arbiter_thread *thread = handle->data;

    if (thread->closed != NULL)
        thread->closed(thread->calls.arg);
    pthread_cond_destroy(&thread->change);
    pthread_mutex_destroy(&thread->lock);
    free(thread);
}

enum fsdp_status arbiter_thread_create(struct arbiter_thread **out, uv_loop_t *loop,
                                       const struct arbiter_thread_calls *calls, struct fsdp_err *err)
{
    struct arbiter_thread *thread = calloc(1, sizeof *thread);
    pthread_condattr_t clock;
    int error;

    *out = NULL;
    if (thread == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the arbiter's thread");
    error = -uv_async_init(loop, &thread->telling, on_telling);
    if (error != 0) {
        free(thread);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no handle for the arbiter's thread: %s", strerror(error));
    }
    thread->telling.data = thread;
    thread->calls = *calls;
    pthread_mutex_init(&thread->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&thread->change, &clock);
    pthread_condattr_destroy(&clock);
    error = thread_start(&thread->thread, serve, thread);
    if (error != 0) {
        uv_close((uv_handle_t *)&thread->telling, on_closed);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no thread for the arbiter: %s", strerror(error));
    }
    *out = thread;
    return FSDP_OK;
}

static void change(struct arbiter_thread *thread, bool *what)
{
    pthread_mutex_lock(&thread->lock);
    *what = true;
    pthread_cond_signal(&thread->change);
    pthread_mutex_unlock(&thread->lock);
}

void arbiter_thread_wake(struct arbiter_thread *thread)
{
    change(thread, &thread->woken);
}

void arbiter_thread_tell(struct arbiter_thread *thread)
{
    uv_async_send(&thread->telling);
}

void arbiter_thread_close(struct arbiter_thread *thread, void (*closed)(void *arg))
{
    change(thread, &thread->over);
    pthread_join(thread->thread, NULL);
    thread->closed = closed;
    uv_close((uv_handle_t *)&thread->telling, on_closed);
}
