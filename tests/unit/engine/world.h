/*
 * A world inside one process: each rank is a thread with a context of its own, and collectives meet at a
 * barrier. So every world size can be tried anywhere, under the sanitizers too.
 */
#ifndef TEST_ENGINE_WORLD_H
#define TEST_ENGINE_WORLD_H

#include <fsdp/fsdp.h>

#include "tests/unit/engine/tiny.h"

typedef void (*world_body)(struct fsdp_context *context, void *user);

/** Run `body` as every rank of a world of `W`, on the reference numerics with one thread each. */
void world_run(int W, world_body body, void *user);

/** The same on the numerics row `numerics`, as fsdp_context_options names it. */
void world_run_on(int W, const char *numerics, world_body body, void *user);

/** Destroy an optimizer (NULL: there is none), its model and the model's tree. */
void world_drop(struct fsdp_optimizer *optimizer, struct fsdp_model *model, struct fsdp_module *root);

#endif
