#include "shard_runtime/device/device.h"

#include <string.h>

static const struct device_ops *const back_ends[] = { &device_cpu_ops };

enum fsdp_status device_open(struct device *device, const char *name, int local_rank, struct fsdp_err *err)
{
    *device = (struct device){ .local_rank = local_rank };
    if (local_rank < 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "device %s: local rank %d is below 0", name, local_rank);
    if (strcmp(name, "auto") == 0)
        name = device_cpu_ops.name; /* the only back end of this build; a plug-in found comes before it */
    if (strcmp(name, "cuda") == 0)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                         "device cuda: this build has no CUDA plug-in; use cpu or auto");
    for (size_t i = 0; i < sizeof back_ends / sizeof *back_ends; i++) {
        if (strcmp(back_ends[i]->name, name) != 0)
            continue;
        device->ops = back_ends[i];
        return device->ops->open(device, local_rank, err);
    }
    return fsdp_fail(err, FSDP_ERR_CONFIG, "device %s: not one of cpu, cuda, auto", name);
}

void device_close(struct device *device)
{
    if (device->ops == NULL)
        return;
    device->ops->close(device);
    *device = (struct device){ 0 };
}
