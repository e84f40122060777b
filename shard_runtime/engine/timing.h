/*
 * Names the work of a step for a device that times it (device_ops.begin_span). Named are the entries of
 * training's plan with the bytes that they move at least, the norm of gradients, and the optimizer. For other
 * devices these functions do nothing.
 */
#ifndef ENGINE_TIMING_H
#define ENGINE_TIMING_H

#include <stdint.h>

#include "shard_runtime/engine/context.h"
#include "shard_runtime/plan/plan.h"

/** Note that a step of training begins. */
void timing_begin_step(struct fsdp_context *context);

/**
 * Begin to time the entry on its stream. Returns false if it is not timed; then timing_end() must not be
 * called.
 */
bool timing_begin_entry(struct fsdp_context *context, const struct plan *plan,
                        const struct plan_entry *entry);

/**
 * Begin to time work that is in no plan, on the compute stream. Returns false if it is not timed; then
 * timing_end() must not be called.
 */
bool timing_begin(struct fsdp_context *context, const char *name, uint64_t size_bytes);

/** End what was begun last on the stream. */
void timing_end(struct fsdp_context *context, enum plan_stream stream);

#endif
