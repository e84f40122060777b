#include "shard_runtime/device/device.h"

#include <string.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/device/plugin.h"

static enum fsdp_status open_cuda(struct device *device, const struct device_config *config,
                                  struct fsdp_err *err)
{
    const struct plugin *plugin;
    enum fsdp_status status;

    OK_OR_RETURN(plugin_open(&plugin, err));
    if (plugin->device_ops_bytes != sizeof *device->ops)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "the CUDA plug-in is of another build");
    device->ops = plugin->device;
    status = device->ops->open(device, config->local_rank, err);
    if (status != FSDP_OK)
        device->ops = NULL;
    else if (config->plugin != NULL)
        *config->plugin = plugin;
    return status;
}

static enum fsdp_status open_cpu(struct device *device, const struct device_config *config,
                                 struct fsdp_err *err)
{
    device->ops = &device_cpu_ops;
    return device->ops->open(device, config->local_rank, err);
}

enum fsdp_status device_open(struct device *device, const struct device_config *config, struct fsdp_err *err)
{
    const bool automatic = strcmp(config->name, "auto") == 0;
    struct fsdp_err refusal = { 0 };
    enum fsdp_status status;

    *device = (struct device){ .local_rank = config->local_rank };
    if (config->plugin != NULL)
        *config->plugin = NULL;
    fsdp_err_clear(config->refusal);
    if (config->local_rank < 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "device %s: local rank %d is below 0", config->name,
                         config->local_rank);
    if (strcmp(config->name, "cpu") == 0)
        return open_cpu(device, config, err);
    if (!automatic && strcmp(config->name, "cuda") != 0)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "device %s: not one of cpu, cuda, auto", config->name);
    status = open_cuda(device, config, &refusal);
    if (status == FSDP_OK)
        return FSDP_OK;
    if (!automatic)
        return fsdp_fail(err, status == FSDP_ERR_DEVICE ? status : FSDP_ERR_UNSUPPORTED, "device cuda: %s",
                         refusal.message);
    if (status != FSDP_ERR_NOT_FOUND)
        fsdp_fail(config->refusal, status, "device auto takes the cpu: %s", refusal.message);
    return open_cpu(device, config, err);
}

void device_close(struct device *device)
{
    if (device->ops == NULL)
        return;
    device->ops->close(device);
    *device = (struct device){ 0 };
}

void device_cast_list(struct device *device, struct device_stream *stream, const struct device_cast *casts,
                      size_t n_casts, float scale, bool accumulate)
{
    if (device->ops->cast_list != NULL) {
        device->ops->cast_list(stream, casts, n_casts, scale, accumulate);
        return;
    }
    for (size_t i = 0; i < n_casts; i++) {
        const struct device_cast *cast = &casts[i];

        if (cast->from == NULL)
            device->ops->fill_zero(stream, cast->to, cast->n_elems * fsdp_dtype_size(cast->to_dtype));
        else
            device->ops->cast(stream, cast->to, cast->to_dtype, cast->from, cast->from_dtype, cast->n_elems,
                              scale, accumulate);
    }
}
