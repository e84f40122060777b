/*
 * Writes the weights of a checkpoint as safetensors files that other programs read: whole tensors, in one
 * file, or in several with an index. Tensors are copied in blocks, so none needs to fit the memory.
 */
#ifndef CKPT_EXPORT_H
#define CKPT_EXPORT_H

#include "shard_runtime/shardfile/contents.h"

/** Prefix of the names of the optimizer's state tensors, which are not exported. */
#define EXPORT_OPTIMIZER_PREFIX "optimizer."

struct export_options {
    const char *prefix;  /* before the name of each tensor; "": nothing */
    const char *config;  /* the text of config.json, for a directory; NULL: none is written */
    uint64_t most_bytes; /* the most bytes of tensors in a file, unless one tensor has more */
};

struct export_result {
    size_t n_files, n_tensors;
    uint64_t bytes; /* of tensors */
};

/**
 * Writes the tensors of `contents`, whose files are in `directory`, to `out`, which must not exist. If `out`
 * ends in ".safetensors", it is one file. Otherwise it is a directory with model.safetensors, or with
 * model-00001-of-0000N.safetensors and model.safetensors.index.json. `out` has its name once all of it is
 * written and synced; a failure leaves nothing.
 *   FSDP_ERR_CONFIG       `out` is there already
 *   FSDP_ERR_UNSUPPORTED  a tensor has a dtype that this library does not write
 *   FSDP_ERR_FORMAT, FSDP_ERR_IO, FSDP_ERR_NOMEM
 */
enum fsdp_status export_tensors(struct fsdp_io *io, const struct contents *contents, const char *directory,
                                const char *out, const struct export_options *options,
                                struct export_result *result, struct fsdp_err *err);

#endif
