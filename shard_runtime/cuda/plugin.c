/*
 * The one function that libfsdp_cuda.so exports. It asks the driver whether there is a usable GPU, which
 * needs no context and little time. The caller then chooses what to open.
 */
#include "shard_runtime/device/plugin.h"

#include <stdio.h>

#include <cuda_runtime_api.h>

#include "shard_runtime/comm/device_collectives.h"
#include "shard_runtime/cuda/ops.h"
#include "shard_runtime/cuda/state.h"
#include "shard_runtime/device/device.h"
#include "shard_runtime/numerics/numerics.h"

static const struct plugin table = {
    .version = PLUGIN_VERSION,
    .size_bytes = sizeof(struct plugin),
    .device_ops_bytes = sizeof(struct device_ops),
    .numerics_ops_bytes = sizeof(struct numerics_ops),
    .collectives_bytes = sizeof(struct device_collectives),
    .device = &device_cuda_ops,
    .numerics = &numerics_cuda_ops,
    .collectives = &nccl_collectives,
};

FSDP_API const struct plugin *fsdp_cuda_plugin(uint32_t version, char *why, size_t why_bytes);

const struct plugin *fsdp_cuda_plugin(uint32_t version, char *why, size_t why_bytes)
{
    int n_devices = 0;
    cudaError_t error;

    if (version != PLUGIN_VERSION) {
        snprintf(why, why_bytes, "it is version %d of the table, not %u", PLUGIN_VERSION, version);
        return NULL;
    }
    error = cudaGetDeviceCount(&n_devices);
    if (error != cudaSuccess) {
        struct fsdp_err err = { 0 };

        (void)cuda_status(NULL, error, "cudaGetDeviceCount", __FILE__, __LINE__, &err);
        snprintf(why, why_bytes, "%s", err.message);
        return NULL;
    }
    if (n_devices == 0) {
        snprintf(why, why_bytes, "there is no GPU");
        return NULL;
    }
    return &table;
}
