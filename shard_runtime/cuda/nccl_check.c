/* Our prototypes of NCCL against its own header, where that is found. */
#include "shard_runtime/cuda/nccl_api.h"

#if __has_include(<nccl.h>)
#include <nccl.h>

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours " is not " #theirs)
SAME(NCCL_SUCCESS, ncclSuccess);
SAME(NCCL_SYSTEM_ERROR, ncclSystemError);
SAME(NCCL_INTERNAL_ERROR, ncclInternalError);
SAME(NCCL_INVALID_USAGE, ncclInvalidUsage);
SAME(NCCL_REMOTE_ERROR, ncclRemoteError);
SAME(NCCL_IN_PROGRESS, ncclInProgress);
SAME(NCCL_UINT8, ncclUint8);
SAME(NCCL_INT32, ncclInt32);
SAME(NCCL_INT64, ncclInt64);
SAME(NCCL_FLOAT16, ncclFloat16);
SAME(NCCL_FLOAT32, ncclFloat32);
SAME(NCCL_FLOAT64, ncclFloat64);
SAME(NCCL_BFLOAT16, ncclBfloat16);
SAME(NCCL_SUM, ncclSum);
SAME(NCCL_MAX, ncclMax);
SAME(NCCL_AVG, ncclAvg);
SAME(NCCL_SCALAR_HOST_IMMEDIATE, ncclScalarHostImmediate);
SAME(sizeof(nccl_id), sizeof(ncclUniqueId));
SAME(offsetof(struct nccl_config, blocking), offsetof(ncclConfig_t, blocking));
SAME(offsetof(struct nccl_config, net_name), offsetof(ncclConfig_t, netName));
SAME(offsetof(struct nccl_config, split_share), offsetof(ncclConfig_t, splitShare));

/* The prototypes that ours were written after. */
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
