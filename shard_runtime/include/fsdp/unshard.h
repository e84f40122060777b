/*
 * unshard() and reshard() gather a unit's parameters by hand between steps. A program does so to read them,
 * or so that the unit's next forward need not wait for them. While a step runs, the plan decides when
 * parameters are gathered.
 *
 * Memory: the whole parameters of the unit, in addition to the plan's memory, and the gathered rows while the
 * gather is in progress.
 *
 * How long they stay: until fsdp_module_reshard(), or until the unit's next forward, in training or
 * evaluation, which uses them instead of its first all-gather. An optimizer step, and every other library
 * call that changes parameters, drops them, so that a gathered copy is never older than the parameters. A
 * program that writes through fsdp_model_state() must call fsdp_module_reshard() itself.
 *
 * Thread and order are those of a step: every rank of the unit's mesh unshards the same units in the same
 * order.
 */
#ifndef FSDP_UNSHARD_H
#define FSDP_UNSHARD_H

#include <stdbool.h>

#include <fsdp/model.h>

FSDP_BEGIN_DECLS

struct fsdp_unshard_handle;

/**
 * Gather the parameters of `unit`; collective over the unit's mesh. If they are gathered already, do nothing.
 *
 *   unit      a unit of the model's tree
 *   async_op  true: the call may return while the model's second thread gathers, if it has one
 *             (fsdp_model_options.overlap). Until the gather has been waited for, the caller's own
 *             collectives are refused (FSDP_ERR_ARG). The library's own calls wait for it, including those of
 *             other models of the context
 *   *handle   for fsdp_unshard_handle_wait(), owned by the model; handle NULL: not wanted
 *
 *   FSDP_ERR_ARG    `unit` is no unit of the model's tree, or a forward is waiting for its backward
 *   FSDP_ERR_NOMEM  there is no room for the gathered parameters
 * If one rank alone fails, no rank has the parameters. All ranks of the model learn of it in this call, or in
 * the call that waits.
 */
FSDP_API enum fsdp_status fsdp_module_unshard(struct fsdp_model *model, const struct fsdp_module *unit,
                                              bool async_op, struct fsdp_unshard_handle **handle,
                                              struct fsdp_err *err);

/**
 * Wait until the parameters are gathered. Return at once if they are, if they were resharded meanwhile, or if
 * `handle` is NULL. Errors are those of fsdp_module_unshard().
 */
FSDP_API enum fsdp_status fsdp_unshard_handle_wait(struct fsdp_unshard_handle *handle, struct fsdp_err *err);

/**
 * Free what fsdp_module_unshard() gathered, if anything, without communication. If `unit` is no unit of the
 * model's tree, the next step returns FSDP_ERR_ARG, as after a setter (<fsdp/fully_shard.h>).
 */
FSDP_API void fsdp_module_reshard(struct fsdp_model *model, const struct fsdp_module *unit);

/**
 * Look up a parameter of an unsharded unit.
 *
 *   *data   all of the parameter, in the device's memory; if tensor parallelism splits it, all of this rank's
 *           part. Owned by the model and valid until the unit is resharded
 *   *dtype  the unit's param_dtype
 *   FSDP_ERR_ARG  there is no such parameter, or its unit is not unsharded
 */
FSDP_API enum fsdp_status fsdp_parameter_unsharded(struct fsdp_model *model, const char *name,
                                                   const void **data, enum fsdp_dtype *dtype,
                                                   struct fsdp_err *err);

FSDP_END_DECLS

#endif
