/*
 * What is used of NCCL (2.18 and later), by prototypes of our own: it is opened by name at run time, so that the plug-in builds
 * where its header is not. Where the header is, the two are held against each other.
 */
#ifndef CUDA_NCCL_API_H
#define CUDA_NCCL_API_H

#include <limits.h>
#include <stddef.h>

struct CUstream_st;
struct nccl_communicator;

typedef struct {
    char internal[128];
} nccl_id;

enum nccl_result {
    NCCL_SUCCESS = 0,
    NCCL_UNHANDLED_CUDA_ERROR = 1,
    NCCL_SYSTEM_ERROR = 2,
    NCCL_INTERNAL_ERROR = 3,
    NCCL_INVALID_ARGUMENT = 4,
    NCCL_INVALID_USAGE = 5,
    NCCL_REMOTE_ERROR = 6,
    NCCL_IN_PROGRESS = 7,
};

enum nccl_type {
    NCCL_UINT8 = 1,
    NCCL_INT32 = 2,
    NCCL_INT64 = 4,
    NCCL_FLOAT16 = 6,
    NCCL_FLOAT32 = 7,
    NCCL_FLOAT64 = 8,
    NCCL_BFLOAT16 = 9,
};

enum nccl_op { NCCL_SUM = 0, NCCL_PROD = 1, NCCL_MAX = 2, NCCL_MIN = 3, NCCL_AVG = 4 };

enum { NCCL_SCALAR_HOST_IMMEDIATE = 1 };

/* As of 2.18. Later versions append, and take a shorter one by its size and version. */
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

struct nccl_api {
    enum nccl_result (*GetVersion)(int *version);
    enum nccl_result (*GetUniqueId)(nccl_id *id);
    enum nccl_result (*CommInitRankConfig)(struct nccl_communicator **out, int n_ranks, nccl_id id, int rank,
                                           struct nccl_config *config);
    enum nccl_result (*CommGetAsyncError)(struct nccl_communicator *comm, enum nccl_result *result);
    enum nccl_result (*CommFinalize)(struct nccl_communicator *comm);
    enum nccl_result (*CommDestroy)(struct nccl_communicator *comm);
    enum nccl_result (*CommAbort)(struct nccl_communicator *comm);
    const char *(*GetErrorString)(enum nccl_result result);
    const char *(*GetLastError)(struct nccl_communicator *comm);
    enum nccl_result (*AllGather)(const void *send, void *recv, size_t n_elems, enum nccl_type type,
                                  struct nccl_communicator *comm, struct CUstream_st *stream);
    enum nccl_result (*ReduceScatter)(const void *send, void *recv, size_t n_elems, enum nccl_type type,
                                      enum nccl_op op, struct nccl_communicator *comm,
                                      struct CUstream_st *stream);
    enum nccl_result (*AllReduce)(const void *send, void *recv, size_t n_elems, enum nccl_type type,
                                  enum nccl_op op, struct nccl_communicator *comm,
                                  struct CUstream_st *stream);
    enum nccl_result (*Broadcast)(const void *send, void *recv, size_t n_elems, enum nccl_type type, int root,
                                  struct nccl_communicator *comm, struct CUstream_st *stream);
    enum nccl_result (*RedOpCreatePreMulSum)(enum nccl_op *op, void *scalar, enum nccl_type type,
                                             int residence, struct nccl_communicator *comm);
    enum nccl_result (*RedOpDestroy)(enum nccl_op op, struct nccl_communicator *comm);
    /* Since 2.19; NULL in an older one. */
    enum nccl_result (*MemAlloc)(void **out, size_t size_bytes);
    enum nccl_result (*MemFree)(void *memory);
    enum nccl_result (*CommRegister)(struct nccl_communicator *comm, void *memory, size_t size_bytes,
                                     void **handle);
    enum nccl_result (*CommDeregister)(struct nccl_communicator *comm, void *handle);
};

/* Their names, each with "nccl" before it in the library. */
#define NCCL_FUNCTIONS(X)                                                                                    \
    X(GetVersion)                                                                                            \
    X(GetUniqueId)                                                                                           \
    X(CommInitRankConfig)                                                                                    \
    X(CommGetAsyncError)                                                                                     \
    X(CommFinalize)                                                                                          \
    X(CommDestroy)                                                                                           \
    X(CommAbort)                                                                                             \
    X(GetErrorString)                                                                                        \
    X(GetLastError)                                                                                          \
    X(AllGather)                                                                                             \
    X(ReduceScatter)                                                                                         \
    X(AllReduce)                                                                                             \
    X(Broadcast)                                                                                             \
    X(RedOpCreatePreMulSum)                                                                                  \
    X(RedOpDestroy)

/* Those that it may lack. */
#define NCCL_OPTIONAL_FUNCTIONS(X)                                                                           \
    X(MemAlloc)                                                                                              \
    X(MemFree)                                                                                               \
    X(CommRegister)                                                                                          \
    X(CommDeregister)

#endif
