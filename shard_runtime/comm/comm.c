/*
 * The public collectives. Each checks its arguments once, counts the call, shows it on the progress page and
 * lets a back end do it. A failure of a back end sticks.
 */
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "shard_runtime/comm/comm_impl.h"
#include "shard_runtime/comm/watch.h"
#include "shard_runtime/core/checked.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/require.h"

static _Thread_local bool is_second_thread;

struct fsdp_progress_thread *comm_thread(struct fsdp_progress *page)
{
    return &page->threads[is_second_thread ? 1 : 0];
}

int fsdp_comm_rank(const struct fsdp_comm *comm)
{
    return comm != NULL ? comm->rank : 0;
}

int fsdp_comm_size(const struct fsdp_comm *comm)
{
    return comm != NULL ? comm->size : 1;
}

bool comm_is_broken(const struct fsdp_comm *comm)
{
    return comm != NULL && comm->broken.status != FSDP_OK;
}

void comm_fail(struct fsdp_comm *comm, enum fsdp_status status, const char *words)
{
    const bool was_broken = comm_is_broken(comm);

    if (comm == NULL || (was_broken && !comm->ops->wraps))
        return;
    /*
     * If this rank's device failed, the other ranks' devices work: to them this rank has left, and the cause
     * is here.
     */
    if (comm->ops->fail != NULL && comm->size > 1)
        comm->ops->fail(comm, status == FSDP_ERR_DEVICE ? FSDP_ERR_PEER : status, words);
    if (!was_broken)
        fsdp_fail(&comm->broken, status, "group %s: %s", comm->name, words);
}

bool comm_hear(struct fsdp_comm *comm, int wait_ms, struct fsdp_err *err)
{
    static const struct timespec slice = { .tv_nsec = WATCH_SLICE_MS * 1000000L };

    if (comm->ops->hear == NULL || comm->size == 1 || comm_is_broken(comm))
        return false;
    for (int waited_ms = 0; !comm->ops->hear(comm, err); waited_ms += WATCH_SLICE_MS) {
        if (waited_ms >= wait_ms || link_check(comm->link, NULL) != FSDP_OK)
            return false;
        nanosleep(&slice, NULL);
    }
    return true;
}

void comm_own(struct fsdp_comm *comm)
{
    comm->owned = true;
    comm->thread = pthread_self();
}

void comm_second_thread(void)
{
    is_second_thread = true;
}

void comm_lend(struct fsdp_comm *comm, bool lent)
{
    if (comm != NULL)
        comm->lent = lent;
}

static enum fsdp_status check_thread(const struct fsdp_comm *comm, struct fsdp_err *err)
{
    if (!comm->owned || is_second_thread)
        return FSDP_OK;
    if (!pthread_equal(comm->thread, pthread_self()))
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "group %s: only the thread that created the context calls collectives", comm->name);
    if (comm->lent)
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "group %s: the model's second thread is at it: a step runs, or an unshard that was "
                         "not waited for",
                         comm->name);
    return FSDP_OK;
}

/* Counts the call, notes it in the flight recorder, and shows the agent that this rank is in a collective. */
static enum fsdp_status begin(struct fsdp_comm *comm, struct comm_call *call, struct device_stream *stream,
                              struct fsdp_err *err)
{
    struct fsdp_progress *page = link_progress(comm->link);
    struct fsdp_progress_thread *thread = comm_thread(page);
    const uint64_t now = clock_now_ns();
    const enum fsdp_status status = check_thread(comm, err);
    struct flight_note note;

    if (status != FSDP_OK)
        return status;
    if (comm_is_broken(comm))
        return fsdp_fail(err, comm->broken.status, "%s", comm->broken.message);
    call->sequence = ++comm->sequence;
    comm->stream = stream;
    note = comm_call_note(call);
    note.group = comm->number;
    note.place = atomic_load_explicit(&thread->place, memory_order_relaxed);
    comm->entry = flight_begin(page, &note, now);
    atomic_store_explicit(&thread->peer, -1, memory_order_relaxed);
    atomic_store_explicit(&thread->n_missing, 0, memory_order_relaxed);
    atomic_store_explicit(&thread->group, comm->number, memory_order_relaxed);
    comm->phase = atomic_load_explicit(&page->phase, memory_order_relaxed);
    atomic_store_explicit(&page->phase, FSDP_PHASE_COLLECTIVE, memory_order_relaxed);
    /*
     * Counted over all groups. Every rank of the world calls the same number of collectives, whatever groups
     * it is in.
     */
    atomic_store_explicit(&page->collective_seq,
                          atomic_load_explicit(&page->collective_seq, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    atomic_store_explicit(&page->beat_ns, now, memory_order_relaxed);
    return FSDP_OK;
}

static enum fsdp_status end(struct fsdp_comm *comm, enum fsdp_status status, struct fsdp_err *own,
                            struct fsdp_err *err)
{
    struct fsdp_flight_entry *entry = comm->entry;
    struct fsdp_progress *page = link_progress(comm->link);
    uint32_t collective = FSDP_PHASE_COLLECTIVE;
    const uint64_t now = clock_now_ns();

    /* The computing thread may have stored a phase of its own in the meantime. Then that phase stays. */
    atomic_compare_exchange_strong_explicit(&page->phase, &collective, comm->phase, memory_order_relaxed,
                                            memory_order_relaxed);
    atomic_store_explicit(&comm_thread(page)->group, 0, memory_order_relaxed);
    atomic_store_explicit(&page->beat_ns, now, memory_order_relaxed);
    comm->entry = NULL;
    if (!is_second_thread && entry != NULL)
        flight_spend(page, FSDP_SPENT_WAIT, now - entry->begun_ns);
    if (status == FSDP_OK) {
        if (entry != NULL)
            flight_end(page, entry, now);
        return FSDP_OK;
    }
    fsdp_wrap(own, "group %s", comm->name);
    comm->broken = *own;
    comm->broken.status = status;
    return fsdp_fail(err, status, "%s", own->message);
}

/* Runs a public call whose arguments are checked, and keeps its failure. */
static enum fsdp_status run(struct fsdp_comm *comm, struct comm_work work, struct device_stream *stream,
                            struct fsdp_err *err)
{
    enum fsdp_status status = begin(comm, &work.call, stream, err);
    struct fsdp_err own = { 0 };

    return status == FSDP_OK ? end(comm, comm->ops->run(comm, &work, &own), &own, err) : status;
}

/* Returns whether [a, a + a_bytes) and [b, b + b_bytes) share a byte. */
static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    return (uintptr_t)a < (uintptr_t)b + b_bytes && (uintptr_t)b < (uintptr_t)a + a_bytes;
}

/* Checks sizes, and that `part` (n_elems) is block `rank` of `whole` (W, n_elems) or disjoint from it. */
static enum fsdp_status check_blocks(const char *function, const struct fsdp_comm *comm, const void *whole,
                                     const void *part, size_t n_elems, enum fsdp_dtype dtype,
                                     struct fsdp_err *err)
{
    size_t part_bytes, whole_bytes;

    if (comm == NULL || (n_elems > 0 && (whole == NULL || part == NULL)))
        return fsdp_fail(err, FSDP_ERR_ARG, "%s: %s is NULL", function, comm == NULL ? "comm" : "a buffer");
    if ((unsigned)dtype >= FSDP_DTYPE_COUNT)
        return fsdp_fail(err, FSDP_ERR_ARG, "%s: unknown dtype %d", function, (int)dtype);
    if (!checked_mul(n_elems, fsdp_dtype_size(dtype), &part_bytes) ||
        !checked_mul(part_bytes, (size_t)comm->size, &whole_bytes) || whole_bytes > PTRDIFF_MAX)
        return fsdp_fail(err, FSDP_ERR_ARG, "%s: %zu elements on each of %d ranks are too many", function,
                         n_elems, comm->size);
    if (n_elems > 0 && overlap(whole, whole_bytes, part, part_bytes) &&
        (uintptr_t)part != (uintptr_t)whole + (size_t)comm->rank * part_bytes)
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "%s: the two buffers overlap, and not as block %d of the large one", function,
                         comm->rank);
    return FSDP_OK;
}

enum fsdp_status fsdp_all_gather(struct fsdp_comm *comm, const void *send, void *recv, size_t n_elems,
                                 enum fsdp_dtype dtype, struct device_stream *stream, struct fsdp_err *err)
{
    const enum fsdp_status status = check_blocks(__func__, comm, recv, send, n_elems, dtype, err);
    struct comm_work work = { .call = { .kind = COMM_ALL_GATHER, .dtype = dtype },
                              .send = send,
                              .recv = recv };

    if (status != FSDP_OK)
        return status;
    work.call.size_bytes = n_elems * fsdp_dtype_size(dtype);
    return run(comm, work, stream, err);
}

/* `op` is one of fsdp_reduce_op, or COMM_SCALED_SUM with a factor. */
static enum fsdp_status reduce_scatter(struct fsdp_comm *comm, const void *send, void *recv, size_t n_elems,
                                       enum fsdp_dtype dtype, unsigned op, float factor,
                                       struct device_stream *stream, struct fsdp_err *err)
{
    const enum fsdp_status status =
        check_blocks("fsdp_reduce_scatter", comm, send, recv, n_elems, dtype, err);
    struct comm_work work = { .call = { .kind = COMM_REDUCE_SCATTER, .dtype = dtype, .op = op },
                              .send = send,
                              .recv = recv,
                              .factor = factor };

    if (status != FSDP_OK)
        return status;
    if (dtype != FSDP_F32 && dtype != FSDP_BF16)
        return fsdp_fail(err, FSDP_ERR_ARG, "reduce_scatter sums float32 and bfloat16, not %s",
                         fsdp_dtype_name(dtype));
    work.call.size_bytes = n_elems * fsdp_dtype_size(dtype);
    return run(comm, work, stream, err);
}

enum fsdp_status fsdp_reduce_scatter(struct fsdp_comm *comm, const void *send, void *recv, size_t n_elems,
                                     enum fsdp_dtype dtype, enum fsdp_reduce_op op,
                                     struct device_stream *stream, struct fsdp_err *err)
{
    if ((unsigned)op > FSDP_MAX)
        return fsdp_fail(err, FSDP_ERR_ARG, "reduce_scatter: %d is no operation", (int)op);
    return reduce_scatter(comm, send, recv, n_elems, dtype, op, 1.0f, stream, err);
}

bool comm_scales(const struct fsdp_comm *comm)
{
    return comm->ops->scales;
}

enum fsdp_status comm_reduce_scatter_scaled(struct fsdp_comm *comm, const void *send, void *recv,
                                            size_t n_elems, enum fsdp_dtype dtype, float factor,
                                            struct device_stream *stream, struct fsdp_err *err)
{
    if (!comm_scales(comm))
        return fsdp_fail(err, FSDP_ERR_ARG, "group %s does not scale", comm->name);
    return reduce_scatter(comm, send, recv, n_elems, dtype, COMM_SCALED_SUM, factor, stream, err);
}

enum fsdp_status fsdp_all_reduce(struct fsdp_comm *comm, void *buffer, size_t n_elems, enum fsdp_dtype dtype,
                                 enum fsdp_reduce_op op, struct device_stream *stream, struct fsdp_err *err)
{
    struct comm_work work = { .call = { .kind = COMM_ALL_REDUCE, .dtype = dtype, .op = op },
                              .send = buffer,
                              .recv = buffer };
    size_t bytes;

    REQUIRE(comm, err);
    if (n_elems > 0)
        REQUIRE(buffer, err);
    if ((unsigned)op > FSDP_MAX)
        return fsdp_fail(err, FSDP_ERR_ARG, "all_reduce: %d is no operation", (int)op);
    if (dtype != FSDP_F32 && dtype != FSDP_BF16 && dtype != FSDP_F64 && dtype != FSDP_I64)
        return fsdp_fail(err, FSDP_ERR_ARG, "all_reduce takes float32, bfloat16, float64 or int64");
    if (dtype == FSDP_I64 && op == FSDP_MEAN)
        return fsdp_fail(err, FSDP_ERR_ARG, "the mean of int64 is no int64");
    if (!checked_mul(n_elems, fsdp_dtype_size(dtype), &bytes) || bytes > PTRDIFF_MAX)
        return fsdp_fail(err, FSDP_ERR_ARG, "all_reduce: %zu elements are too many", n_elems);
    work.call.size_bytes = bytes;
    return run(comm, work, stream, err);
}

enum fsdp_status fsdp_broadcast(struct fsdp_comm *comm, void *buffer, size_t size_bytes, int root,
                                struct device_stream *stream, struct fsdp_err *err)
{
    const struct comm_work work = { .call = { .kind = COMM_BROADCAST,
                                              .size_bytes = size_bytes,
                                              .dtype = FSDP_U8,
                                              .root = (uint32_t)root },
                                    .send = buffer,
                                    .recv = buffer };

    REQUIRE(comm, err);
    if (size_bytes > 0)
        REQUIRE(buffer, err);
    if (root < 0 || root >= comm->size)
        return fsdp_fail(err, FSDP_ERR_ARG, "broadcast from rank %d of a group of %d", root, comm->size);
    return run(comm, work, stream, err);
}

enum fsdp_status fsdp_barrier(struct fsdp_comm *comm, struct fsdp_err *err)
{
    REQUIRE(comm, err);
    return run(comm, (struct comm_work){ .call = { .kind = COMM_BARRIER, .dtype = FSDP_U8 } }, NULL, err);
}
