/*
 * The public collectives: arguments are checked once, the call is counted and shown on the progress page, and a
 * back end does it. Failures of a back end stick.
 */
#include "shard_runtime/comm/comm_impl.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shard_runtime/comm/flight.h"
#include "shard_runtime/comm/shm.h"
#include "shard_runtime/comm/tcp_mesh.h"
#include "shard_runtime/comm/watch.h"
#include "shard_runtime/core/checked.h"
#include "shard_runtime/core/require.h"

/* --- the descriptor of a collective ---------------------------------------------------------------------- */

static const char *kind_name(uint32_t kind)
{
    static const char *const names[] = { [COMM_BARRIER] = "barrier",
                                         [COMM_ALL_GATHER] = "all_gather",
                                         [COMM_REDUCE_SCATTER] = "reduce_scatter",
                                         [COMM_ALL_REDUCE] = "all_reduce",
                                         [COMM_BROADCAST] = "broadcast" };

    return kind < sizeof names / sizeof *names && names[kind] != NULL ? names[kind] : "nothing known";
}

static const char *op_name(uint32_t op)
{
    static const char *const names[] = {
        [FSDP_SUM] = "sum", [FSDP_MEAN] = "mean", [FSDP_MAX] = "max", [COMM_SCALED_SUM] = "premul"
    };

    return op < sizeof names / sizeof *names ? names[op] : "unknown op";
}

static void describe(const struct comm_call *call, char *out, size_t out_bytes)
{
    const char *dtype = call->dtype < FSDP_DTYPE_COUNT ? fsdp_dtype_name((enum fsdp_dtype)call->dtype) : "?";
    int n = snprintf(out, out_bytes, "%s #%" PRIu64, kind_name(call->kind), call->sequence);

    switch (call->kind) {
    case COMM_ALL_GATHER:
        snprintf(out + n, out_bytes - (size_t)n, " of %" PRIu64 " bytes of %s", call->size_bytes, dtype);
        break;
    case COMM_REDUCE_SCATTER:
    case COMM_ALL_REDUCE:
        snprintf(out + n, out_bytes - (size_t)n, " (%s) of %" PRIu64 " bytes of %s", op_name(call->op),
                 call->size_bytes, dtype);
        break;
    case COMM_BROADCAST:
        snprintf(out + n, out_bytes - (size_t)n, " of %" PRIu64 " bytes from rank %u", call->size_bytes,
                 call->root);
        break;
    default:
        break;
    }
}

struct comm_call comm_call_of(const struct fsdp_comm *comm, enum comm_kind kind, size_t size_bytes,
                              enum fsdp_dtype dtype, enum fsdp_reduce_op op, int root)
{
    return (struct comm_call){ .sequence = comm->sequence,
                               .size_bytes = size_bytes,
                               .kind = kind,
                               .dtype = dtype,
                               .op = op,
                               .root = (uint32_t)root };
}

enum fsdp_status comm_call_compare(const struct comm_call *mine, int rank, const struct comm_call *theirs,
                                   int their_rank, struct fsdp_err *err)
{
    char a[128], b[128];

    if (memcmp(mine, theirs, sizeof *mine) == 0)
        return FSDP_OK;
    describe(mine, a, sizeof a);
    describe(theirs, b, sizeof b);
    return fsdp_fail(err, FSDP_ERR_MISMATCH,
                     "ranks do not call the same collective: rank %d is at %s, rank %d at %s", rank, a,
                     their_rank, b);
}

/* --- opening --------------------------------------------------------------------------------------------- */

static int member(const struct comm_config *config, int index)
{
    return config->ranks == NULL ? index : config->ranks[index];
}

enum fsdp_status comm_place(struct comm_places *places, const struct comm_config *config,
                            struct fsdp_err *err)
{
    const struct fsdp_link_hello *hello = link_hello(config->link);
    const int per_node = (int)hello->local_world_size;
    bool even = true;
    int run = 0;

    /* Ranks are given out node by node, as many on each: what every launcher of this family promises. */
    if (hello->world_size != hello->n_nodes * hello->local_world_size ||
        hello->rank != hello->node_rank * hello->local_world_size + hello->local_rank)
        return fsdp_fail(
            err, FSDP_ERR_UNSUPPORTED,
            "group %s: %u ranks on %u nodes, rank %u being number %u on node %u: every node must run "
            "equally many, in order",
            config->name, hello->world_size, hello->n_nodes, hello->rank, hello->local_rank,
            hello->node_rank);
    *places = (struct comm_places){ 0 };
    for (int i = 0; i < config->size && even; i++) {
        if (i == 0 || member(config, i) / per_node != member(config, i - 1) / per_node) {
            even = places->n_nodes < 2 || run == places->per_node;
            places->n_nodes++;
            run = 0;
        }
        run++;
        if (places->n_nodes == 1)
            places->per_node = run;
    }
    if (!even || run != places->per_node)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "group %s: not equally many ranks on each node",
                         config->name);
    return FSDP_OK;
}

static enum fsdp_status check_config(const struct comm_config *config, struct fsdp_err *err)
{
    const struct fsdp_link_hello *hello;

    if (config->link == NULL || config->name == NULL || config->name[0] == '\0' ||
        strlen(config->name) >= COMM_NAME_BYTES || strchr(config->name, '/') != NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "a group needs a link and a name of 1 to %d bytes without '/'",
                         COMM_NAME_BYTES - 1);
    hello = link_hello(config->link);
    if (config->size < 1 || config->rank < 0 || config->rank >= config->size ||
        (config->ranks == NULL &&
         (config->size != (int)hello->world_size || config->rank != (int)hello->rank)))
        return fsdp_fail(err, FSDP_ERR_ARG, "group %s: rank %d of %d is not this process's place",
                         config->name, config->rank, config->size);
    for (int i = 0; config->ranks != NULL && i < config->size; i++)
        if (config->ranks[i] < 0 || config->ranks[i] >= (int)hello->world_size ||
            (i > 0 && config->ranks[i] <= config->ranks[i - 1]) ||
            (i == config->rank && config->ranks[i] != (int)hello->rank))
            return fsdp_fail(err, FSDP_ERR_ARG, "group %s: member %d cannot be rank %d (members ascend)",
                             config->name, i, config->ranks[i]);
    return FSDP_OK;
}

static const struct comm_ops *backend_for(const struct comm_places *places, int size)
{
    if (size == 1)
        return &comm_self_ops;
    if (places->n_nodes == 1)
        return &comm_shm_ops;
    return places->per_node == 1 ? &comm_tcp_ops : &comm_joined_ops;
}

size_t comm_staging_bytes(int n_nodes, int per_node)
{
    if (n_nodes == 1)
        return 0;
    return tcp_staging_bytes(n_nodes) + (per_node > 1 ? JOINED_PARTIAL_BYTES : 0);
}

size_t comm_shared_bytes(int per_node)
{
    return per_node > 1 ? shm_segment_bytes(per_node) : 0;
}

enum fsdp_status comm_create(struct fsdp_comm **out, const struct comm_config *config, struct fsdp_err *err)
{
    struct comm_places places = { 0 };
    struct fsdp_comm *comm = NULL;
    enum fsdp_status status;

    *out = NULL;
    status = check_config(config, err);
    if (status == FSDP_OK)
        status = comm_place(&places, config, err);
    if (status != FSDP_OK)
        return status;
    comm = calloc(1, sizeof *comm);
    if (comm == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "group %s", config->name);
    comm->link = config->link;
    comm->rank = config->rank;
    comm->size = config->size;
    snprintf(comm->name, sizeof comm->name, "%s", config->name);
    comm->ops = backend_for(&places, config->size);
    status = comm->ops->open(comm, config, err);
    if (status != FSDP_OK) {
        fsdp_wrap(err, "opening group %s", config->name);
        free(comm);
        return status;
    }
    *out = comm;
    return FSDP_OK;
}

enum fsdp_status comm_can_split(const struct fsdp_comm *world, const char *name, const int *ranks, int size,
                                struct fsdp_err *err)
{
    const struct comm_config config = { .name = name, .link = world->link, .ranks = ranks, .size = size };
    struct comm_places places;

    return comm_place(&places, &config, err);
}

enum fsdp_status comm_split(struct fsdp_comm **out, struct fsdp_comm *world, const char *name,
                            const int *ranks, int size, struct fsdp_err *err)
{
    struct comm_config config = { .name = name, .link = world->link, .ranks = ranks, .size = size };
    struct fsdp_comm *part;
    enum fsdp_status status;

    *out = NULL;
    while (config.rank < size && ranks[config.rank] != world->rank)
        config.rank++;
    if (world->ops->split == NULL) {
        status = comm_create(out, &config, err);
        if (status == FSDP_OK) {
            (*out)->owned = world->owned;
            (*out)->thread = world->thread;
        }
        return status;
    }
    part = calloc(1, sizeof *part);
    if (part == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "group %s", name);
    part->ops = world->ops;
    part->link = world->link;
    part->rank = config.rank;
    part->size = size;
    snprintf(part->name, sizeof part->name, "%s", name);
    status = world->ops->split(world, part, ranks, err);
    if (status != FSDP_OK) {
        free(part);
        return status;
    }
    part->owned = world->owned;
    part->thread = world->thread;
    *out = part;
    return FSDP_OK;
}

void fsdp_comm_destroy(struct fsdp_comm *comm)
{
    if (comm == NULL)
        return;
    comm->ops->close(comm);
    free(comm);
}

bool comm_is_broken(const struct fsdp_comm *comm)
{
    return comm->broken.status != FSDP_OK;
}

void comm_fail(struct fsdp_comm *comm, enum fsdp_status status, const char *words)
{
    const bool was_broken = comm != NULL && comm_is_broken(comm);

    if (comm == NULL || (was_broken && !comm->ops->wraps))
        return;
    /* To the others a rank whose device failed is one that goes: it is the cause, and not they. */
    if (comm->ops->fail != NULL && comm->size > 1)
        comm->ops->fail(comm, status == FSDP_ERR_DEVICE ? FSDP_ERR_PEER : status, words);
    if (!was_broken)
        fsdp_fail(&comm->broken, status, "group %s: %s", comm->name, words);
}

bool comm_hear(struct fsdp_comm *comm, int wait_ms, struct fsdp_err *err)
{
    static const struct timespec slice = { .tv_nsec = WATCH_SLICE_MS * 1000000L };

    if (comm->ops->hear == NULL || comm_is_broken(comm))
        return false;
    for (int waited_ms = 0; !comm->ops->hear(comm, err); waited_ms += WATCH_SLICE_MS) {
        if (waited_ms >= wait_ms || link_check(comm->link, NULL) != FSDP_OK)
            return false;
        nanosleep(&slice, NULL);
    }
    return true;
}

int fsdp_comm_rank(const struct fsdp_comm *comm)
{
    return comm != NULL ? comm->rank : 0;
}

int fsdp_comm_size(const struct fsdp_comm *comm)
{
    return comm != NULL ? comm->size : 1;
}

/* --- one call -------------------------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static _Thread_local bool is_second_thread;

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
    return !comm->lent
               ? FSDP_OK
               : fsdp_fail(
                     err, FSDP_ERR_ARG,
                     "group %s: the model's second thread is at it: a step runs, or an unshard that was "
                     "not waited for",
                     comm->name);
}

/* Count the call and show it to the agent. *phase receives what the progress page said before. */
static enum fsdp_status begin(struct fsdp_comm *comm, enum comm_kind kind, const struct flight_note *call,
                              struct device_stream *stream, uint32_t *phase, struct fsdp_err *err)
{
    struct fsdp_progress *page = link_progress(comm->link);
    struct flight_note note = *call;
    const uint64_t now = now_ns();
    const enum fsdp_status status = check_thread(comm, err);

    if (status != FSDP_OK)
        return status;
    if (comm->broken.status != FSDP_OK)
        return fsdp_fail(err, comm->broken.status, "%s", comm->broken.message);
    comm->sequence++;
    comm->stream = stream;
    note.group = comm->name;
    note.kind = kind_name(kind);
    note.sequence = comm->sequence;
    comm->entry = flight_begin(page, &note, now);
    *phase = atomic_load_explicit(&page->phase, memory_order_relaxed);
    atomic_store_explicit(&page->phase, FSDP_PHASE_COLLECTIVE, memory_order_relaxed);
    /* Over all groups: every rank of the world issues as many collectives, whatever groups it is in. */
    atomic_store_explicit(&page->collective_seq,
                          atomic_load_explicit(&page->collective_seq, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    atomic_store_explicit(&page->beat_ns, now, memory_order_relaxed);
    return FSDP_OK;
}

static enum fsdp_status end(struct fsdp_comm *comm, uint32_t phase, enum fsdp_status status,
                            struct fsdp_err *own, struct fsdp_err *err)
{
    struct fsdp_flight_entry *entry = comm->entry;
    struct fsdp_progress *page = link_progress(comm->link);
    uint32_t collective = FSDP_PHASE_COLLECTIVE;
    const uint64_t now = now_ns();

    /* Unless the thread that computes has stored a phase of its own meanwhile. */
    atomic_compare_exchange_strong_explicit(&page->phase, &collective, phase, memory_order_relaxed,
                                            memory_order_relaxed);
    atomic_store_explicit(&page->beat_ns, now, memory_order_relaxed);
    comm->entry = NULL;
    if (status == FSDP_OK) {
        if (entry != NULL)
            flight_end(entry, now);
        return FSDP_OK;
    }
    fsdp_wrap(own, "group %s", comm->name);
    comm->broken = *own;
    comm->broken.status = status;
    return fsdp_fail(err, status, "%s", own->message);
}

/* Do [a, a + a_bytes) and [b, b + b_bytes) share a byte? */
static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    return (uintptr_t)a < (uintptr_t)b + b_bytes && (uintptr_t)b < (uintptr_t)a + a_bytes;
}

/* Sizes, and that `part` (n_elems) is block `rank` of `whole` (W, n_elems) or apart from it. */
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
    enum fsdp_status status = check_blocks(__func__, comm, recv, send, n_elems, dtype, err);
    struct fsdp_err own = { 0 };
    uint32_t phase;

    if (status == FSDP_OK)
        status = begin(comm, COMM_ALL_GATHER,
                       &(struct flight_note){ .dtype = fsdp_dtype_name(dtype),
                                              .size_bytes = n_elems * fsdp_dtype_size(dtype),
                                              .root = -1 },
                       stream, &phase, err);
    if (status != FSDP_OK)
        return status;
    return end(comm, phase, comm->ops->all_gather(comm, send, recv, n_elems, dtype, &own), &own, err);
}

/* `op` is one of fsdp_reduce_op, or COMM_SCALED_SUM with a factor. */
static enum fsdp_status reduce_scatter(struct fsdp_comm *comm, const void *send, void *recv, size_t n_elems,
                                       enum fsdp_dtype dtype, unsigned op, float factor,
                                       struct device_stream *stream, struct fsdp_err *err)
{
    enum fsdp_status status = check_blocks("fsdp_reduce_scatter", comm, send, recv, n_elems, dtype, err);
    struct fsdp_err own = { 0 };
    uint32_t phase;

    if (status == FSDP_OK && ((dtype != FSDP_F32 && dtype != FSDP_BF16) || op > COMM_SCALED_SUM))
        status = fsdp_fail(err, FSDP_ERR_ARG, "reduce_scatter sums float32 and bfloat16, not %s",
                           fsdp_dtype_name(dtype));
    if (status == FSDP_OK)
        status = begin(comm, COMM_REDUCE_SCATTER,
                       &(struct flight_note){ .dtype = fsdp_dtype_name(dtype),
                                              .op = op_name(op),
                                              .size_bytes = n_elems * fsdp_dtype_size(dtype),
                                              .root = -1 },
                       stream, &phase, err);
    if (status != FSDP_OK)
        return status;
    status = op == COMM_SCALED_SUM
                 ? comm->ops->reduce_scatter_scaled(comm, send, recv, n_elems, dtype, factor, &own)
                 : comm->ops->reduce_scatter(comm, send, recv, n_elems, dtype, (enum fsdp_reduce_op)op, &own);
    return end(comm, phase, status, &own, err);
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
    return comm->ops->reduce_scatter_scaled != NULL;
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
    struct fsdp_err own = { 0 };
    enum fsdp_status status;
    uint32_t phase;
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
    status = begin(comm, COMM_ALL_REDUCE,
                   &(struct flight_note){
                       .dtype = fsdp_dtype_name(dtype), .op = op_name(op), .size_bytes = bytes, .root = -1 },
                   stream, &phase, err);
    if (status != FSDP_OK)
        return status;
    return end(comm, phase, comm->ops->all_reduce(comm, buffer, n_elems, dtype, op, &own), &own, err);
}

enum fsdp_status fsdp_broadcast(struct fsdp_comm *comm, void *buffer, size_t size_bytes, int root,
                                struct device_stream *stream, struct fsdp_err *err)
{
    struct fsdp_err own = { 0 };
    enum fsdp_status status;
    uint32_t phase;

    REQUIRE(comm, err);
    if (size_bytes > 0)
        REQUIRE(buffer, err);
    if (root < 0 || root >= comm->size)
        return fsdp_fail(err, FSDP_ERR_ARG, "broadcast from rank %d of a group of %d", root, comm->size);
    status = begin(comm, COMM_BROADCAST, &(struct flight_note){ .size_bytes = size_bytes, .root = root },
                   stream, &phase, err);
    if (status != FSDP_OK)
        return status;
    return end(comm, phase, comm->ops->broadcast(comm, buffer, size_bytes, root, &own), &own, err);
}

enum fsdp_status fsdp_barrier(struct fsdp_comm *comm, struct fsdp_err *err)
{
    struct fsdp_err own = { 0 };
    enum fsdp_status status;
    uint32_t phase;

    REQUIRE(comm, err);
    status =
        begin(comm, COMM_BARRIER, &(struct flight_note){ .size_bytes = 0, .root = -1 }, NULL, &phase, err);
    if (status != FSDP_OK)
        return status;
    return end(comm, phase, comm->ops->barrier(comm, &own), &own, err);
}
