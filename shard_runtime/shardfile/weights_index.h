/*
 * The index of a model in several files, as Hugging Face's libraries and PyTorch's HuggingFaceStorageWriter write it
 * (model.safetensors.index.json): which tensor is in which file.
 */
#ifndef SHARDFILE_WEIGHTS_INDEX_H
#define SHARDFILE_WEIGHTS_INDEX_H

#include <stddef.h>

#include "shard_runtime/shardfile/io.h"

enum { WEIGHTS_INDEX_MAX_BYTES = 100000000 }; /* as a header of safetensors */

struct weights_index_entry {
    const char *tensor, *file;
};

struct weights_index {
    struct weights_index_entry *entries; /* by tensor, each of them once; files are plain names */
    size_t n_entries;
    char *text; /* names point into it */
};

/**
 * Parse `length` bytes of JSON, {"weight_map": {"<tensor>": "<file>", ...}, ...}; other members are skipped. Takes over
 * `text` (malloc'ed), also on failure. FSDP_ERR_FORMAT says what is wrong and where.
 */
enum fsdp_status weights_index_parse(struct weights_index *out, char *text, size_t length,
                                     struct fsdp_err *err);

/** Read and parse the index that is open as `fd`; `path` is for messages. */
enum fsdp_status weights_index_read(struct weights_index *out, struct fsdp_io *io, int fd,
                                    uint64_t size_bytes, const char *path, struct fsdp_err *err);

void weights_index_free(struct weights_index *index);

#endif
