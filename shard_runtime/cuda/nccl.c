/*
 * Collectives by NCCL. Communicators do not block: a call may answer that it is in progress. It is then asked
 * again until it is done, and the watch looks for dead peers meanwhile. Between two questions the thread
 * yields; after YIELDS of them it sleeps. A failure is sticky: the communicator is aborted, which frees the
 * streams that its kernels occupy. An abort does not wait for other ranks.
 */
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shard_runtime/core/clock.h"
#include "shard_runtime/cuda/nccl_impl.h"
#include "shard_runtime/cuda/ops.h"
#include "shard_runtime/cuda/state.h"

enum {
    /*
     * A non-blocking communicator hands each collective to a thread of its own (ncclGroupEnd), which takes
     * about 10 us to queue it. A sleep of 20 us takes 70, because the kernel rounds it up by its timer slack
     * (prctl(2), PR_SET_TIMERSLACK). So many yields take about half a millisecond. Longer waits, as in
     * opening, must not occupy a core.
     */
    YIELDS = 1000,
    SLICE_NS = 20 * 1000,
    WATCH_NS = 4 * 1000 * 1000,
    FINALIZE_NS = 1000 * 1000 * 1000,
    OPEN_WITHIN_S = 300
};

/* Pauses before asking again, after n_asked answers "in progress". */
static void pause_before_asking(unsigned n_asked)
{
    const struct timespec slice = { .tv_nsec = SLICE_NS };

    if (n_asked <= YIELDS)
        (void)sched_yield();
    else
        (void)nanosleep(&slice, NULL);
}

static enum fsdp_status say(const struct device_group *group, enum nccl_result result, const char *call,
                            const char *file, int line, struct fsdp_err *err)
{
    const struct cuda_device *device = cuda_state(group->config.device);
    int length;
    const char *name = cuda_call_name(call, &length);
    const char *more = group->comm != NULL ? nccl.GetLastError(group->comm) : "";
    /* These results mean that a peer went away. Others are mistakes of ours or of the machine. */
    const bool peer =
        result == NCCL_REMOTE_ERROR || result == NCCL_SYSTEM_ERROR || result == NCCL_INTERNAL_ERROR;

    if (cuda_sticky(device, err) != FSDP_OK) /* a failed device looks the same, and is then the cause */
        return device->broken.status;
    return fsdp_fail(err, peer ? FSDP_ERR_PEER : FSDP_ERR_DEVICE,
                     "%.*s of group %s: %s%s%.120s at %s:%d, rank %d of %d, device %d (%s)", length, name,
                     group->name, nccl.GetErrorString(result), more[0] != '\0' ? ": " : "", more, file, line,
                     group->config.rank, group->config.size, device->index, device->name);
}

enum fsdp_status nccl_call_failed(const struct cuda_device *device, enum nccl_result result, const char *call,
                                  const char *file, int line, struct fsdp_err *err)
{
    return cuda_fail(device, FSDP_ERR_DEVICE, call, nccl.GetErrorString(result), file, line, err);
}

enum fsdp_status nccl_failed(const struct device_group *group, struct fsdp_err *err)
{
    return fsdp_fail(err, group->broken.status, "%s", group->broken.message);
}

static void abort_group(struct device_group *group)
{
    struct nccl_communicator *comm = group->comm;

    if (group->broken.status == FSDP_OK)
        fsdp_fail(&group->broken, FSDP_ERR_PEER, "group %s was aborted", group->name);
    group->comm = NULL;
    if (comm != NULL)
        IGNORED(ncclCommAbort, nccl.CommAbort(comm));
}

static enum fsdp_status break_group(struct device_group *group, struct fsdp_err *own, struct fsdp_err *err)
{
    group->broken = *own;
    abort_group(group);
    return nccl_failed(group, err);
}

/* Reports that the time limit has passed, although the watch found no dead peer. */
static enum fsdp_status late(const struct device_group *group, const char *call, struct fsdp_err *err)
{
    return fsdp_fail(
        err, FSDP_ERR_PEER,
        "%s of group %s: still in progress when its time (FSDP_NCCL_INIT_TIMEOUT_S) was over, rank %d of %d",
        call, group->name, group->config.rank, group->config.size);
}

enum fsdp_status nccl_finish(struct device_group *group, enum nccl_result result, const char *call,
                             const char *file, int line, struct fsdp_err *err)
{
    struct fsdp_err own = { 0 };
    uint64_t asked = clock_now_ns();
    unsigned n_asked = 0;

    while (result == NCCL_IN_PROGRESS) {
        const enum nccl_result answer = nccl.CommGetAsyncError(group->comm, &result);
        const uint64_t now = clock_now_ns();

        if (answer != NCCL_SUCCESS) {
            result = answer;
            call = "ncclCommGetAsyncError";
        }
        if (result != NCCL_IN_PROGRESS)
            break;
        if (now - asked > WATCH_NS) {
            if (group->config.watch != NULL && group->config.watch(group->config.watch_user, &own) != FSDP_OK)
                return break_group(group, &own, err);
            asked = now;
            if (group->comm == NULL) /* the watch may have aborted this group */
                return nccl_failed(group, err);
            if (group->deadline_ns != 0 && now > group->deadline_ns) {
                (void)late(group, call, &own);
                return break_group(group, &own, err);
            }
        }
        pause_before_asking(++n_asked);
    }
    if (result == NCCL_SUCCESS)
        return FSDP_OK;
    (void)say(group, result, call, file, line, &own);
    return break_group(group, &own, err);
}

static enum fsdp_status poll_group(struct device_group *group, struct fsdp_err *err)
{
    enum nccl_result result = NCCL_SUCCESS, answer;
    struct fsdp_err own = { 0 };

    if (group->broken.status != FSDP_OK)
        return nccl_failed(group, err);
    answer = nccl.CommGetAsyncError(group->comm, &result);
    if (answer != NCCL_SUCCESS)
        result = answer;
    if (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS)
        return FSDP_OK;
    (void)say(group, result, "ncclCommGetAsyncError", __FILE__, __LINE__, &own);
    return break_group(group, &own, err);
}

static enum fsdp_status make_id(const struct device *device, char id[DEVICE_GROUP_ID_BYTES],
                                struct fsdp_err *err)
{
    enum fsdp_status status = nccl_open_library(cuda_state(device), err);
    nccl_id unique;
    enum nccl_result result;

    _Static_assert(sizeof unique == DEVICE_GROUP_ID_BYTES, "an identity is NCCL's");
    if (status != FSDP_OK)
        return status;
    result = nccl.GetUniqueId(&unique);
    if (result != NCCL_SUCCESS)
        return nccl_call_failed(cuda_state(device), result, "ncclGetUniqueId", __FILE__, __LINE__, err);
    memcpy(id, &unique, sizeof unique);
    return FSDP_OK;
}

/*
 * Returns the time limit for opening a communicator, which waits for all ranks: FSDP_NCCL_INIT_TIMEOUT_S
 * seconds from now.
 */
static uint64_t open_deadline_ns(void)
{
    const char *text = getenv("FSDP_NCCL_INIT_TIMEOUT_S");
    const long seconds = text != NULL ? strtol(text, NULL, 10) : 0;

    return clock_now_ns() + (uint64_t)(seconds > 0 ? seconds : OPEN_WITHIN_S) * 1000000000u;
}

static enum fsdp_status open_group(struct device_group **out, const struct device_group_config *config,
                                   struct fsdp_err *err)
{
    struct nccl_config options = NCCL_CONFIG_INIT;
    enum fsdp_status status = nccl_open_library(cuda_state(config->device), err);
    struct device_group *group;
    nccl_id unique;
    enum nccl_result result;

    *out = NULL;
    if (status != FSDP_OK)
        return status;
    group = calloc(1, sizeof *group);
    if (group == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "a group: out of memory");
    group->config = *config;
    snprintf(group->name, sizeof group->name, "%s", config->name);
    group->config.name = group->name;
    memcpy(&unique, config->id, sizeof unique);
    options.blocking = 0;
    group->deadline_ns = open_deadline_ns();
    result = nccl.CommInitRankConfig(&group->comm, config->size, unique, config->rank, &options);
    status = nccl_finish(group, result, "ncclCommInitRankConfig", __FILE__, __LINE__, err);
    group->deadline_ns = 0;
    if (status != FSDP_OK) {
        free(group);
        return status;
    }
    *out = group;
    return FSDP_OK;
}

/* Closes a working communicator in order, for which it gets a second; aborts any other. */
static void close_group(struct device_group *group)
{
    if (group == NULL)
        return;
    if (group->comm != NULL) {
        const uint64_t began = clock_now_ns();
        enum nccl_result result = nccl.CommFinalize(group->comm);
        unsigned n_asked = 0;

        while (result == NCCL_IN_PROGRESS && clock_now_ns() - began < FINALIZE_NS) {
            pause_before_asking(++n_asked);
            if (nccl.CommGetAsyncError(group->comm, &result) != NCCL_SUCCESS) {
                result = NCCL_INTERNAL_ERROR;
                break;
            }
        }
        if (result == NCCL_SUCCESS)
            IGNORED(ncclCommDestroy, nccl.CommDestroy(group->comm));
        else
            IGNORED(ncclCommAbort, nccl.CommAbort(group->comm));
    }
    free(group);
}

static enum nccl_type type_of(enum fsdp_dtype dtype)
{
    static const enum nccl_type types[FSDP_DTYPE_COUNT] = {
        [FSDP_F32] = NCCL_FLOAT32, [FSDP_BF16] = NCCL_BFLOAT16, [FSDP_F64] = NCCL_FLOAT64,
        [FSDP_I64] = NCCL_INT64,   [FSDP_I32] = NCCL_INT32,     [FSDP_U8] = NCCL_UINT8,
        [FSDP_F16] = NCCL_FLOAT16,
    };

    return types[dtype];
}

static enum nccl_op op_of(enum fsdp_reduce_op op)
{
    return op == FSDP_MEAN ? NCCL_AVG : op == FSDP_MAX ? NCCL_MAX : NCCL_SUM;
}

static enum fsdp_status all_gather(struct device_group *group, const void *send, void *recv, size_t n_elems,
                                   enum fsdp_dtype dtype, struct device_stream *stream, struct fsdp_err *err)
{
    return n_elems == 0
               ? FSDP_OK
               : NCCL_TRY(group, AllGather(send, recv, n_elems, type_of(dtype), group->comm, stream->cuda),
                          err);
}

/*
 * Sums each rank's part times `factor`. NCCL needs an operation for this, which is made, used and destroyed
 * here.
 */
static enum fsdp_status reduce_scatter_scaled(struct device_group *group, const void *send, void *recv,
                                              size_t n_elems, enum fsdp_dtype dtype, float factor,
                                              struct device_stream *stream, struct fsdp_err *err)
{
    uint32_t bits;
    uint16_t half;
    enum nccl_op op;
    enum fsdp_status status;

    memcpy(&bits, &factor, sizeof bits);
    /* rounded to nearest even; factors are finite */
    half = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    status = NCCL_TRY(group,
                      RedOpCreatePreMulSum(&op, dtype == FSDP_BF16 ? (void *)&half : (void *)&factor,
                                           type_of(dtype), NCCL_SCALAR_HOST_IMMEDIATE, group->comm),
                      err);
    if (status != FSDP_OK)
        return status;
    status = NCCL_TRY(group,
                      ReduceScatter(send, recv, n_elems, type_of(dtype), op, group->comm, stream->cuda), err);
    /* If there was a failure, the abort has destroyed the operation together with the group. */
    return status == FSDP_OK ? NCCL_TRY(group, RedOpDestroy(op, group->comm), err) : status;
}

static enum fsdp_status reduce_scatter(struct device_group *group, const void *send, void *recv,
                                       size_t n_elems, enum fsdp_dtype dtype, enum fsdp_reduce_op op,
                                       float factor, struct device_stream *stream, struct fsdp_err *err)
{
    if (factor != 1.0f && (op != FSDP_SUM || (dtype != FSDP_F32 && dtype != FSDP_BF16)))
        return fsdp_fail(err, FSDP_ERR_ARG, "a factor is for sums of float32 and bfloat16");
    if (n_elems == 0)
        return FSDP_OK;
    if (factor != 1.0f)
        return reduce_scatter_scaled(group, send, recv, n_elems, dtype, factor, stream, err);
    return NCCL_TRY(
        group, ReduceScatter(send, recv, n_elems, type_of(dtype), op_of(op), group->comm, stream->cuda), err);
}

static enum fsdp_status all_reduce(struct device_group *group, void *buffer, size_t n_elems,
                                   enum fsdp_dtype dtype, enum fsdp_reduce_op op,
                                   struct device_stream *stream, struct fsdp_err *err)
{
    return n_elems == 0 ? FSDP_OK
                        : NCCL_TRY(group,
                                   AllReduce(buffer, buffer, n_elems, type_of(dtype), op_of(op), group->comm,
                                             stream->cuda),
                                   err);
}

static enum fsdp_status broadcast(struct device_group *group, void *buffer, size_t size_bytes, int root,
                                  struct device_stream *stream, struct fsdp_err *err)
{
    return size_bytes == 0
               ? FSDP_OK
               : NCCL_TRY(group,
                          Broadcast(buffer, buffer, size_bytes, NCCL_UINT8, root, group->comm, stream->cuda),
                          err);
}

const struct device_collectives nccl_collectives = {
    .name = "nccl",
    .make_id = make_id,
    .open = open_group,
    .close = close_group,
    .poll = poll_group,
    .abort = abort_group,
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
    .all_reduce = all_reduce,
    .broadcast = broadcast,
    .alloc_memory = nccl_alloc_memory,
    .register_memory = nccl_register_memory,
    .unregister_memory = nccl_unregister_memory,
    .describe = nccl_describe,
};
