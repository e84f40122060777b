/*
 * Reads the index of a model that is stored in several files (model.safetensors.index.json). Hugging Face's
 * libraries and PyTorch's HuggingFaceStorageWriter write such an index. The index maps each tensor to its
 * file.
 */
#ifndef SHARDFILE_WEIGHTS_INDEX_H
#define SHARDFILE_WEIGHTS_INDEX_H

#include <stddef.h>

#include "shard_runtime/shardfile/io.h"

enum { WEIGHTS_INDEX_MAX_BYTES = 100000000 }; /* the same limit as for a safetensors header */

struct weights_index_entry {
    const char *tensor, *file;
};

struct weights_index {
    struct weights_index_entry *entries; /* sorted by tensor, each tensor once; the file names are plain */
    size_t n_entries;
    char *text; /* memory that the names point into */
};

/** Reads and parses the index file that is open as `fd`. `path` is used in messages only. */
enum fsdp_status weights_index_read(struct weights_index *out, struct fsdp_io *io, int fd,
                                    uint64_t size_bytes, const char *path, struct fsdp_err *err);

/** Frees what parsing allocated and sets *index to zero. */
void weights_index_free(struct weights_index *index);

#endif
