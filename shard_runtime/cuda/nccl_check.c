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
#endif
