/*
 * Parameters that the user gathered by hand between steps (<fsdp/unshard.h>), and the programs that use them
 * instead of gathering again.
 */
#ifndef ENGINE_UNSHARD_H
#define ENGINE_UNSHARD_H

#include <fsdp/unshard.h>

#include "shard_runtime/engine/model.h"

/** Make model->unsharded: a handle for each group of the layout. FSDP_ERR_NOMEM: no memory. */
enum fsdp_status unshard_create(struct fsdp_model *model, struct fsdp_err *err);
void unshard_destroy(struct fsdp_model *model);

/**
 * Wait for gathers that are under way, before any other collective and before a program takes their result.
 * Gathers of other models of the context are waited for too; their failure is reported when their own caller
 * waits for them.
 */
enum fsdp_status unshard_settle(struct fsdp_model *model, struct fsdp_err *err);
/** Wait for the gathers that are under way in any model of the context. Reports no failure. */
void unshard_settle_all(struct fsdp_context *context);
/** Parameters are about to change: drop all gathered copies of them. */
void unshard_drop_all(struct fsdp_model *model);

/** The whole parameters of `group` that were gathered by hand; NULL: none were, or a program took them. */
const void *unshard_whole(const struct fsdp_model *model, int group);
/**
 * Call it when a program has copied these parameters: they are not used again. unshard_give_back() frees
 * their memory when the program is done.
 */
void unshard_take(struct fsdp_model *model, int group);
void unshard_give_back(struct fsdp_model *model);

#endif
