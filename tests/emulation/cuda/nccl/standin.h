/*
 * A library with NCCL's API between processes of one host, over files: for the emulated device. It records
 * what it is called with and can be told to misbehave. A collective is an operation in its stream's queue.
 * Its rank's part is published as a file, and it is done when every rank's part is there. If a peer is gone,
 * it stays in its queue until the communicator is aborted, as NCCL's kernel would.
 *
 * NCCL_STANDIN_DIR    where its files are (required)
 * NCCL_STANDIN_LOG    a line for each call goes to <this>.<rank>
 * NCCL_STANDIN_LAZY   every call first answers that it is in progress
 *                     With this or NEVER, the log says at the end how often the caller asked again, and
 *                       before how many of these
 *                     questions it gave up the processor to wait ("asked N, waited M").
 * NCCL_STANDIN_FAIL   RANK:N: on that rank the n-th collective leaves an asynchronous error behind
 * NCCL_STANDIN_HOLD   RANK:N:FILE: on that rank the n-th collective of a group does not begin while FILE is
 * there NCCL_STANDIN_NEVER  opening a communicator stays in progress for ever NCCL_STANDIN_CLOCK  the lines
 * of the log end with the time, seconds since 1970 NCCL_STANDIN_SMALL  its allocator has no memory, and
 * registering is refused
 *
 * Compiled with NCCL_STANDIN_OLD it is version 2.18, which has neither.
 * Every call can be told to fail, too: tests/emulation/cuda/faults.h.
 */
#ifndef NCCL_STANDIN_H
#define NCCL_STANDIN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "shard_runtime/cuda/nccl_api.h"
#include "tests/emulation/cuda/faults.h"
#include "tests/emulation/cuda/runtime.h"

#define EXPORT __attribute__((visibility("default")))
/* The plug-in finds NCCL's functions by name: no header declares them. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

/* First in each call. */
#define TOLD()                                                                                               \
    do {                                                                                                     \
        const enum nccl_result told_ = standin_told(__func__);                                               \
        if (told_ != NCCL_SUCCESS)                                                                           \
            return told_;                                                                                    \
    } while (0)

enum { PATH_BYTES = 512, MAX_RANKS = 64, FIRST_OWN_OP = 8, MAX_OWN_OPS = 64 };

enum what { ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, BROADCAST };

struct nccl_communicator {
    char prefix[PATH_BYTES];
    int rank, size;
    int own; /* which of this process's communicators it is */
    uint64_t n_calls, n_done;
    int n_users; /* the handle, and queued operations */
    bool aborted, ready;
    int in_progress; /* polls until a lazy call is done */
    long
        /*
         * of the caller's thread, voluntary, as of the last answer "in progress"; -1: the last answer was
         * another
         */
        switches;
    unsigned long n_asked, n_waited;
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

/** Count a call of the caller's; what it is to fail with, SUCCESS to go on. */
enum nccl_result standin_told(const char *call);
/** A line of the log: the call, and more about it. */
void standin_record(const struct nccl_communicator *comm, const char *call, const char *rest);
/** Bytes of an element. */
size_t standin_size(int type);
/** SUCCESS, or that it is in progress, where that was asked for. */
enum nccl_result standin_answer(struct nccl_communicator *comm);
void standin_let_go(struct nccl_communicator *comm);

/*
 * Files: this rank's part of call `number`, whole or not at all; has a rank's come; part of a rank's data
 * behind its head, false if that is not as ours; and everybody has passed that call.
 */
void standin_publish(const struct nccl_communicator *comm, uint64_t number, const struct head *head,
                     const void *data, size_t size_bytes);
bool standin_is_there(const struct nccl_communicator *comm, uint64_t number, int rank);
bool standin_fetch(const struct nccl_communicator *comm, uint64_t number, int rank, const struct head *mine,
                   size_t at, void *to, size_t size_bytes);
void standin_forget(const struct nccl_communicator *comm, uint64_t number);

/**
 * `n_elems` of everybody, from element `first`, reduced in the order of the ranks; false: they do not agree
 * what.
 */
bool standin_reduce(const struct work *w, size_t first, size_t n_elems);

#endif
