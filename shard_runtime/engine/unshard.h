/*
 * Parameters that were gathered by hand between steps (<fsdp/unshard.h>), for the programs that take them.
 */
#ifndef ENGINE_UNSHARD_H
#define ENGINE_UNSHARD_H

#include <fsdp/unshard.h>

#include "shard_runtime/engine/model.h"

/** One for each group of the layout. */
enum fsdp_status unshard_create(struct fsdp_model *model, struct fsdp_err *err);
void unshard_destroy(struct fsdp_model *model);

/** Wait for gathers under way: before any other collective, and before what they are taken by. Those of another model of the
 * context, too: if they fail, that is told where their caller waits for them. */
enum fsdp_status unshard_settle(struct fsdp_model *model, struct fsdp_err *err);
/** The same of whichever model gathers, told where its caller waits for it. */
void unshard_settle_all(struct fsdp_context *context);
/** Parameters change: what was gathered of them is no longer theirs. */
void unshard_drop_all(struct fsdp_model *model);

/** The whole parameters of `group`, gathered by hand; NULL: they were not, or were taken. */
const void *unshard_whole(const struct fsdp_model *model, int group);
/** A program has copied them; they are given back when it is done, by unshard_give_back(). */
void unshard_take(struct fsdp_model *model, int group);
void unshard_give_back(struct fsdp_model *model);

#endif
