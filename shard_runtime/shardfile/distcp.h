/*
 * Lists the tensors of a checkpoint of torch.distributed.checkpoint: a directory with the file ".metadata"
 * and files "__0_0.distcp". The metadata is a Python pickle, which is read as data (pickle.h).
 */
#ifndef SHARDFILE_DISTCP_H
#define SHARDFILE_DISTCP_H

#include <stdbool.h>

#include "shard_runtime/shardfile/contents.h"

/** Is `directory` such a checkpoint? */
bool distcp_is(struct fsdp_io *io, const char *directory);

/**
 * Lists the tensors, without reading their elements, and proves that the chunks in the files cover each of
 * them exactly once. What is no tensor, such as a learning rate, is left out. The caller releases *out with
 * contents_free().
 *   FSDP_ERR_FORMAT       the metadata or a file is damaged, or names what is no part of a checkpoint
 *   FSDP_ERR_UNSUPPORTED  a tensor is stored in another way than row-major, or transformed
 *   FSDP_ERR_NOT_FOUND, FSDP_ERR_IO, FSDP_ERR_NOMEM
 */
enum fsdp_status distcp_list(struct fsdp_io *io, const char *directory, struct contents *out,
                             struct fsdp_err *err);

#endif
