#include "shard_runtime/shardfile/piece_writer.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/free_cpus.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/core/thread.h"
#include "shard_runtime/shardfile/xxh3.h"

enum {
    ALONE_PIECES = 8,  /* so many pieces are not worth a thread */
    WINDOW_PIECES = 6, /* for each thread, between two looks at the speed */
};

struct crew {
    const struct piece_writer *writer;
    uint64_t n_pieces;
    size_t buffer_bytes;
    int most; /* threads, the caller included */

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t hashed_more;
    uint64_t next;       /* piece that is taken next */
    uint64_t hashed;     /* pieces that are in the checksum of the file */
    bool direct;         /* O_DIRECT has not failed */
    struct fsdp_err err; /* the first failure; its status is FSDP_OK as long as there is none */
    int n_threads;
    pthread_t threads[PIECE_THREADS];

    /* The speed */
    bool settled;               /* no further thread is tried */
    double best;                /* pieces per ns of the last window that was good enough */
    uint64_t done, done_before; /* pieces that are written; at the beginning of the window */
    int64_t window_ns;          /* when the window began */
};

/* One piece and the buffer of a thread. */
struct piece {
    uint64_t number, begin, end;
    unsigned char *bytes;
};

static void fail(struct crew *crew, const struct fsdp_err *err)
{
    pthread_mutex_lock(&crew->mutex);
    if (crew->err.status == FSDP_OK)
        crew->err = *err;
    pthread_cond_broadcast(&crew->hashed_more);
    pthread_mutex_unlock(&crew->mutex);
}

/* Takes the next piece. Returns false if there is none, or if a thread has failed. */
static bool take(struct crew *crew, struct piece *piece)
{
    const struct piece_writer *writer = crew->writer;
    bool is_there;

    pthread_mutex_lock(&crew->mutex);
    is_there = crew->err.status == FSDP_OK && crew->next < crew->n_pieces;
    if (is_there)
        piece->number = crew->next++;
    pthread_mutex_unlock(&crew->mutex);
    if (!is_there)
        return false;
    piece->begin = writer->begin + piece->number * PIECE_BYTES;
    piece->end = writer->end - piece->begin < PIECE_BYTES ? writer->end : piece->begin + PIECE_BYTES;
    return true;
}

/*
 * Adds the piece to the checksum of the file, after those before it. The one with the lowest number never
 * waits, so there is always a thread that goes on. Returns false if another thread has failed.
 */
static bool hash_in_turn(struct crew *crew, const struct piece *piece)
{
    bool goes_on;

    pthread_mutex_lock(&crew->mutex);
    while (crew->err.status == FSDP_OK && crew->hashed < piece->number)
        pthread_cond_wait(&crew->hashed_more, &crew->mutex);
    goes_on = crew->err.status == FSDP_OK;
    pthread_mutex_unlock(&crew->mutex);
    if (!goes_on)
        return false;
    xxh3_128_update(crew->writer->hash, piece->bytes, (size_t)(piece->end - piece->begin));
    pthread_mutex_lock(&crew->mutex);
    crew->hashed++;
    pthread_cond_broadcast(&crew->hashed_more);
    pthread_mutex_unlock(&crew->mutex);
    return true;
}

static bool is_direct(struct crew *crew)
{
    bool direct;

    pthread_mutex_lock(&crew->mutex);
    direct = crew->direct;
    pthread_mutex_unlock(&crew->mutex);
    return direct;
}

static void leave_direct(struct crew *crew)
{
    pthread_mutex_lock(&crew->mutex);
    crew->direct = false;
    pthread_mutex_unlock(&crew->mutex);
}

static enum fsdp_status write_piece(struct crew *crew, const struct piece *piece, struct fsdp_err *err)
{
    const struct piece_writer *writer = crew->writer;
    const size_t size_bytes = (size_t)(piece->end - piece->begin);

    if (is_direct(crew)) {
        /* only the last piece is padded: no chunk of it reaches beyond it */
        const size_t padding = (PIECE_BLOCK_BYTES - size_bytes % PIECE_BLOCK_BYTES) % PIECE_BLOCK_BYTES;
        ssize_t n;

        memset(piece->bytes + size_bytes, 0, padding);
        do
            n = writer->io->pwrite(writer->io, writer->direct_fd, piece->bytes, size_bytes + padding,
                                   piece->begin);
        while (n < 0 && errno == EINTR);
        if (n == (ssize_t)(size_bytes + padding))
            return FSDP_OK;
        if (n < 0 && errno != EINVAL)
            return file_fail(err, "write", writer->path);
        leave_direct(crew); /* then writes the whole piece again */
    }
    return io_write_all(writer->io, writer->fd, piece->bytes, size_bytes, piece->begin, writer->path, err);
}

static void *work(void *arg);

static void start_thread(struct crew *crew)
{
    pthread_mutex_lock(&crew->mutex);
    if (crew->n_threads < crew->most && thread_start(&crew->threads[crew->n_threads], work, crew) == 0)
        crew->n_threads++;
    else
        crew->settled = true; /* those that are there do all */
    pthread_mutex_unlock(&crew->mutex);
}

/* Counts a piece. Returns true if a window has ended in which the last thread paid, so that one more is due.
 */
static bool count_piece(struct crew *crew)
{
    bool one_more = false;
    uint64_t in_window;

    pthread_mutex_lock(&crew->mutex);
    in_window = ++crew->done - crew->done_before;
    if (!crew->settled && in_window >= (uint64_t)crew->n_threads * WINDOW_PIECES) {
        const int64_t now = clock_now_ns(), took = now - crew->window_ns;
        const double speed = (double)in_window / (double)(took > 0 ? took : 1);

        one_more = speed > 1.1 * crew->best;
        crew->settled = !one_more;
        crew->best = speed;
        crew->done_before = crew->done;
        crew->window_ns = now;
    }
    pthread_mutex_unlock(&crew->mutex);
    return one_more;
}

static enum fsdp_status do_piece(struct crew *crew, const struct piece *piece, struct fsdp_err *err)
{
    const struct piece_writer *writer = crew->writer;
    const uint64_t reach =
        writer->sums == NULL ? piece->end : chunk_sums_reach(writer->sums, piece->begin, piece->end);

    OK_OR_RETURN(writer->read(writer->user, piece->begin, piece->bytes, (size_t)(reach - piece->begin), err));
    if (writer->sums != NULL)
        chunk_sums_take(writer->sums, piece->begin, piece->end, piece->bytes);
    if (!hash_in_turn(crew, piece))
        return FSDP_OK;
    OK_OR_RETURN(write_piece(crew, piece, err));
    if (writer->n_written != NULL)
        atomic_fetch_add_explicit(writer->n_written, piece->end - piece->begin, memory_order_relaxed);
    return FSDP_OK;
}

static void write_pieces(struct crew *crew, unsigned char *buffer)
{
    struct piece piece = { .bytes = buffer };
    struct fsdp_err err = { 0 };
    enum fsdp_status status = FSDP_OK;

    while (status == FSDP_OK && take(crew, &piece)) {
        status = do_piece(crew, &piece, &err);
        if (status == FSDP_OK && count_piece(crew))
            start_thread(crew);
    }
    if (status != FSDP_OK)
        fail(crew, &err);
}

/* A thread other than the caller's. Without memory for its buffer it does nothing. */
static void *work(void *arg)
{
    struct crew *crew = arg;
    unsigned char *buffer = aligned_alloc(PIECE_BLOCK_BYTES, crew->buffer_bytes);

    if (buffer != NULL)
        write_pieces(crew, buffer);
    free(buffer);
    return NULL;
}

static int most_threads(const struct piece_writer *writer, uint64_t n_pieces)
{
    int most = writer->threads_most;

    if (!writer->io->any_thread || !writer->any_thread || n_pieces <= ALONE_PIECES)
        return 1;
    if (most == 0)
        most = 2 + free_cpus("/proc/loadavg");
    return most < PIECE_THREADS ? most : PIECE_THREADS;
}

/* Waits for all threads but the caller's. As long as one runs, it may start another one. */
static void join_all(struct crew *crew)
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

enum fsdp_status piece_writer_run(const struct piece_writer *writer, int *n_threads, struct fsdp_err *err)
{
    const uint64_t size_bytes = writer->end - writer->begin;
    const uint64_t in_buffer = size_bytes < PIECE_BYTES ? size_bytes : PIECE_BYTES + CHUNK_SUMS_BYTES;
    struct crew crew = {
        .writer = writer,
        .n_pieces = (size_bytes + PIECE_BYTES - 1) / PIECE_BYTES,
        .buffer_bytes = (size_t)(in_buffer + PIECE_BLOCK_BYTES) / PIECE_BLOCK_BYTES * PIECE_BLOCK_BYTES,
        .direct = writer->direct_fd >= 0,
        .n_threads = 1,
    };
    unsigned char *buffer;

    buffer = aligned_alloc(PIECE_BLOCK_BYTES, crew.buffer_bytes);
    if (buffer == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "%zu bytes to write %s", crew.buffer_bytes, writer->path);
    crew.most = most_threads(writer, crew.n_pieces);
    pthread_mutex_init(&crew.mutex, NULL);
    pthread_cond_init(&crew.hashed_more, NULL);
    crew.window_ns = clock_now_ns();
    if (crew.most > 1)
        start_thread(&crew);
    else
        crew.settled = true;
    write_pieces(&crew, buffer);
    join_all(&crew);
    free(buffer);
    pthread_cond_destroy(&crew.hashed_more);
    pthread_mutex_destroy(&crew.mutex);
    if (n_threads != NULL)
        *n_threads = crew.n_threads;
    return crew.err.status == FSDP_OK ? FSDP_OK : fsdp_fail(err, crew.err.status, "%s", crew.err.message);
}
