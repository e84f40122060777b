/*
 * Lists the tensors of weight files that other programs wrote. A path may be:
 *   - a .safetensors file
 *   - a directory of such files, as Hugging Face's libraries write it; each file's header lists its tensors
 *   - an index (model.safetensors.index.json): exactly the files that it names are read
 *   - any of these with shards, as PyTorch's HuggingFaceStorageWriter saves them (DCP_SHARDING_INFO in each
 *     header)
 *   - a directory of torch.distributed.checkpoint (.metadata and *.distcp), which distcp.h reads
 *   - a step directory of this project, which contents.h reads
 *
 * The user named the path, so symbolic links are followed, both in the path and for the files in the
 * directory. The cache of Hugging Face's hub consists of links. Only the files inside a step directory of
 * this project must not be links.
 */
#ifndef SHARDFILE_WEIGHTS_H
#define SHARDFILE_WEIGHTS_H

#include "shard_runtime/shardfile/contents.h"

/**
 * The dtype of a listed tensor whose type this library does not support. Such a tensor can be listed, but not
 * read.
 */
#define WEIGHTS_UNKNOWN_DTYPE FSDP_DTYPE_COUNT

/**
 * Lists the tensors in the files at `path`, without reading their data.
 *
 *   *out       receives the list; the caller releases it with contents_free()
 *   directory  (IO_PATH_BYTES) receives the directory that contains the listed files
 *
 *   FSDP_ERR_NOT_FOUND  there is no such file or directory, or no weight file in the directory
 *   FSDP_ERR_FORMAT     one of these; the message names the file or the tensor. A file is damaged. Shards do
 *                       not cover their tensor exactly once. A tensor is in two files, or not in the file
 *                       that the index names. A file belongs to a checkpoint whose manifest is missing
 */
enum fsdp_status weights_list(struct fsdp_io *io, const char *path, struct contents *out, char *directory,
                              struct fsdp_err *err);

#endif
