/* Collectives: operations in a stream's queue, in the order in which a communicator's calls were made. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/core/bf16.h"
#include "tests/emulation/cuda/nccl/standin.h"

static size_t sent_elems(const struct work *w)
{
    return w->head.what == REDUCE_SCATTER ? w->head.n_elems * (size_t)w->comm->size : w->head.n_elems;
}

static bool finish(struct work *w)
{
    const size_t n = w->head.n_elems, size = standin_size(w->head.type);
    bool same = true;

    switch (w->head.what) {
    case ALL_GATHER:
        for (int r = 0; r < w->comm->size && same; r++)
            same = standin_fetch(w->comm, w->number, r, &w->head, 0, (char *)w->recv + (size_t)r * n * size,
                                 n * size);
        return same;
    case REDUCE_SCATTER:
        return standin_reduce(w, (size_t)w->comm->rank * n, n);
    case ALL_REDUCE:
        return standin_reduce(w, 0, n);
    default:
        return standin_fetch(w->comm, w->number, w->head.root, &w->head, 0, w->recv, n * size);
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
        standin_publish(comm, w->number, &w->head, w->send, sent_elems(w) * standin_size(w->head.type));
        w->posted = true;
    }
    for (int r = 0; r < comm->size && !comm->aborted; r++)
        if (!standin_is_there(comm, w->number, r))
            return false;
    if (!comm->aborted && !finish(w)) /* NCCL would hang, or write where it must not: this says it */
        comm->failed = NCCL_INVALID_USAGE;
    if (!comm->aborted && w->number > 1)
        standin_forget(comm, w->number - 1);
    comm->n_done = w->number;
    standin_let_go(comm);
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

static enum nccl_result queue(struct nccl_communicator *comm, const char *name, struct head head,
                              const void *send, void *recv, struct CUstream_st *stream)
{
    struct work work = { .comm = comm, .head = head, .send = send, .recv = recv };
    const char *own = (const char *)recv + (size_t)comm->rank * head.n_elems * standin_size(head.type);
    char words[160];

    if (comm->in_progress > 0) /* a caller that does not ask until it is done */
        return NCCL_INVALID_USAGE;
    if (comm->failed != NCCL_SUCCESS)
        return comm->failed;
    if (!emulated_is_device(send) || !emulated_is_device(recv))
        return NCCL_INVALID_ARGUMENT;
    work.number = ++comm->n_calls;
    snprintf(words, sizeof words, "#%llu n %llu type %d op %d factor %g root %d comm %d %s",
             (unsigned long long)work.number, (unsigned long long)head.n_elems, head.type, head.op,
             (double)head.factor, head.root, comm->own,
             head.what == ALL_GATHER && (const char *)send == own ? "in place" : "");
    standin_record(comm, name, words);
    if (fails_now(comm)) {
        comm->failed = NCCL_REMOTE_ERROR;
        return standin_answer(comm);
    }
    comm->n_users++;
    if (emulated_queue(stream, run_work, &work, sizeof work) != cudaSuccess)
        return NCCL_UNHANDLED_CUDA_ERROR;
    return standin_answer(comm);
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

EXPORT enum nccl_result ncclAllGather(const void *send, void *recv, size_t n_elems, enum nccl_type type,
                                      struct nccl_communicator *comm, struct CUstream_st *stream)
{
    TOLD();
    return queue(comm, "AllGather", (struct head){ ALL_GATHER, (int32_t)type, 0, 0, n_elems, 1 }, send, recv,
                 stream);
}

EXPORT enum nccl_result ncclReduceScatter(const void *send, void *recv, size_t n_elems, enum nccl_type type,
                                          enum nccl_op op, struct nccl_communicator *comm,
                                          struct CUstream_st *stream)
{
    float factor;

    TOLD();
    if (!own_factor(comm, &op, &factor))
        return NCCL_INVALID_ARGUMENT;
    return queue(comm, "ReduceScatter",
                 (struct head){ REDUCE_SCATTER, (int32_t)type, (int32_t)op, 0, n_elems, factor }, send, recv,
                 stream);
}

EXPORT enum nccl_result ncclAllReduce(const void *send, void *recv, size_t n_elems, enum nccl_type type,
                                      enum nccl_op op, struct nccl_communicator *comm,
                                      struct CUstream_st *stream)
{
    TOLD();
    return queue(comm, "AllReduce", (struct head){ ALL_REDUCE, (int32_t)type, (int32_t)op, 0, n_elems, 1 },
                 send, recv, stream);
}

EXPORT enum nccl_result ncclBroadcast(const void *send, void *recv, size_t n_elems, enum nccl_type type,
                                      int root, struct nccl_communicator *comm, struct CUstream_st *stream)
{
    TOLD();
    return queue(comm, "Broadcast", (struct head){ BROADCAST, (int32_t)type, 0, root, n_elems, 1 }, send,
                 recv, stream);
}

EXPORT enum nccl_result ncclRedOpCreatePreMulSum(enum nccl_op *op, void *scalar, enum nccl_type type,
                                                 int residence, struct nccl_communicator *comm)
{
    char words[64];
    uint16_t half;
    int own = 0;

    TOLD();
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
    standin_record(comm, "RedOpCreatePreMulSum", words);
    *op = (enum nccl_op)(FIRST_OWN_OP + own);
    return NCCL_SUCCESS;
}

EXPORT enum nccl_result ncclRedOpDestroy(enum nccl_op op, struct nccl_communicator *comm)
{
    const enum nccl_result told = standin_told(__func__);
    const int own = (int)op - FIRST_OWN_OP;
    char words[64];

    if (own < 0 || own >= MAX_OWN_OPS || !comm->op_used[own])
        return NCCL_INVALID_ARGUMENT;
    comm->op_used[own] = false;
    snprintf(words, sizeof words, "own %d", own);
    standin_record(comm, "RedOpDestroy", words);
    return told;
}
