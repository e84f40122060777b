/*
 * What step.c and step_agree.c share: agreements of all ranks of a model in the course of a step. All are
 * collective over these ranks, and each rank passes in the status that it has so far, with its words in
 * `err`. If one rank passes a failure, all ranks get it.
 */
#ifndef ENGINE_STEP_IMPL_H
#define ENGINE_STEP_IMPL_H

#include "shard_runtime/engine/model.h"

/** Backwards in each run of the program. */
static inline size_t step_backwards(const struct fsdp_model *model)
{
    return model->options.backwards == FSDP_BACKWARD_OF_EACH ? model_forwards(model) : 1;
}

/**
 * Before forwards: wait for gathers by hand, follow what the setters said, check the n_micro batches, and
 * compare plans. *n_targets is the number of targets of these batches over all ranks. A rank whose call or
 * data is unusable takes part too, so that all ranks refuse the step together.
 */
enum fsdp_status step_agree_on_targets(struct fsdp_model *model, const struct fsdp_batch *micro,
                                       size_t n_micro, enum fsdp_status own, uint64_t *n_targets,
                                       struct fsdp_err *err);

/**
 * After a call: agree on how it ended, and add up `sums` (n) over the ranks that compute on samples of their
 * own. After the last backward of a step (`last`) the ranks also find out whether all gradients are finite;
 * that is no failure.
 */
enum fsdp_status step_agree_on_end(struct fsdp_model *model, bool last, double *sums, size_t n,
                                   enum fsdp_status status, struct fsdp_err *err);

/**
 * As step_agree_on_end(), with the loss: `sum` is this rank's part of it, n_targets the number of targets
 * over all ranks. Fills in *loss.
 */
enum fsdp_status step_agree_on_loss(struct fsdp_model *model, bool last, double sum, uint64_t n_targets,
                                    struct fsdp_loss *loss, enum fsdp_status status, struct fsdp_err *err);

#endif
