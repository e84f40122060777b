/*
 * The whole model for other programs: <run>/export/step-<8 digits>/ with model.safetensors (every parameter, float32)
 * and config.json. Of kind gpt2 it is what transformers' from_pretrained() opens; of kind transformer, which nobody
 * else has, config.json holds the keys of the job's model section. Complete once it has this name.
 */
#ifndef TRAINER_EXPORT_H
#define TRAINER_EXPORT_H

#include "shard_runtime/shardfile/json.h"
#include "shard_runtime/trainer/trainer.h"

/**
 * Export the model as it stands after trainer->step; collective. Rank 0 writes; every rank needs room for the largest
 * parameter. An export of this step that is there already is left alone. FSDP_ERR_IO: a disk refused, and nothing of it
 * is left but a hidden directory that the next attempt empties.
 */
enum fsdp_status export_write(struct trainer *trainer, struct fsdp_err *err);

/** What config.json says of `job`'s model. Part of export_write(). */
void export_config(const struct job *job, struct json_text *out);

#endif
