#include "agent/save/search_watch.h"

#include <stdlib.h>

/* LOOKS: looks within the limit; MOST_MS: the longest time between two looks */
enum { LOOKS = 20, MOST_MS = 1000 };

static void count(struct fsdp_io *io)
{
    atomic_fetch_add_explicit(((struct counting_io *)io)->n_done, 1, memory_order_relaxed);
}

static struct fsdp_io *files_of(struct fsdp_io *io)
{
    return ((struct counting_io *)io)->files;
}

static int counted_open(struct fsdp_io *io, const char *path, int flags, mode_t mode)
{
    const int fd = files_of(io)->open(files_of(io), path, flags, mode);

    count(io);
    return fd;
}

static ssize_t counted_pread(struct fsdp_io *io, int fd, void *bytes, size_t size_bytes, uint64_t offset)
{
    const ssize_t n = files_of(io)->pread(files_of(io), fd, bytes, size_bytes, offset);

    count(io);
    return n;
}

static int counted_unlink(struct fsdp_io *io, const char *path)
{
    const int result = files_of(io)->unlink(files_of(io), path);

    count(io);
    return result;
}

void counting_io_init(struct counting_io *io, struct fsdp_io *files, _Atomic uint64_t *n_done)
{
    *io = (struct counting_io){ .base = *files, .files = files, .n_done = n_done };
    io->base.open = counted_open;
    io->base.pread = counted_pread;
    io->base.unlink = counted_unlink;
}

struct search_watch {
    uv_timer_t timer; /* first: it is freed as such */
    const _Atomic uint64_t *n_done;
    uint64_t seen;
    int64_t still_ms, every_ms, limit_ms;
    void (*silent)(void *arg);
    void *arg;
};

static void on_look(uv_timer_t *timer)
{
    struct search_watch *watch = timer->data;
    const uint64_t now = atomic_load_explicit(watch->n_done, memory_order_relaxed);

    /*
     * Time is counted in looks, not by the clock. So a stop of this process (Ctrl-Z), however long, counts as
     * one look.
     */
    watch->still_ms = now == watch->seen ? watch->still_ms + watch->every_ms : 0;
    watch->seen = now;
    if (watch->still_ms < watch->limit_ms)
        return;
    uv_timer_stop(timer);
    watch->silent(watch->arg);
}

struct search_watch *search_watch_start(uv_loop_t *loop, const _Atomic uint64_t *n_done, int64_t limit_ms,
                                        void (*silent)(void *arg), void *arg)
{
    struct search_watch *watch = calloc(1, sizeof *watch);

    if (watch == NULL)
        return NULL;
    watch->n_done = n_done;
    watch->limit_ms = limit_ms;
    watch->every_ms = limit_ms / LOOKS < MOST_MS ? limit_ms / LOOKS + 1 : MOST_MS;
    watch->silent = silent;
    watch->arg = arg;
    uv_timer_init(loop, &watch->timer);
    watch->timer.data = watch;
    uv_timer_start(&watch->timer, on_look, (uint64_t)watch->every_ms, (uint64_t)watch->every_ms);
    return watch;
}

static void on_closed(uv_handle_t *handle)
{
    free(handle);
}

void search_watch_stop(struct search_watch *watch)
{
    if (watch != NULL)
        uv_close((uv_handle_t *)&watch->timer, on_closed);
}
