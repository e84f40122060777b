#include "shard_runtime/core/overlap.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/thread.h"

struct task {
    overlap_run_fn run;
    void *user;
    int entry;
};

struct overlap {
    pthread_t thread;
    void (*begin)(void); /* NULL: nothing */
    pthread_mutex_t mutex;
    /* the first: an entry was given, or the thread must end; the second: an entry is done */
    pthread_cond_t given, done;
    struct task *tasks; /* (capacity) a ring: entry number n is in place n % capacity */
    int capacity;
    unsigned long n_given, n_done;
    bool over;
    struct fsdp_err failure; /* status other than FSDP_OK: the first failure since overlap_finish() */
};

static enum fsdp_status run_task(const struct task *task, const struct fsdp_err *earlier,
                                 struct fsdp_err *err)
{
    return earlier->status == FSDP_OK ? task->run(task->user, task->entry, err) : FSDP_OK;
}

static void *second_thread(void *user)
{
    struct overlap *overlap = user;

    if (overlap->begin != NULL)
        overlap->begin();
    pthread_mutex_lock(&overlap->mutex);
    for (;;) {
        struct task task;
        struct fsdp_err earlier, err = { 0 };
        enum fsdp_status status;

        while (overlap->n_done == overlap->n_given && !overlap->over)
            pthread_cond_wait(&overlap->given, &overlap->mutex);
        if (overlap->n_done == overlap->n_given)
            break;
        task = overlap->tasks[overlap->n_done % (unsigned long)overlap->capacity];
        earlier = overlap->failure;
        pthread_mutex_unlock(&overlap->mutex);
        status = run_task(&task, &earlier, &err);
        pthread_mutex_lock(&overlap->mutex);
        if (status != FSDP_OK) {
            overlap->failure = err;
            overlap->failure.status = status;
        }
        overlap->n_done++;
        pthread_cond_signal(&overlap->done);
    }
    pthread_mutex_unlock(&overlap->mutex);
    return NULL;
}

enum fsdp_status overlap_create(struct overlap **out, int capacity, void (*begin)(void), struct fsdp_err *err)
{
    struct overlap *overlap = alloc_array(1, sizeof *overlap);
    int error;

    *out = NULL;
    if (overlap != NULL)
        overlap->tasks = alloc_array((size_t)capacity, sizeof *overlap->tasks);
    if (overlap == NULL || overlap->tasks == NULL) {
        free(overlap);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "a second thread: out of memory");
    }
    overlap->begin = begin;
    overlap->capacity = capacity > 0 ? capacity : 1;
    pthread_mutex_init(&overlap->mutex, NULL);
    pthread_cond_init(&overlap->given, NULL);
    pthread_cond_init(&overlap->done, NULL);
    error = thread_start(&overlap->thread, second_thread, overlap);
    if (error != 0) {
        free(overlap->tasks);
        free(overlap);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "a second thread: %s", strerror(error));
    }
    *out = overlap;
    return FSDP_OK;
}

void overlap_destroy(struct overlap *overlap)
{
    if (overlap == NULL)
        return;
    pthread_mutex_lock(&overlap->mutex);
    overlap->over = true;
    pthread_cond_signal(&overlap->given);
    pthread_mutex_unlock(&overlap->mutex);
    pthread_join(overlap->thread, NULL);
    pthread_mutex_destroy(&overlap->mutex);
    pthread_cond_destroy(&overlap->given);
    pthread_cond_destroy(&overlap->done);
    free(overlap->tasks);
    free(overlap);
}

void overlap_give(struct overlap *overlap, overlap_run_fn run, void *user, int entry)
{
    pthread_mutex_lock(&overlap->mutex);
    overlap->tasks[overlap->n_given % (unsigned long)overlap->capacity] =
        (struct task){ .run = run, .user = user, .entry = entry };
    overlap->n_given++;
    pthread_cond_signal(&overlap->given);
    pthread_mutex_unlock(&overlap->mutex);
}

/* Is `entry`, or one before it in the program, given and not done yet? The caller holds the mutex. */
static bool is_under_way(const struct overlap *overlap, int entry)
{
    for (unsigned long n = overlap->n_done; n < overlap->n_given; n++)
        if (overlap->tasks[n % (unsigned long)overlap->capacity].entry <= entry)
            return true;
    return false;
}

/* Returns the first failure so far, with its message in `err`. The caller holds the mutex. */
static enum fsdp_status failure_of(const struct overlap *overlap, struct fsdp_err *err)
{
    return overlap->failure.status == FSDP_OK
               ? FSDP_OK
               : fsdp_fail(err, overlap->failure.status, "%s", overlap->failure.message);
}

enum fsdp_status overlap_wait(struct overlap *overlap, int entry, struct fsdp_err *err)
{
    enum fsdp_status status;

    pthread_mutex_lock(&overlap->mutex);
    while (is_under_way(overlap, entry))
        pthread_cond_wait(&overlap->done, &overlap->mutex);
    status = failure_of(overlap, err);
    pthread_mutex_unlock(&overlap->mutex);
    return status;
}

enum fsdp_status overlap_finish(struct overlap *overlap, struct fsdp_err *err)
{
    enum fsdp_status status;

    pthread_mutex_lock(&overlap->mutex);
    while (overlap->n_done < overlap->n_given)
        pthread_cond_wait(&overlap->done, &overlap->mutex);
    status = failure_of(overlap, err);
    overlap->failure = (struct fsdp_err){ 0 };
    pthread_mutex_unlock(&overlap->mutex);
    return status;
}
