#include "shard_runtime/ckpt/work.h"

#include <pthread.h>
#include <sched.h>

#include "shard_runtime/core/thread.h"

struct work {
    enum fsdp_status (*piece)(void *arg, size_t i, struct fsdp_err *err);
    void *arg;
    pthread_mutex_t mutex; /* guards the members below */
    size_t n, next, failed_at;
    struct fsdp_err failure; /* of piece `failed_at` */
};

int work_threads(void)
{
    cpu_set_t cpus;
    int n = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;

    return n < WORK_MOST_THREADS ? n : WORK_MOST_THREADS;
}

static void *run(void *arg)
{
    struct work *work = arg;

    for (;;) {
        struct fsdp_err err = { 0 };
        enum fsdp_status status;
        size_t i;

        pthread_mutex_lock(&work->mutex);
        i = work->failure.status == FSDP_OK ? work->next++ : work->n;
        pthread_mutex_unlock(&work->mutex);
        if (i >= work->n)
            return NULL;
        status = work->piece(work->arg, i, &err);
        if (status == FSDP_OK)
            continue;
        pthread_mutex_lock(&work->mutex);
        if (work->failure.status == FSDP_OK || i < work->failed_at) {
            work->failed_at = i;
            work->failure = err;
            work->failure.status = status;
        }
        pthread_mutex_unlock(&work->mutex);
    }
}

enum fsdp_status work_run(size_t n, enum fsdp_status (*piece)(void *arg, size_t i, struct fsdp_err *err),
                          void *arg, int n_threads, struct fsdp_err *err)
{
    struct work work = { .piece = piece, .arg = arg, .n = n };
    pthread_t threads[WORK_MOST_THREADS];
    int n_started = 0;

    pthread_mutex_init(&work.mutex, NULL);
    /* The calling thread works too, so a thread that cannot be started costs only time. */
    while (n_started + 1 < n_threads && (size_t)n_started + 1 < n && n_started < WORK_MOST_THREADS &&
           thread_start(&threads[n_started], run, &work) == 0)
        n_started++;
    run(&work);
    for (int i = 0; i < n_started; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&work.mutex);
    return work.failure.status == FSDP_OK ? FSDP_OK
                                          : fsdp_fail(err, work.failure.status, "%s", work.failure.message);
}
