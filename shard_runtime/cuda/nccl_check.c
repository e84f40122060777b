/* Compares our prototypes of NCCL with its own header, if that is found. */
#include "shard_runtime/cuda/nccl_api.h"

#if __has_include(<nccl.h>)
#include <nccl.h>

#define SAME(ours, number, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours " is not " #theirs);
NCCL_RESULTS(SAME)
NCCL_TYPES(SAME)
NCCL_OPS(SAME)
SAME(NCCL_SCALAR_HOST_IMMEDIATE, 0, ncclScalarHostImmediate)
SAME(sizeof(nccl_id), 0, sizeof(ncclUniqueId))
SAME(offsetof(struct nccl_config, blocking), 0, offsetof(ncclConfig_t, blocking))
SAME(offsetof(struct nccl_config, net_name), 0, offsetof(ncclConfig_t, netName))
SAME(offsetof(struct nccl_config, split_share), 0, offsetof(ncclConfig_t, splitShare))

/* Compares the arguments of the header's functions with those that our prototypes were written from. */
#define IS(function, ...)                                                                                    \
    _Static_assert(__builtin_types_compatible_p(__typeof__(function), ncclResult_t(__VA_ARGS__)),            \
                   #function " has other arguments")
IS(ncclCommInitRankConfig, ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
IS(ncclCommGetAsyncError, ncclComm_t, ncclResult_t *);
IS(ncclCommFinalize, ncclComm_t);
IS(ncclCommDestroy, ncclComm_t);
IS(ncclCommAbort, ncclComm_t);
IS(ncclAllGather, const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
IS(ncclReduceScatter, const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
IS(ncclAllReduce, const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
IS(ncclBroadcast, const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
IS(ncclRedOpCreatePreMulSum, ncclRedOp_t *, void *, ncclDataType_t, ncclScalarResidence_t, ncclComm_t);
IS(ncclRedOpDestroy, ncclRedOp_t, ncclComm_t);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
IS(ncclMemAlloc, void **, size_t);
IS(ncclMemFree, void *);
IS(ncclCommRegister, ncclComm_t, void *, size_t, void **);
IS(ncclCommDeregister, ncclComm_t, void *);
#endif
#endif
