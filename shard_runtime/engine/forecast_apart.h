/*
 * The part of a forecast for a device with memory of its own. It says where each class of memory is, and what
 * such a device needs in addition.
 */
#ifndef ENGINE_FORECAST_APART_H
#define ENGINE_FORECAST_APART_H

#include <fsdp/forecast.h>

#include "shard_runtime/engine/model.h"

/**
 * A device for planning only: it is called cuda, and its memory is not the host's. It has no other functions.
 */
extern const struct device_ops forecast_cuda_ops;

/**
 * Fill in forecast->apart. `model` must be planned and its memory measured; `optimizer` may be NULL.
 * `staged`: collectives move data through host memory.
 */
void forecast_apart(struct fsdp_forecast *forecast, struct fsdp_model *model,
                    const struct fsdp_optimizer_options *optimizer, bool staged, int ranks_per_host);

#endif
