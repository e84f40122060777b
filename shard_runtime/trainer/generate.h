/*
 * Write text with a trained model: `fsdp-train --sample CHECKPOINT`. One process, a world of one; the model
 * is built from the job that the checkpoint's manifest holds.
 */
#ifndef TRAINER_GENERATE_H
#define TRAINER_GENERATE_H

#include <stdint.h>
#include <stdio.h>

#include <fsdp/context.h>
#include <fsdp/status.h>

#include "shard_runtime/trainer/options.h"

/**
 * Load options->sample and write prompt and continuation to `out`, ending in a newline. On a terminal bytes
 * that it would obey are shown as '?'. FSDP_ERR_NOT_FOUND    no checkpoint there FSDP_ERR_FORMAT       a
 * damaged one FSDP_ERR_UNSUPPORTED  a model that does not write from left to right (model.causal false)
 */
enum fsdp_status generate(struct fsdp_context *context, const struct options *options, FILE *out,
                          struct fsdp_err *err);

/**
 * Choose a class by its logit: the largest at temperature 0, else one of the top_k largest (0: of all) with
 * the softmax of logit / temperature, where `u` in [0, 1) decides. Ties go to the lower index.
 */
uint32_t generate_choose(const float *logits, uint64_t n_classes, double temperature, uint64_t top_k,
                         double u);

#endif
