/*
 * Exports the whole model for other programs, to <run>/export/step-<8 digits>/. The files are
 * model.safetensors (every parameter in float32) and config.json. An export of kind gpt2 can be opened by
 * from_pretrained() of the library transformers. For kind transformer, config.json holds the keys of the
 * job's model section; no other program knows this kind. An export directory with this name is complete.
 */
#ifndef TRAINER_EXPORT_H
#define TRAINER_EXPORT_H

#include "shard_runtime/core/json.h"
#include "shard_runtime/trainer/trainer.h"

/**
 * Exports the model as it is after trainer->step. Collective. Rank 0 writes the files; every rank needs
 * memory for the largest parameter. If there already is an export of this step, it is left unchanged.
 * FSDP_ERR_IO: the disk refused a write. Only a hidden directory is then left, which the next attempt
 * empties.
 */
enum fsdp_status export_write(struct trainer *trainer, struct fsdp_err *err);

#endif
