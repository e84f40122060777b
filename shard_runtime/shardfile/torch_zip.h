/*
 * Finds the bytes of a tensor in a zip archive that torch.save() wrote, without compression, as a part of a
 * file. A pickle in the archive describes the tensor; it is read as data (pickle.h).
 */
#ifndef SHARDFILE_TORCH_ZIP_H
#define SHARDFILE_TORCH_ZIP_H

#include <fsdp/dtype.h>

#include "shard_runtime/shardfile/io.h"
#include "shard_runtime/shardfile/manifest.h"

struct torch_tensor {
    enum fsdp_dtype dtype;
    size_t n_dims;
    uint64_t shape[MANIFEST_MAX_DIMS];
    uint64_t offset; /* offset in the file of the first element; the others follow row-major */
};

/**
 * Describes the only tensor of the archive at `offset` of the file, which has `size_bytes` bytes. Positions
 * in the archive are checked against its size.
 *   FSDP_ERR_FORMAT       it is not such an archive; the message has `path` and the reason
 *   FSDP_ERR_UNSUPPORTED  the elements are not stored row-major, or have a type that is not supported
 *   FSDP_ERR_IO, FSDP_ERR_NOMEM
 */
enum fsdp_status torch_zip_find(struct fsdp_io *io, int fd, const char *path, uint64_t offset,
                                uint64_t size_bytes, struct torch_tensor *out, struct fsdp_err *err);

#endif
