/*
 * The part of a forecast that is of a device with memory of its own: where each class of memory is, and what such a device
 * needs beside them.
 */
#ifndef ENGINE_FORECAST_APART_H
#define ENGINE_FORECAST_APART_H

#include <fsdp/forecast.h>

#include "shard_runtime/engine/model.h"

/** A device as plans need one: it is called cuda, its memory is not the host's, and nothing else of it is there. */
extern const struct device_ops forecast_cuda_ops;

/** Fill in forecast->apart. `model` is planned, its memory measured; `optimizer` may be NULL. */
void forecast_apart(struct fsdp_forecast *forecast, struct fsdp_model *model,
                    const struct fsdp_optimizer_options *optimizer, bool staged, int ranks_per_host);

#endif
