/* cuDNN, opened by name: FSDP_CUDNN_LIBRARY, else libcudnn.so.9. */
#ifndef CUDA_CUDNN_LIBRARY_H
#define CUDA_CUDNN_LIBRARY_H

#include <fsdp/status.h>

#include "shard_runtime/cuda/cudnn_api.h"

/** Its functions, for good: once opened it stays. FSDP_ERR_UNSUPPORTED: it is not there, lacks one, or is older than 9.16. */
enum fsdp_status cudnn_open_library(const struct cudnn_api **out, struct fsdp_err *err);

#endif
