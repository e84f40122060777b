/*
 * Stochastic rounding of shards to bfloat16 before they are gathered. The draw of an element depends on the
 * run's seed, the parameter's name and its number of updates, and the element's place in the whole. So no
 * rank, way of sharding or restart changes it, and all gathers of a step give the same bits.
 */
#ifndef SHARD_ROUNDING_H
#define SHARD_ROUNDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shard_runtime/device/device.h"
#include "shard_runtime/plan/plan.h"

/** What draws depend on in addition to parameter and element. */
struct rounding_draws {
    uint64_t seed; /* of the run */
    uint64_t step; /* updates that the parameters have had */
};

/* Tensors that are handed to the device at a time. */
enum { ROUNDING_MAX = 512 };

/** Roundings that are collected for the device. The caller's storage. */
struct rounding {
    struct device *device;
    struct device_stream *stream;
    struct rounding_draws draws;
    size_t n;
    struct device_rounding at[ROUNDING_MAX];
};

/** Returns whether the group's policy asks for stochastic rounding. */
bool rounding_is_on(const struct plan_group *group);

/** Begins a list of roundings that will run on `stream`. */
void rounding_begin(struct rounding *rounding, const struct rounding_draws *draws, struct device *device,
                    struct device_stream *stream);
/**
 * Adds `rank`'s shard of a parameter that is cut over W ranks. `shard` and `to` are (chunk_elems); the
 * padding of `to` is zeroed. Both must stay until the stream has passed rounding_end().
 */
void rounding_add(struct rounding *rounding, const struct plan_param *param, int W, int rank,
                  const float *shard, uint16_t *to);
/** Queues everything that was added. */
void rounding_end(struct rounding *rounding);

#endif
