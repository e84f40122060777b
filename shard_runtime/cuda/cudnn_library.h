/* Opens cuDNN by name: FSDP_CUDNN_LIBRARY, else libcudnn.so.9. */
#ifndef CUDA_CUDNN_LIBRARY_H
#define CUDA_CUDNN_LIBRARY_H

#include <fsdp/status.h>

#include "shard_runtime/cuda/cudnn_api.h"

/**
 * Open the library, once, and give its functions. It is never closed. FSDP_ERR_UNSUPPORTED: it is not there,
 * lacks a function, or is older than 9.16.
 */
enum fsdp_status cudnn_open_library(const struct cudnn_api **out, struct fsdp_err *err);

#endif
