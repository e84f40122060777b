#include "shard_runtime/shardfile/piece_crew.h"

#include <pthread.h>
#include <stdlib.h>

#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/free_cpus.h"
#include "shard_runtime/core/thread.h"

enum {
    ALONE_PIECES = 8,  /* up to so many pieces are done by one thread */
    WINDOW_PIECES = 6, /* pieces for each thread between two measurements of the speed */
};

struct piece_crew {
    const struct piece_work *work;
    size_t buffer_bytes;

    pthread_mutex_t mutex; /* guards the fields below */
    pthread_cond_t turn_ended;
    uint64_t next;       /* number of the piece that a thread takes next */
    uint64_t turn;       /* number of the piece whose turn it is */
    struct fsdp_err err; /* the first failure; its status is FSDP_OK as long as there is none */
    /* numbers of threads, with the caller: now; that a good speed may reach; the most */
    int n_threads, grows_to, limit;
    pthread_t threads[PIECE_THREADS];

    /* Measuring the speed */
    double best;                /* pieces per ns in the window before */
    uint64_t done, done_before; /* pieces that are done now, and at the beginning of the window */
    int64_t window_ns;          /* when the window began */
};

static void fail(struct piece_crew *crew, const struct fsdp_err *err)
{
    pthread_mutex_lock(&crew->mutex);
    if (crew->err.status == FSDP_OK)
        crew->err = *err;
    pthread_cond_broadcast(&crew->turn_ended);
    pthread_mutex_unlock(&crew->mutex);
}

/* Takes the next piece. Returns false if there is none, or if a thread has failed. */
static bool take(struct piece_crew *crew, uint64_t *number)
{
    bool is_there;

    pthread_mutex_lock(&crew->mutex);
    is_there = crew->err.status == FSDP_OK && crew->next < crew->work->n_pieces;
    if (is_there)
        *number = crew->next++;
    pthread_mutex_unlock(&crew->mutex);
    return is_there;
}

bool piece_crew_await_turn(struct piece_crew *crew, uint64_t number)
{
    bool goes_on;

    pthread_mutex_lock(&crew->mutex);
    while (crew->err.status == FSDP_OK && crew->turn < number)
        pthread_cond_wait(&crew->turn_ended, &crew->mutex);
    goes_on = crew->err.status == FSDP_OK;
    pthread_mutex_unlock(&crew->mutex);
    return goes_on;
}

void piece_crew_end_turn(struct piece_crew *crew)
{
    pthread_mutex_lock(&crew->mutex);
    crew->turn++;
    pthread_cond_broadcast(&crew->turn_ended);
    pthread_mutex_unlock(&crew->mutex);
}

static void *work(void *arg);

static void start_thread(struct piece_crew *crew)
{
    if (thread_start(&crew->threads[crew->n_threads], work, crew) == 0)
        crew->n_threads++;
    else
        crew->limit = crew->n_threads; /* the threads that exist do all pieces */
}

void piece_crew_reach(struct piece_crew *crew, int n)
{
    pthread_mutex_lock(&crew->mutex);
    while (crew->n_threads < n && crew->n_threads < crew->limit)
        start_thread(crew);
    pthread_mutex_unlock(&crew->mutex);
}

/*
 * Counts a piece that is done. At the end of a window it compares the speed with that of the window before.
 * If it has grown by a tenth, one more thread is started; otherwise the number of threads stays.
 */
static void count_piece(struct piece_crew *crew)
{
    uint64_t in_window;

    pthread_mutex_lock(&crew->mutex);
    in_window = ++crew->done - crew->done_before;
    if (crew->n_threads < crew->grows_to && in_window >= (uint64_t)crew->n_threads * WINDOW_PIECES) {
        const int64_t now = clock_now_ns(), took = now - crew->window_ns;
        const double speed = (double)in_window / (double)(took > 0 ? took : 1);

        if (speed > 1.1 * crew->best && crew->n_threads < crew->limit)
            start_thread(crew);
        else
            crew->grows_to = 0;
        crew->best = speed;
        crew->done_before = crew->done;
        crew->window_ns = now;
    }
    pthread_mutex_unlock(&crew->mutex);
}

static void do_pieces(struct piece_crew *crew, unsigned char *buffer)
{
    const struct piece_work *work = crew->work;
    enum fsdp_status status = FSDP_OK;
    struct fsdp_err err = { 0 };
    uint64_t number;

    while (status == FSDP_OK && take(crew, &number)) {
        status = work->piece(work->user, crew, number, buffer, &err);
        if (status == FSDP_OK)
            count_piece(crew);
    }
    if (status != FSDP_OK)
        fail(crew, &err);
}

/* The body of a thread other than the caller's. Without memory for its buffer it does nothing. */
static void *work(void *arg)
{
    struct piece_crew *crew = arg;
    unsigned char *buffer = aligned_alloc(PIECE_BLOCK_BYTES, crew->buffer_bytes);

    if (buffer != NULL)
        do_pieces(crew, buffer);
    free(buffer);
    return NULL;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

static void limit_threads(struct piece_crew *crew)
{
    const struct piece_work *work = crew->work;

    crew->limit = least(work->threads_most > 0 ? work->threads_most : PIECE_THREADS, PIECE_THREADS);
    if (!work->io->any_thread || io_is_remote(work->path) || work->one_thread ||
        work->n_pieces <= ALONE_PIECES)
        crew->limit = 1;
    crew->grows_to = work->threads_most > 0 || crew->limit == 1
                         ? crew->limit
                         : work->threads_first + free_cpus("/proc/loadavg");
}

/* Waits for the end of all threads but the caller's. A thread that still runs may start another one. */
static void join_all(struct piece_crew *crew)
{
    for (int i = 1;; i++) {
        bool is_there;

        pthread_mutex_lock(&crew->mutex);
        is_there = i < crew->n_threads;
        pthread_mutex_unlock(&crew->mutex);
        if (!is_there)
            return;
        pthread_join(crew->threads[i], NULL);
    }
}

enum fsdp_status piece_crew_run(const struct piece_work *work, int *n_threads, struct fsdp_err *err)
{
    struct piece_crew crew = {
        .work = work,
        .buffer_bytes = (work->buffer_bytes + PIECE_BLOCK_BYTES) / PIECE_BLOCK_BYTES * PIECE_BLOCK_BYTES,
        .n_threads = 1,
    };
    unsigned char *buffer;

    buffer = aligned_alloc(PIECE_BLOCK_BYTES, crew.buffer_bytes);
    if (buffer == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "%zu bytes for %s", crew.buffer_bytes, work->path);
    limit_threads(&crew);
    pthread_mutex_init(&crew.mutex, NULL);
    pthread_cond_init(&crew.turn_ended, NULL);
    crew.window_ns = clock_now_ns();
    piece_crew_reach(&crew, work->threads_first);
    do_pieces(&crew, buffer);
    join_all(&crew);
    free(buffer);
    pthread_cond_destroy(&crew.turn_ended);
    pthread_mutex_destroy(&crew.mutex);
    if (n_threads != NULL)
        *n_threads = crew.n_threads;
    return crew.err.status == FSDP_OK ? FSDP_OK : fsdp_fail(err, crew.err.status, "%s", crew.err.message);
}
