/*
 * Collectives by NCCL, which is opened by name: FSDP_NCCL_LIBRARY, else libnccl.so.2, so that a site chooses its build. Its
 * NCCL_* variables are its own business.
 *
 * Communicators do not block: a call may answer that it is in progress, and is then asked for until it is not, while the
 * watch looks around for dead peers. A failure is sticky: the communicator is aborted, which frees the streams that its kernels
 * occupy. An abort waits for nobody.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shard_runtime/comm/device_collectives.h"
#include "shard_runtime/cuda/nccl_api.h"
#include "shard_runtime/cuda/ops.h"
#include "shard_runtime/cuda/state.h"

/* With static storage because a library is: opened once, never closed. */
static struct nccl_api nccl;
static int nccl_version;

struct device_group {
    struct device_group_config config;
    char name[64];
    struct nccl_communicator *comm; /* NULL once aborted */
    struct fsdp_err broken;         /* status other than FSDP_OK: the first failure, sticky */
};

enum { SLICE_NS = 20 * 1000, WATCH_NS = 4 * 1000 * 1000, FINALIZE_NS = 1000 * 1000 * 1000 };

/* --- the library ----------------------------------------------------------------------------------------- */

static enum fsdp_status open_library(struct fsdp_err *err)
{
    const char *wanted = getenv("FSDP_NCCL_LIBRARY");
    const char *name = wanted != NULL && wanted[0] != '\0' ? wanted : "libnccl.so.2";
    struct nccl_api found = { 0 };
    void *library;
    int version = 0;

    if (nccl_version != 0)
        return FSDP_OK;
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "collectives nccl: %s", dlerror());
#define FIND(function)                                                                                       \
    *(void **)(&found.function) = dlsym(library, "nccl" #function);                                          \
    if (found.function == NULL)                                                                              \
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "collectives nccl: %s has no nccl" #function, name);
    NCCL_FUNCTIONS(FIND)
#undef FIND
    if (found.GetVersion(&version) != NCCL_SUCCESS || version < 21800)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                         "collectives nccl: %s is version %d: at least 2.18 is needed", name, version);
    nccl = found;
    nccl_version = version;
    return FSDP_OK;
}

static void describe(char *buffer, size_t size)
{
    snprintf(buffer, size, "NCCL %d.%d.%d", nccl_version / 10000, nccl_version / 100 % 100,
             nccl_version % 100);
}

/* --- failures and waits ---------------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static enum fsdp_status say(const struct device_group *group, enum nccl_result result, const char *call,
                            int line, struct fsdp_err *err)
{
    const struct cuda_device *device = cuda_state(group->config.device);
    const char *more = group->comm != NULL ? nccl.GetLastError(group->comm) : "";
    /* Those are what a peer that went away looks like; the others are mistakes of ours or of the machine. */
    const bool peer =
        result == NCCL_REMOTE_ERROR || result == NCCL_SYSTEM_ERROR || result == NCCL_INTERNAL_ERROR;

    return fsdp_fail(err, peer ? FSDP_ERR_PEER : FSDP_ERR_UNSUPPORTED,
                     "%s of group %s: %s%s%.120s at %s:%d, rank %d of %d, device %d (%s)", call, group->name,
                     nccl.GetErrorString(result), more[0] != '\0' ? ": " : "", more, __FILE__, line,
                     group->config.rank, group->config.size, device->index, device->name);
}

static enum fsdp_status failed(const struct device_group *group, struct fsdp_err *err)
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
        (void)nccl.CommAbort(comm);
}

static enum fsdp_status break_group(struct device_group *group, struct fsdp_err *own, struct fsdp_err *err)
{
    group->broken = *own;
    abort_group(group);
    return failed(group, err);
}

/* A call's answer: done, or to be asked for until it is. */
static enum fsdp_status finish(struct device_group *group, enum nccl_result result, const char *call,
                               int line, struct fsdp_err *err)
{
    struct fsdp_err own = { 0 };
    uint64_t asked = now_ns();

    while (result == NCCL_IN_PROGRESS) {
        const struct timespec slice = { .tv_nsec = SLICE_NS };
        const enum nccl_result answer = nccl.CommGetAsyncError(group->comm, &result);

        if (answer != NCCL_SUCCESS)
            result = answer;
        if (result != NCCL_IN_PROGRESS)
            break;
        if (now_ns() - asked > WATCH_NS) {
            if (group->config.watch != NULL && group->config.watch(group->config.watch_user, &own) != FSDP_OK)
                return break_group(group, &own, err);
            asked = now_ns();
            if (group->comm == NULL) /* the watch looked at this group too */
                return failed(group, err);
        }
        (void)nanosleep(&slice, NULL);
    }
    if (result == NCCL_SUCCESS)
        return FSDP_OK;
    (void)say(group, result, call, line, &own);
    return break_group(group, &own, err);
}

#define NCCL_TRY(group, call, err)                                                                           \
    ((group)->comm == NULL ? failed((group), (err))                                                          \
                           : finish((group), nccl.call, "nccl" #call, __LINE__, (err)))

static enum fsdp_status poll_group(struct device_group *group, struct fsdp_err *err)
{
    enum nccl_result result = NCCL_SUCCESS, answer;
    struct fsdp_err own = { 0 };

    if (group->broken.status != FSDP_OK)
        return failed(group, err);
    answer = nccl.CommGetAsyncError(group->comm, &result);
    if (answer != NCCL_SUCCESS)
        result = answer;
    if (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS)
        return FSDP_OK;
    (void)say(group, result, "ncclCommGetAsyncError", __LINE__, &own);
    return break_group(group, &own, err);
}

/* --- opening --------------------------------------------------------------------------------------------- */

static enum fsdp_status make_id(char id[DEVICE_GROUP_ID_BYTES], struct fsdp_err *err)
{
    enum fsdp_status status = open_library(err);
    nccl_id unique;
    enum nccl_result result;

    _Static_assert(sizeof unique == DEVICE_GROUP_ID_BYTES, "an identity is NCCL's");
    if (status != FSDP_OK)
        return status;
    result = nccl.GetUniqueId(&unique);
    if (result != NCCL_SUCCESS)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "ncclGetUniqueId: %s", nccl.GetErrorString(result));
    memcpy(id, &unique, sizeof unique);
    return FSDP_OK;
}

static enum fsdp_status open_group(struct device_group **out, const struct device_group_config *config,
                                   struct fsdp_err *err)
{
    struct nccl_config options = NCCL_CONFIG_INIT;
    enum fsdp_status status = open_library(err);
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
    result = nccl.CommInitRankConfig(&group->comm, config->size, unique, config->rank, &options);
    status = finish(group, result, "ncclCommInitRankConfig", __LINE__, err);
    if (status != FSDP_OK) {
        free(group);
        return status;
    }
    *out = group;
    return FSDP_OK;
}

/* A communicator that works is finished in good order, for a second at most; else it is aborted. */
static void close_group(struct device_group *group)
{
    if (group == NULL)
        return;
    if (group->comm != NULL) {
        const uint64_t began = now_ns();
        enum nccl_result result = nccl.CommFinalize(group->comm);

        while (result == NCCL_IN_PROGRESS && now_ns() - began < FINALIZE_NS) {
            const struct timespec slice = { .tv_nsec = SLICE_NS };

            (void)nanosleep(&slice, NULL);
            if (nccl.CommGetAsyncError(group->comm, &result) != NCCL_SUCCESS)
                break;
        }
        if (result == NCCL_SUCCESS)
            (void)nccl.CommDestroy(group->comm);
        else
            (void)nccl.CommAbort(group->comm);
    }
    free(group);
}

/* --- the collectives ------------------------------------------------------------------------------------- */

static enum nccl_type type_of(enum fsdp_dtype dtype)
{
    static const enum nccl_type types[FSDP_DTYPE_COUNT] = {
        [FSDP_F32] = NCCL_FLOAT32, [FSDP_BF16] = NCCL_BFLOAT16, [FSDP_F64] = NCCL_FLOAT64,
        [FSDP_I64] = NCCL_INT64,   [FSDP_I32] = NCCL_INT32,     [FSDP_U8] = NCCL_UINT8,
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

/* Each rank's part times `factor`, summed: an operation that is made, used and destroyed. */
static enum fsdp_status reduce_scatter_scaled(struct device_group *group, const void *send, void *recv,
                                              size_t n_elems, enum fsdp_dtype dtype, float factor,
                                              struct device_stream *stream, struct fsdp_err *err)
{
    uint32_t bits;
    uint16_t half;
    enum nccl_op op;
    enum fsdp_status status;

    memcpy(&bits, &factor, sizeof bits);
    half = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); /* to nearest even; factors are finite */
    status = NCCL_TRY(group,
                      RedOpCreatePreMulSum(&op, dtype == FSDP_BF16 ? (void *)&half : (void *)&factor,
                                           type_of(dtype), NCCL_SCALAR_HOST_IMMEDIATE, group->comm),
                      err);
    if (status != FSDP_OK)
        return status;
    status = NCCL_TRY(group,
                      ReduceScatter(send, recv, n_elems, type_of(dtype), op, group->comm, stream->cuda), err);
    if (group->comm != NULL)
        (void)nccl.RedOpDestroy(op, group->comm);
    return status;
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

static enum fsdp_status register_memory(struct device_group *group, void *memory, size_t size_bytes,
                                        void **handle, struct fsdp_err *err)
{
    *handle = NULL;
    return size_bytes == 0 ? FSDP_OK
                           : NCCL_TRY(group, CommRegister(group->comm, memory, size_bytes, handle), err);
}

static void unregister_memory(struct device_group *group, void *handle)
{
    if (group->comm != NULL && handle != NULL)
        (void)nccl.CommDeregister(group->comm, handle);
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
    .register_memory = register_memory,
    .unregister_memory = unregister_memory,
    .describe = describe,
};
