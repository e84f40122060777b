/*
 * Stochastic rounding of shards on their way into a gather. The draw of an element follows from the run's seed, the updates
 * that its parameter has had, the parameter's name and the element's place in the whole parameter: no rank, no way of
 * sharding and no restart changes it, and all gathers of a step give the same bits.
 */
#ifndef SHARD_ROUNDING_H
#define SHARD_ROUNDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shard_runtime/device/device.h"
#include "shard_runtime/plan/plan.h"

/** What draws depend on beside parameter and element. */
struct rounding_draws {
    uint64_t seed; /* of the run */
    uint64_t step; /* updates that the parameters have had */
};

/** Tensors on their way, as many at once as the device takes in one piece of work. */
enum { ROUNDING_MAX = 512 };

struct rounding {
    struct device *device;
    struct device_stream *stream;
    struct rounding_draws draws;
    size_t n;
    struct device_rounding at[ROUNDING_MAX];
};

/** Does the group's policy say so? */
bool rounding_is_on(const struct plan_group *group);

void rounding_begin(struct rounding *rounding, const struct rounding_draws *draws, struct device *device,
                    struct device_stream *stream);
/** `rank`'s shard of a parameter cut over W, (chunk_elems) both; what is padding becomes zero. */
void rounding_add(struct rounding *rounding, const struct plan_param *param, int W, int rank,
                  const float *shard, uint16_t *to);
/** Whatever was added is queued on the stream. */
void rounding_end(struct rounding *rounding);

#endif
