/*
 * What a device that times its work (device_ops.begin_span) is told: the entries of training's plan with the
 * bytes that the plan says they move, the norm of gradients and the optimizer. Of other devices one flag is
 * read and nothing is done.
 */
#ifndef ENGINE_TIMING_H
#define ENGINE_TIMING_H

#include <stdint.h>

#include "shard_runtime/engine/context.h"
#include "shard_runtime/plan/plan.h"

/** A step of training begins. */
void timing_begin_step(struct fsdp_context *context);

/** The entry begins on its stream; false: it is not timed. */
bool timing_begin_entry(struct fsdp_context *context, const struct plan *plan,
                        const struct plan_entry *entry);

/** The same for what no plan has, on the stream that computes. */
bool timing_begin(struct fsdp_context *context, const char *name, uint64_t size_bytes);

/** Only where it was begun. */
void timing_end(struct fsdp_context *context, enum plan_stream stream);

#endif
