/*
 * Lists the tensors of a checkpoint of torch.distributed.checkpoint: a directory with the file ".metadata"
 * and files "__0_0.distcp". The metadata is a Python pickle, which is read as data (pickle.h).
 */
#ifndef SHARDFILE_DISTCP_H
#define SHARDFILE_DISTCP_H

#include <stdbool.h>

#include "shard_runtime/shardfile/contents.h"

/** Is `directory` a checkpoint of torch.distributed.checkpoint? */
bool distcp_is(struct fsdp_io *io, const char *directory);

/**
 * Lists the tensors without reading their elements. It proves that the chunks in the files cover each tensor
 * exactly once. Values that are no tensors, such as a learning rate, are left out. The caller releases *out
 * with contents_free().
 *   FSDP_ERR_FORMAT       the metadata or a file is damaged, or contains a name that no checkpoint has
 *   FSDP_ERR_UNSUPPORTED  a tensor is not stored row-major, or is stored transformed
 *   FSDP_ERR_NOT_FOUND, FSDP_ERR_IO, FSDP_ERR_NOMEM
 */
enum fsdp_status distcp_list(struct fsdp_io *io, const char *directory, struct contents *out,
                             struct fsdp_err *err);

#endif
