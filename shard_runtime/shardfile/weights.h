/*
 * The whole tensors of files that are no checkpoint of ours: one .safetensors file, or a directory of them as Hugging
 * Face's libraries leave it (the index beside them is not needed: each file says what it holds). Checkpoints of ours
 * are read by contents.h; both give the same kind of list.
 */
#ifndef SHARDFILE_WEIGHTS_H
#define SHARDFILE_WEIGHTS_H

#include "shard_runtime/shardfile/contents.h"

/** A tensor whose type has no name in this tree is listed with this for its dtype: it can be named, not read. */
#define WEIGHTS_UNKNOWN_DTYPE FSDP_DTYPE_COUNT

/**
 * List what `path` holds: a file, a directory of files, or a step directory of ours (one with a manifest.json). Data
 * is not read. `directory` (IO_PATH_BYTES) receives where the files of the list are.
 *   FSDP_ERR_NOT_FOUND  there is none
 *   FSDP_ERR_FORMAT     damaged, a shard of a tensor, or a tensor in two files; the message names them
 */
enum fsdp_status weights_list(struct fsdp_io *io, const char *path, struct contents *out, char *directory,
                              struct fsdp_err *err);

#endif
