/*
 * The part of NCCL (2.18 and later) that is used, by prototypes of our own. The library is opened by name at
 * run time, so that the plug-in builds without its header. If the header is there, nccl_check.c compares
 * both.
 */
#ifndef CUDA_NCCL_API_H
#define CUDA_NCCL_API_H

#include <limits.h>
#include <stddef.h>

#include "shard_runtime/cuda/must_check.h"

struct CUstream_st;
struct nccl_communicator;

typedef struct {
    char internal[128];
} nccl_id;

/*
 * The library's numbers: our name, the number, and the name in its header, with which nccl_check.c compares
 * it.
 */
#define NCCL_NUMBER(ours, number, theirs) ours = number,

#define NCCL_RESULTS(X)                                                                                      \
    X(NCCL_SUCCESS, 0, ncclSuccess)                                                                          \
    X(NCCL_UNHANDLED_CUDA_ERROR, 1, ncclUnhandledCudaError)                                                  \
    X(NCCL_SYSTEM_ERROR, 2, ncclSystemError)                                                                 \
    X(NCCL_INTERNAL_ERROR, 3, ncclInternalError)                                                             \
    X(NCCL_INVALID_ARGUMENT, 4, ncclInvalidArgument)                                                         \
    X(NCCL_INVALID_USAGE, 5, ncclInvalidUsage)                                                               \
    X(NCCL_REMOTE_ERROR, 6, ncclRemoteError)                                                                 \
    X(NCCL_IN_PROGRESS, 7, ncclInProgress)
enum nccl_result { NCCL_RESULTS(NCCL_NUMBER) };

#define NCCL_TYPES(X)                                                                                        \
    X(NCCL_UINT8, 1, ncclUint8)                                                                              \
    X(NCCL_INT32, 2, ncclInt32)                                                                              \
    X(NCCL_INT64, 4, ncclInt64)                                                                              \
    X(NCCL_FLOAT16, 6, ncclFloat16)                                                                          \
    X(NCCL_FLOAT32, 7, ncclFloat32)                                                                          \
    X(NCCL_FLOAT64, 8, ncclFloat64)                                                                          \
    X(NCCL_BFLOAT16, 9, ncclBfloat16)
enum nccl_type { NCCL_TYPES(NCCL_NUMBER) };

#define NCCL_OPS(X)                                                                                          \
    X(NCCL_SUM, 0, ncclSum)                                                                                  \
    X(NCCL_MAX, 2, ncclMax)                                                                                  \
    X(NCCL_AVG, 4, ncclAvg)
enum nccl_op { NCCL_OPS(NCCL_NUMBER) };

enum { NCCL_SCALAR_HOST_IMMEDIATE = 1 };

/*
 * The struct of version 2.18. Later versions append fields, and accept the shorter struct by its size and
 * version.
 */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
};

#define NCCL_CONFIG_INIT                                                                                     \
    {                                                                                                        \
        .size = sizeof(struct nccl_config), .magic = 0xcafebeef, .version = 21800, .blocking = INT_MIN,      \
        .cga_cluster_size = INT_MIN, .min_ctas = INT_MIN, .max_ctas = INT_MIN, .split_share = INT_MIN        \
    }

/* The functions that are used: result, name and arguments. In the library each name begins with "nccl". */
#define NCCL_FUNCTIONS(X)                                                                                    \
    X(enum nccl_result, GetVersion, (int *version))                                                          \
    X(enum nccl_result, GetUniqueId, (nccl_id * id))                                                         \
    X(enum nccl_result, CommInitRankConfig,                                                                  \
      (struct nccl_communicator * *out, int n_ranks, nccl_id id, int rank, struct nccl_config *config))      \
    X(enum nccl_result, CommGetAsyncError, (struct nccl_communicator * comm, enum nccl_result * result))     \
    X(enum nccl_result, CommFinalize, (struct nccl_communicator * comm))                                     \
    X(enum nccl_result, CommDestroy, (struct nccl_communicator * comm))                                      \
    X(enum nccl_result, CommAbort, (struct nccl_communicator * comm))                                        \
    X(const char *, GetErrorString, (enum nccl_result result))                                               \
    X(const char *, GetLastError, (struct nccl_communicator * comm))                                         \
    X(enum nccl_result, AllGather,                                                                           \
      (const void *send, void *recv, size_t n_elems, enum nccl_type type, struct nccl_communicator *comm,    \
       struct CUstream_st *stream))                                                                          \
    X(enum nccl_result, ReduceScatter,                                                                       \
      (const void *send, void *recv, size_t n_elems, enum nccl_type type, enum nccl_op op,                   \
       struct nccl_communicator *comm, struct CUstream_st *stream))                                          \
    X(enum nccl_result, AllReduce,                                                                           \
      (const void *send, void *recv, size_t n_elems, enum nccl_type type, enum nccl_op op,                   \
       struct nccl_communicator *comm, struct CUstream_st *stream))                                          \
    X(enum nccl_result, Broadcast,                                                                           \
      (const void *send, void *recv, size_t n_elems, enum nccl_type type, int root,                          \
       struct nccl_communicator *comm, struct CUstream_st *stream))                                          \
    X(enum nccl_result, RedOpCreatePreMulSum,                                                                \
      (enum nccl_op * op, void *scalar, enum nccl_type type, int residence, struct nccl_communicator *comm)) \
    X(enum nccl_result, RedOpDestroy, (enum nccl_op op, struct nccl_communicator * comm))

/* Functions since 2.19; NULL in an older library. */
#define NCCL_OPTIONAL_FUNCTIONS(X)                                                                           \
    X(enum nccl_result, MemAlloc, (void **out, size_t size_bytes))                                           \
    X(enum nccl_result, MemFree, (void *memory))                                                             \
    X(enum nccl_result, CommRegister,                                                                        \
      (struct nccl_communicator * comm, void *memory, size_t size_bytes, void **handle))                     \
    X(enum nccl_result, CommDeregister, (struct nccl_communicator * comm, void *handle))

#define NCCL_MEMBER(result, name, arguments) MUST_CHECK result(*name) arguments;

struct nccl_api {
    NCCL_FUNCTIONS(NCCL_MEMBER)
    NCCL_OPTIONAL_FUNCTIONS(NCCL_MEMBER)
};

#endif
