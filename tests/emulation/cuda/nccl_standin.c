/*
 * A library with NCCL's API between processes of one host, over files: for the emulated device. It records what it is called with and
 * can be told to misbehave. A collective is an operation in its stream's queue: its rank's part is published as a file, and it is done
 * when everybody's is there; one whose peer is gone stays in its queue until the communicator is aborted, as NCCL's kernel would.
 *
 * NCCL_STANDIN_DIR    where its files are (required)
 * NCCL_STANDIN_LOG    a line for each call goes to <this>.<rank>
 * NCCL_STANDIN_LAZY   every call first answers that it is in progress
 * NCCL_STANDIN_FAIL   RANK:N: on that rank the n-th collective leaves an asynchronous error behind
 * NCCL_STANDIN_HOLD   RANK:N:FILE: on that rank the n-th collective of a group does not begin while FILE is there
 * NCCL_STANDIN_NEVER  opening a communicator stays in progress for ever
 * NCCL_STANDIN_CLOCK  the lines of the log end with the time, seconds since 1970
 * NCCL_STANDIN_SMALL  its allocator has no memory, and registering is refused
 *
 * Compiled with NCCL_STANDIN_OLD it is version 2.18, which has neither.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/cuda/nccl_api.h"
#include "tests/emulation/cuda/runtime.h"

#define EXPORT __attribute__((visibility("default")))

enum {
    PATH_BYTES = 512,
    MAX_RANKS = 64,
    FIRST_OWN_OP = 8,
    MAX_OWN_OPS = 64,
    MAX_OWN_MEMORY = 64,
    LAZY_POLLS = 3
};

enum what { ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, BROADCAST };

struct nccl_communicator {
    char prefix[PATH_BYTES];
    int rank, size;
    int own; /* which of this process's communicators it is */
    uint64_t n_calls, n_done;
    int n_users; /* the handle, and queued operations */
    bool aborted, ready;
    int in_progress; /* polls until a lazy call is done */
    enum nccl_result failed;
    float factors[MAX_OWN_OPS];
    bool op_used[MAX_OWN_OPS];
    int n_registered;
};

/* What ranks must agree on, in front of each file. */
struct head {
    int32_t what, type, op, root;
    uint64_t n_elems;
    float factor;
};

struct work {
    struct nccl_communicator *comm;
    struct head head;
    uint64_t number;
    const void *send;
    void *recv;
    bool posted;
};

static const char *when(char text[40])
{
    struct timespec now;

    text[0] = '\0';
    if (getenv("NCCL_STANDIN_CLOCK") != NULL && clock_gettime(CLOCK_REALTIME, &now) == 0)
        snprintf(text, 40, " at %lld.%06ld", (long long)now.tv_sec, now.tv_nsec / 1000);
    return text;
}

static void record(const struct nccl_communicator *comm, const char *call, const char *rest)
{
    const char *log = getenv("NCCL_STANDIN_LOG");
    char path[PATH_BYTES], line[512], clock[40];
    int fd, n;

    if (log == NULL)
        return;
    snprintf(path, sizeof path, "%s.%d", log, comm->rank);
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    n = snprintf(line, sizeof line, "%s%s%s%s\n", call, rest[0] != '\0' ? " " : "", rest, when(clock));
    if (fd < 0 || write(fd, line, (size_t)n) != n)
        abort();
    (void)close(fd);
}

static bool is_lazy(void)
{
    return getenv("NCCL_STANDIN_LAZY") != NULL;
}

static size_t size_of(int type)
{
    return type == NCCL_UINT8                           ? 1
           : type == NCCL_BFLOAT16                      ? 2
           : type == NCCL_INT32 || type == NCCL_FLOAT32 ? 4
                                                        : 8;
}

/* --- files ----------------------------------------------------------------------------------------------- */

static void path_of(const struct nccl_communicator *comm, uint64_t number, int rank,
                    char path[PATH_BYTES + 64])
{
    snprintf(path, PATH_BYTES + 64, "%s.%llu.%d", comm->prefix, (unsigned long long)number, rank);
}

/* Whole or not at all: written beside and renamed. */
static void publish(const struct nccl_communicator *comm, uint64_t number, const struct head *head,
                    const void *data, size_t size_bytes)
{
    char path[PATH_BYTES + 64], beside[PATH_BYTES + 72];
    FILE *file;

    path_of(comm, number, comm->rank, path);
    snprintf(beside, sizeof beside, "%s.new", path);
    file = fopen(beside, "wb");
    if (file == NULL || fwrite(head, sizeof *head, 1, file) != 1 ||
        (size_bytes > 0 && fwrite(data, size_bytes, 1, file) != 1) || fclose(file) != 0 ||
        rename(beside, path) != 0)
        abort();
}

static bool is_there(const struct nccl_communicator *comm, uint64_t number, int rank)
{
    char path[PATH_BYTES + 64];

    path_of(comm, number, rank, path);
    return access(path, R_OK) == 0;
}

/* Part of a rank's data behind its head, which must be ours. */
static bool fetch(const struct nccl_communicator *comm, uint64_t number, int rank, const struct head *mine,
                  size_t at, void *to, size_t size_bytes)
{
    char path[PATH_BYTES + 64];
    struct head head;
    FILE *file;
    bool same;

    path_of(comm, number, rank, path);
    file = fopen(path, "rb");
    if (file == NULL || fread(&head, sizeof head, 1, file) != 1)
        abort();
    same = head.what == mine->what && head.type == mine->type && head.op == mine->op &&
           head.root == mine->root && head.n_elems == mine->n_elems;
    if (same && size_bytes > 0 &&
        (fseek(file, (long)at, SEEK_CUR) != 0 || fread(to, size_bytes, 1, file) != 1))
        abort();
    (void)fclose(file);
    return same;
}

/* Everybody's `number` is there: nobody reads what came before it any more. */
static void forget(const struct nccl_communicator *comm, uint64_t number)
{
    char path[PATH_BYTES + 64];

    path_of(comm, number, comm->rank, path);
    (void)unlink(path);
}

/* --- sums ------------------------------------------------------------------------------------------------ */

static double get(int type, const void *data, size_t i)
{
    switch (type) {
    case NCCL_BFLOAT16:
        return (double)bf16_to_f32(((const uint16_t *)data)[i]);
    case NCCL_FLOAT64:
        return ((const double *)data)[i];
    case NCCL_INT64:
        return (double)((const int64_t *)data)[i];
    case NCCL_FLOAT32:
        return (double)((const float *)data)[i];
    default:
        abort();
    }
}

static void put(int type, void *data, size_t i, double value)
{
    if (type == NCCL_BFLOAT16)
        ((uint16_t *)data)[i] = bf16_of_f32((float)value);
    else if (type == NCCL_FLOAT64)
        ((double *)data)[i] = value;
    else if (type == NCCL_INT64)
        ((int64_t *)data)[i] = (int64_t)value;
    else
        ((float *)data)[i] = (float)value;
}

static double rounded(int type, double value)
{
    return type == NCCL_BFLOAT16  ? (double)bf16_to_f32(bf16_of_f32((float)value))
           : type == NCCL_FLOAT32 ? (double)(float)value
                                  : value;
}

/* As NCCL multiplies and adds: in the type, each product and each sum rounded. A mean of floats is a sum of products with 1 / n,
 * which is of the type too. */
static double factor_of(const struct work *w)
{
    return w->head.op == NCCL_AVG && w->head.type != NCCL_INT64 ? rounded(w->head.type, 1.0 / w->comm->size)
                                                                : (double)w->head.factor;
}

/* `n_elems` of everybody, from element `first`, reduced in the order of the ranks. */
static bool reduce(const struct work *w, size_t first, size_t n_elems)
{
    const int type = w->head.type;
    const size_t size = size_of(type);
    const double factor = factor_of(w);
    void *part = malloc(n_elems * size + 1);
    double *sums = calloc(n_elems + 1, sizeof *sums);
    bool same = true;

    if (part == NULL || sums == NULL)
        abort();
    for (int r = 0; r < w->comm->size && same; r++) {
        same = fetch(w->comm, w->number, r, &w->head, first * size, part, n_elems * size);
        for (size_t i = 0; i < n_elems && same; i++) {
            const double value = rounded(type, get(type, part, i) * factor);

            if (w->head.op == NCCL_MAX)
                sums[i] = r == 0 || value > sums[i] ? value : sums[i];
            else
                sums[i] = rounded(type, sums[i] + value);
        }
    }
    for (size_t i = 0; i < n_elems && same; i++)
        put(type, w->recv, i, sums[i]);
    free(part);
    free(sums);
    return same;
}

static void let_go(struct nccl_communicator *comm)
{
    if (--comm->n_users == 0)
        free(comm);
}

/* --- a collective in its queue --------------------------------------------------------------------------- */

static size_t sent_elems(const struct work *w)
{
    return w->head.what == REDUCE_SCATTER ? w->head.n_elems * (size_t)w->comm->size : w->head.n_elems;
}

static bool finish(struct work *w)
{
    const size_t n = w->head.n_elems, size = size_of(w->head.type);
    bool same = true;

    switch (w->head.what) {
    case ALL_GATHER:
        for (int r = 0; r < w->comm->size && same; r++)
            same =
                fetch(w->comm, w->number, r, &w->head, 0, (char *)w->recv + (size_t)r * n * size, n * size);
        return same;
    case REDUCE_SCATTER:
        return reduce(w, (size_t)w->comm->rank * n, n);
    case ALL_REDUCE:
        return reduce(w, 0, n);
    default:
        return fetch(w->comm, w->number, w->head.root, &w->head, 0, w->recv, n * size);
    }
}

static bool is_held(const struct work *w)
{
    const char *text = getenv("NCCL_STANDIN_HOLD");
    unsigned long long number = 0;
    int rank = -1, read = 0;

    return text != NULL && sscanf(text, "%d:%llu:%n", &rank, &number, &read) == 2 && read > 0 &&
           rank == w->comm->rank && number == w->number && access(text + read, F_OK) == 0;
}

static bool run_work(void *closure)
{
    struct work *w = closure;
    struct nccl_communicator *comm = w->comm;

    /* As NCCL: calls of a communicator run in the order in which they were made, whatever their streams. */
    if (!comm->aborted && (w->number != comm->n_done + 1 || is_held(w)))
        return false;
    if (!comm->aborted && !w->posted) {
        publish(comm, w->number, &w->head, w->send, sent_elems(w) * size_of(w->head.type));
        w->posted = true;
    }
    for (int r = 0; r < comm->size && !comm->aborted; r++)
        if (!is_there(comm, w->number, r))
            return false;
    if (!comm->aborted && !finish(w)) /* NCCL would hang, or write where it must not: this says it */
        comm->failed = NCCL_INVALID_USAGE;
    if (!comm->aborted && w->number > 1)
        forget(comm, w->number - 1);
    comm->n_done = w->number;
    let_go(comm);
    return true;
}

static bool fails_now(const struct nccl_communicator *comm)
{
    const char *text = getenv("NCCL_STANDIN_FAIL");
    unsigned long long number = 0;
    int rank = -1;

    return text != NULL && sscanf(text, "%d:%llu", &rank, &number) == 2 && rank == comm->rank &&
           number == comm->n_calls;
}

static enum nccl_result answer(struct nccl_communicator *comm)
{
    if (!is_lazy())
        return NCCL_SUCCESS;
    comm->in_progress = LAZY_POLLS;
    return NCCL_IN_PROGRESS;
}

static enum nccl_result queue(struct nccl_communicator *comm, const char *name, struct work work,
                              struct CUstream_st *stream)
{
    char words[160];

    if (comm->in_progress > 0) /* a caller that does not ask until it is done */
        return NCCL_INVALID_USAGE;
    if (comm->failed != NCCL_SUCCESS)
        return comm->failed;
    if (!emulated_is_device(work.send) || !emulated_is_device(work.recv))
        return NCCL_INVALID_ARGUMENT;
    comm->n_calls++;
    work.comm = comm;
    work.number = comm->n_calls;
    snprintf(words, sizeof words, "#%llu n %llu type %d op %d factor %g root %d comm %d %s",
             (unsigned long long)work.number, (unsigned long long)work.head.n_elems, work.head.type,
             work.head.op, (double)work.head.factor, work.head.root, comm->own,
             work.head.what == ALL_GATHER &&
                     (const char *)work.send == (const char *)work.recv + (size_t)comm->rank *
                                                                              work.head.n_elems *
                                                                              size_of(work.head.type)
                 ? "in place"
                 : "");
    record(comm, name, words);
    if (fails_now(comm)) {
        comm->failed = NCCL_REMOTE_ERROR;
        return answer(comm);
    }
    comm->n_users++;
    if (emulated_queue(stream, run_work, &work, sizeof work) != cudaSuccess)
        return NCCL_UNHANDLED_CUDA_ERROR;
    return answer(comm);
}

static bool own_factor(const struct nccl_communicator *comm, enum nccl_op *op, float *factor)
{
    const int own = (int)*op - FIRST_OWN_OP;

    *factor = 1;
    if (own < 0)
        return true;
    if (own >= MAX_OWN_OPS || !comm->op_used[own])
        return false;
    *factor = comm->factors[own];
    *op = NCCL_SUM;
    return true;
}

/* --- the API --------------------------------------------------------------------------------------------- */

EXPORT enum nccl_result ncclGetVersion(int *version);
EXPORT enum nccl_result ncclGetUniqueId(nccl_id *id);
EXPORT enum nccl_result ncclCommInitRankConfig(struct nccl_communicator **out, int n_ranks, nccl_id id,
                                               int rank, struct nccl_config *config);
EXPORT enum nccl_result ncclCommGetAsyncError(struct nccl_communicator *comm, enum nccl_result *result);
EXPORT enum nccl_result ncclCommFinalize(struct nccl_communicator *comm);
EXPORT enum nccl_result ncclCommDestroy(struct nccl_communicator *comm);
EXPORT enum nccl_result ncclCommAbort(struct nccl_communicator *comm);
EXPORT const char *ncclGetErrorString(enum nccl_result result);
EXPORT const char *ncclGetLastError(struct nccl_communicator *comm);
EXPORT enum nccl_result ncclAllGather(const void *send, void *recv, size_t n_elems, enum nccl_type type,
                                      struct nccl_communicator *comm, struct CUstream_st *stream);
EXPORT enum nccl_result ncclReduceScatter(const void *send, void *recv, size_t n_elems, enum nccl_type type,
                                          enum nccl_op op, struct nccl_communicator *comm,
                                          struct CUstream_st *stream);
EXPORT enum nccl_result ncclAllReduce(const void *send, void *recv, size_t n_elems, enum nccl_type type,
                                      enum nccl_op op, struct nccl_communicator *comm,
                                      struct CUstream_st *stream);
EXPORT enum nccl_result ncclBroadcast(const void *send, void *recv, size_t n_elems, enum nccl_type type,
                                      int root, struct nccl_communicator *comm, struct CUstream_st *stream);
EXPORT enum nccl_result ncclRedOpCreatePreMulSum(enum nccl_op *op, void *scalar, enum nccl_type type,
                                                 int residence, struct nccl_communicator *comm);
EXPORT enum nccl_result ncclRedOpDestroy(enum nccl_op op, struct nccl_communicator *comm);
#ifndef NCCL_STANDIN_OLD
EXPORT enum nccl_result ncclMemAlloc(void **out, size_t size_bytes);
EXPORT enum nccl_result ncclMemFree(void *memory);
EXPORT enum nccl_result ncclCommRegister(struct nccl_communicator *comm, void *memory, size_t size_bytes,
                                         void **handle);
EXPORT enum nccl_result ncclCommDeregister(struct nccl_communicator *comm, void *handle);
#endif

enum nccl_result ncclGetVersion(int *version)
{
#ifdef NCCL_STANDIN_OLD
    *version = 21800;
#else
    *version = 22800;
#endif
    return NCCL_SUCCESS;
}

enum nccl_result ncclGetUniqueId(nccl_id *id)
{
    static unsigned n_made;

    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "nccl-%d-%u", (int)getpid(), n_made++);
    return NCCL_SUCCESS;
}

/* What of its environment is NCCL's own: whoever opens it is to leave that alone. */
static void record_environment(const struct nccl_communicator *comm)
{
    for (char **variable = environ; *variable != NULL; variable++)
        if (strncmp(*variable, "NCCL_", 5) == 0 && strncmp(*variable, "NCCL_STANDIN_", 13) != 0)
            record(comm, "environment", *variable);
}

enum nccl_result ncclCommInitRankConfig(struct nccl_communicator **out, int n_ranks, nccl_id id, int rank,
                                        struct nccl_config *config)
{
    static int n_opened;
    const char *folder = getenv("NCCL_STANDIN_DIR");
    const struct head none = { 0 };
    struct nccl_communicator *comm;
    char words[64];

    *out = NULL;
    if (folder == NULL || config->blocking != 0 || config->magic != 0xcafebeef || n_ranks > MAX_RANKS)
        return NCCL_INVALID_ARGUMENT;
    comm = calloc(1, sizeof *comm);
    if (comm == NULL)
        return NCCL_SYSTEM_ERROR;
    comm->rank = rank;
    comm->size = n_ranks;
    comm->own = n_opened++;
    comm->n_users = 1;
    snprintf(comm->prefix, sizeof comm->prefix, "%s/%.100s", folder, id.internal);
    snprintf(words, sizeof words, "%d of %d", rank, n_ranks);
    record(comm, "CommInitRankConfig", words);
    record_environment(comm);
    publish(comm, 0, &none, NULL, 0);
    *out = comm;
    return NCCL_IN_PROGRESS;
}

static bool all_joined(const struct nccl_communicator *comm)
{
    for (int r = 0; r < comm->size; r++)
        if (!is_there(comm, 0, r))
            return false;
    return true;
}

enum nccl_result ncclCommGetAsyncError(struct nccl_communicator *comm, enum nccl_result *result)
{
    if (!comm->ready)
        comm->ready = getenv("NCCL_STANDIN_NEVER") == NULL && all_joined(comm);
    *result = !comm->ready ? NCCL_IN_PROGRESS : comm->failed;
    if (comm->ready && comm->in_progress > 0) {
        comm->in_progress--;
        *result = NCCL_IN_PROGRESS;
    }
    return NCCL_SUCCESS;
}

enum nccl_result ncclCommFinalize(struct nccl_communicator *comm)
{
    record(comm, "CommFinalize", "");
    return answer(comm);
}

/* What was made of a communicator that ends in good order, and never given back. */
static void record_left(const struct nccl_communicator *comm)
{
    char words[64];
    int n_ops = 0;

    for (int i = 0; i < MAX_OWN_OPS; i++)
        n_ops += comm->op_used[i];
    snprintf(words, sizeof words, "%d operations %d registrations", n_ops, comm->n_registered);
    if (n_ops + comm->n_registered > 0)
        record(comm, "left", words);
}

enum nccl_result ncclCommDestroy(struct nccl_communicator *comm)
{
    record(comm, "CommDestroy", "");
    record_left(comm);
    let_go(comm);
    return NCCL_SUCCESS;
}

enum nccl_result ncclCommAbort(struct nccl_communicator *comm)
{
    record(comm, "CommAbort", "");
    comm->aborted = true;
    let_go(comm);
    return NCCL_SUCCESS;
}

const char *ncclGetErrorString(enum nccl_result result)
{
    return result == NCCL_REMOTE_ERROR    ? "remote process exited or there was a network error"
           : result == NCCL_INVALID_USAGE ? "invalid usage"
                                          : "unhandled error";
}

const char *ncclGetLastError(struct nccl_communicator *comm)
{
    return comm->failed != NCCL_SUCCESS ? "as it was told to" : "";
}

enum nccl_result ncclAllGather(const void *send, void *recv, size_t n_elems, enum nccl_type type,
                               struct nccl_communicator *comm, struct CUstream_st *stream)
{
    return queue(
        comm, "AllGather",
        (struct work){ .head = { .what = ALL_GATHER, .type = (int32_t)type, .n_elems = n_elems, .factor = 1 },
                       .send = send,
                       .recv = recv },
        stream);
}

enum nccl_result ncclReduceScatter(const void *send, void *recv, size_t n_elems, enum nccl_type type,
                                   enum nccl_op op, struct nccl_communicator *comm,
                                   struct CUstream_st *stream)
{
    float factor;

    if (!own_factor(comm, &op, &factor))
        return NCCL_INVALID_ARGUMENT;
    return queue(comm, "ReduceScatter",
                 (struct work){ .head = { .what = REDUCE_SCATTER,
                                          .type = (int32_t)type,
                                          .op = (int32_t)op,
                                          .n_elems = n_elems,
                                          .factor = factor },
                                .send = send,
                                .recv = recv },
                 stream);
}

enum nccl_result ncclAllReduce(const void *send, void *recv, size_t n_elems, enum nccl_type type,
                               enum nccl_op op, struct nccl_communicator *comm, struct CUstream_st *stream)
{
    return queue(comm, "AllReduce",
                 (struct work){ .head = { .what = ALL_REDUCE,
                                          .type = (int32_t)type,
                                          .op = (int32_t)op,
                                          .n_elems = n_elems,
                                          .factor = 1 },
                                .send = send,
                                .recv = recv },
                 stream);
}

enum nccl_result ncclBroadcast(const void *send, void *recv, size_t n_elems, enum nccl_type type, int root,
                               struct nccl_communicator *comm, struct CUstream_st *stream)
{
    return queue(comm, "Broadcast",
                 (struct work){ .head = { .what = BROADCAST,
                                          .type = (int32_t)type,
                                          .root = root,
                                          .n_elems = n_elems,
                                          .factor = 1 },
                                .send = send,
                                .recv = recv },
                 stream);
}

enum nccl_result ncclRedOpCreatePreMulSum(enum nccl_op *op, void *scalar, enum nccl_type type, int residence,
                                          struct nccl_communicator *comm)
{
    char words[64];
    uint16_t half;
    int own = 0;

    if (residence != NCCL_SCALAR_HOST_IMMEDIATE)
        return NCCL_INVALID_ARGUMENT;
    while (own < MAX_OWN_OPS && comm->op_used[own])
        own++;
    if (own == MAX_OWN_OPS)
        return NCCL_SYSTEM_ERROR;
    comm->op_used[own] = true;
    if (type == NCCL_BFLOAT16) {
        memcpy(&half, scalar, sizeof half);
        comm->factors[own] = bf16_to_f32(half);
    } else {
        memcpy(&comm->factors[own], scalar, sizeof(float));
    }
    snprintf(words, sizeof words, "own %d factor %g", own, (double)comm->factors[own]);
    record(comm, "RedOpCreatePreMulSum", words);
    *op = (enum nccl_op)(FIRST_OWN_OP + own);
    return NCCL_SUCCESS;
}

enum nccl_result ncclRedOpDestroy(enum nccl_op op, struct nccl_communicator *comm)
{
    const int own = (int)op - FIRST_OWN_OP;
    char words[64];

    if (own < 0 || own >= MAX_OWN_OPS || !comm->op_used[own])
        return NCCL_INVALID_ARGUMENT;
    comm->op_used[own] = false;
    snprintf(words, sizeof words, "own %d", own);
    record(comm, "RedOpDestroy", words);
    return NCCL_SUCCESS;
}

#ifndef NCCL_STANDIN_OLD
/* Of no communicator: known apart from cudaMalloc's by being given back here. */
static void *own_memory[MAX_OWN_MEMORY];

enum nccl_result ncclMemAlloc(void **out, size_t size_bytes)
{
    int own = 0;

    *out = NULL;
    while (own < MAX_OWN_MEMORY && own_memory[own] != NULL)
        own++;
    if (own == MAX_OWN_MEMORY || getenv("NCCL_STANDIN_SMALL") != NULL ||
        cudaMalloc(out, size_bytes) != cudaSuccess)
        return NCCL_UNHANDLED_CUDA_ERROR;
    own_memory[own] = *out;
    return NCCL_SUCCESS;
}

enum nccl_result ncclMemFree(void *memory)
{
    for (int own = 0; own < MAX_OWN_MEMORY; own++)
        if (own_memory[own] == memory) {
            own_memory[own] = NULL;
            return cudaFree(memory) == cudaSuccess ? NCCL_SUCCESS : NCCL_UNHANDLED_CUDA_ERROR;
        }
    return NCCL_INVALID_ARGUMENT;
}

static bool is_own_memory(const void *memory)
{
    for (int own = 0; own < MAX_OWN_MEMORY; own++)
        if (own_memory[own] == memory)
            return true;
    return false;
}

enum nccl_result ncclCommRegister(struct nccl_communicator *comm, void *memory, size_t size_bytes,
                                  void **handle)
{
    char words[64];

    *handle = NULL;
    if (!emulated_is_device(memory) || !emulated_is_device((char *)memory + size_bytes - 1))
        return NCCL_INVALID_ARGUMENT;
    if (getenv("NCCL_STANDIN_SMALL") != NULL)
        return NCCL_SYSTEM_ERROR;
    snprintf(words, sizeof words, "%zu bytes of %s", size_bytes,
             is_own_memory(memory) ? "its own" : "cudaMalloc's");
    record(comm, "CommRegister", words);
    comm->n_registered++;
    *handle = memory;
    return answer(comm);
}

enum nccl_result ncclCommDeregister(struct nccl_communicator *comm, void *handle)
{
    if (handle == NULL || comm->n_registered == 0 || !emulated_is_device(handle))
        return NCCL_INVALID_ARGUMENT;
    comm->n_registered--;
    record(comm, "CommDeregister", "");
    return NCCL_SUCCESS;
}
#endif
