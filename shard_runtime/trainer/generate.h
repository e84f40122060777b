/*
 * Writes text with a trained model: `fsdp-train --sample CHECKPOINT`. It runs as one process, a world of one.
 * The model is built from the job in the checkpoint's manifest.
 */
#ifndef TRAINER_GENERATE_H
#define TRAINER_GENERATE_H

#include <stdint.h>
#include <stdio.h>

#include <fsdp/context.h>
#include <fsdp/status.h>

#include "shard_runtime/trainer/options.h"

/**
 * Loads the checkpoint options->sample, and writes the prompt and its continuation to `out`, with a newline
 * at the end. If `out` is a terminal, control characters are shown as '?'.
 *   FSDP_ERR_NOT_FOUND    there is no such checkpoint
 *   FSDP_ERR_FORMAT       the checkpoint is damaged
 *   FSDP_ERR_UNSUPPORTED  the model does not write from left to right (model.causal false)
 */
enum fsdp_status generate(struct fsdp_context *context, const struct options *options, FILE *out,
                          struct fsdp_err *err);

/**
 * Chooses a class by its logit. At temperature 0 it is the class with the largest logit. Otherwise one of the
 * top_k largest classes is drawn (0: one of all), with probabilities softmax(logit / temperature). `u` in [0,
 * 1) is the random number for the draw. Among equal logits, the lower index comes first.
 */
uint32_t generate_choose(const float *logits, uint64_t n_classes, double temperature, uint64_t top_k,
                         double u);

#endif
