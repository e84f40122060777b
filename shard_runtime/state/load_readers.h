/* The ranks of a context as the readers of a checkpoint (checkpoint/load.h). */
#ifndef STATE_LOAD_READERS_H
#define STATE_LOAD_READERS_H

#include "shard_runtime/checkpoint/load.h"
#include "shard_runtime/engine/context.h"

/** Returns the readers; `context` is borrowed. */
struct checkpoint_readers load_readers(struct fsdp_context *context);

#endif
