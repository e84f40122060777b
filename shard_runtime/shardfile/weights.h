/*
 * The tensors of files that are no checkpoint of ours. A path may be:
 *   - a .safetensors file
 *   - a directory of them, as Hugging Face's libraries leave it; each file says what it holds
 *   - their index (model.safetensors.index.json): exactly the files that it names
 *   - the same of shards, as PyTorch's HuggingFaceStorageWriter saves them (DCP_SHARDING_INFO in each header)
 *   - a step directory of ours, which contents.h reads
 * The user named the path. Symbolic links on it, and the files of the directory, are followed: the cache of Hugging
 * Face's hub consists of links. Only inside a step directory of ours are links refused.
 */
#ifndef SHARDFILE_WEIGHTS_H
#define SHARDFILE_WEIGHTS_H

#include "shard_runtime/shardfile/contents.h"

/** A tensor whose type has no name in this tree is listed with this for its dtype: it can be named, not read. */
#define WEIGHTS_UNKNOWN_DTYPE FSDP_DTYPE_COUNT

/**
 * List what `path` holds. Data is not read. `directory` (IO_PATH_BYTES) receives where the files of the list are.
 *   FSDP_ERR_NOT_FOUND  there is none
 *   FSDP_ERR_FORMAT     damaged, shards that do not cover their tensor once, a tensor in two files, one that is not
 *                       where the index has it, or a file of a checkpoint without its manifest; the message names them
 */
enum fsdp_status weights_list(struct fsdp_io *io, const char *path, struct contents *out, char *directory,
                              struct fsdp_err *err);

#endif
