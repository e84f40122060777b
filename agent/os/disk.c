#include "agent/os/disk.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/thread.h"

struct disk {
    uv_async_t answers;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct disk_row waiting, performed; /* under the lock */
    bool over;                          /* under the lock: the thread ends */
    _Atomic uint64_t n_steps;           /* what the thread got done */
    size_t n_under_way;                 /* submitted, and not answered yet; the loop's */
    void (*idle)(void *arg);            /* NULL: no caller waits for that */
    void *idle_arg;
};

static void *serve(void *arg)
{
    struct disk *disk = arg;
    struct disk_job *job;

    pthread_mutex_lock(&disk->lock);
    for (;;) {
        while ((job = disk_row_take(&disk->waiting)) == NULL && !disk->over)
            pthread_cond_wait(&disk->work, &disk->lock);
        if (job == NULL)
            break;
        pthread_mutex_unlock(&disk->lock);
        job->work(job);
        disk_step(disk);
        pthread_mutex_lock(&disk->lock);
        disk_row_add(&disk->performed, job);
        uv_async_send(&disk->answers);
    }
    pthread_mutex_unlock(&disk->lock);
    return NULL;
}

static struct disk_job *take_performed(struct disk *disk)
{
    struct disk_job *job;

    pthread_mutex_lock(&disk->lock);
    job = disk_row_take(&disk->performed);
    pthread_mutex_unlock(&disk->lock);
    return job;
}

/* One signal may stand for several jobs. */
static void on_answers(uv_async_t *answers)
{
    struct disk *disk = answers->data;
    void (*idle)(void *arg);
    struct disk_job *job;

    while ((job = take_performed(disk)) != NULL) {
        disk->n_under_way--;
        job->done(job);
    }
    idle = disk->idle;
    if (disk->n_under_way > 0 || idle == NULL)
        return;
    disk->idle = NULL;
    idle(disk->idle_arg); /* last: it may close the disk */
}

static void on_closed(uv_handle_t *handle)
{
    struct disk *disk = handle->data;

    pthread_cond_destroy(&disk->work);
    pthread_mutex_destroy(&disk->lock);
    free(disk);
}

enum fsdp_status disk_create(struct disk **out, uv_loop_t *loop, struct fsdp_err *err)
{
    struct disk *disk = calloc(1, sizeof *disk);
    int error;

    *out = NULL;
    if (disk == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the disk's thread");
    pthread_mutex_init(&disk->lock, NULL);
    pthread_cond_init(&disk->work, NULL);
    disk_row_init(&disk->waiting);
    disk_row_init(&disk->performed);
    error = -uv_async_init(loop, &disk->answers, on_answers);
    if (error != 0) {
        free(disk);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no handle for the disk's thread: %s", strerror(error));
    }
    disk->answers.data = disk;
    error = thread_start(&disk->thread, serve, disk);
    if (error != 0) {
        uv_close((uv_handle_t *)&disk->answers, on_closed);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no thread for the disk: %s", strerror(error));
    }
    *out = disk;
    return FSDP_OK;
}

void disk_submit(struct disk *disk, struct disk_job *job)
{
    if (disk == NULL) {
        job->work(job);
        job->done(job);
        return;
    }
    disk->n_under_way++;
    pthread_mutex_lock(&disk->lock);
    disk_row_add(&disk->waiting, job);
    pthread_cond_signal(&disk->work);
    pthread_mutex_unlock(&disk->lock);
}

bool disk_is_idle(const struct disk *disk)
{
    return disk == NULL || disk->n_under_way == 0;
}

uint64_t disk_progress(const struct disk *disk)
{
    return disk == NULL ? 0 : atomic_load_explicit(&disk->n_steps, memory_order_relaxed);
}

void disk_step(struct disk *disk)
{
    if (disk != NULL)
        atomic_fetch_add_explicit(&disk->n_steps, 1, memory_order_relaxed);
}

void disk_when_idle(struct disk *disk, void (*idle)(void *arg), void *arg)
{
    disk->idle = idle;
    disk->idle_arg = arg;
}

void disk_close(struct disk *disk)
{
    if (disk == NULL)
        return;
    assert(disk_is_idle(disk));
    pthread_mutex_lock(&disk->lock);
    disk->over = true;
    pthread_cond_signal(&disk->work);
    pthread_mutex_unlock(&disk->lock);
    pthread_join(disk->thread, NULL); /* at once: it has nothing to do */
    uv_close((uv_handle_t *)&disk->answers, on_closed);
}
