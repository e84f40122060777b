/*
 * unshard() and reshard() by hand: a unit's parameters are gathered between steps, to be read, or so that its next forward does
 * not have to wait for them. The plan decides when parameters are whole while a step runs; these say it of the time between.
 *
 * What is gathered takes memory beside the plan's: the whole parameters of the unit, and while it is under way the gathered rows.
 * The next forward of the unit, in training or evaluation, takes it in place of its first all-gather; then, or by
 * fsdp_module_reshard(), it is given back. An optimizer step, and whatever else of the library changes parameters, drops it: a
 * copy is never older than the parameters. (Who writes through fsdp_model_state() calls fsdp_module_reshard().)
 *
 * Thread and collectives: as of a step; every rank of the unit's mesh unshards the same units in the same order.
 */
#ifndef FSDP_UNSHARD_H
#define FSDP_UNSHARD_H

#include <stdbool.h>

#include <fsdp/model.h>

FSDP_BEGIN_DECLS

struct fsdp_unshard_handle;

/**
 * Gather the parameters of `unit`, of the model's tree; nothing happens if they are already. With async_op the call may return
 * while a second thread gathers, where the model has one (fsdp_model_options.overlap). Until it is waited for, collectives of the
 * caller's own are refused (FSDP_ERR_ARG); the library's wait by themselves, those of other models of the context included.
 * *handle (NULL: not wanted) is the model's.
 *   FSDP_ERR_ARG   no unit of the model's tree, or a forward is waiting for its backward
 *   FSDP_ERR_NOMEM no room for it
 * After an error of one rank alone it is gathered on no rank. All ranks of the model are told, here or where they wait for it.
 */
FSDP_API enum fsdp_status fsdp_module_unshard(struct fsdp_model *model, const struct fsdp_module *unit,
                                              bool async_op, struct fsdp_unshard_handle **handle,
                                              struct fsdp_err *err);
/** Until the parameters are there; at once if they are, or were resharded meanwhile, or for NULL. */
FSDP_API enum fsdp_status fsdp_unshard_handle_wait(struct fsdp_unshard_handle *handle, struct fsdp_err *err);

/** Give back what fsdp_module_unshard() gathered, if anything. No communication. If `unit` is no unit of the model's tree, the
 * next step returns FSDP_ERR_ARG, as after a setter (<fsdp/fully_shard.h>). */
FSDP_API void fsdp_module_reshard(struct fsdp_model *model, const struct fsdp_module *unit);

/**
 * The whole of a parameter of an unsharded unit (its part, where tensor parallelism splits it), of its unit's param_dtype, in
 * the device's memory, until it is resharded.
 *   FSDP_ERR_ARG  no such parameter, or its unit is not unsharded
 */
FSDP_API enum fsdp_status fsdp_parameter_unsharded(struct fsdp_model *model, const char *name,
                                                   const void **data, enum fsdp_dtype *dtype,
                                                   struct fsdp_err *err);

FSDP_END_DECLS

#endif
