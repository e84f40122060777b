/*
 * One safetensors file: 8 bytes of header length (little-endian), a JSON header, the tensors back to back.
 * https://github.com/huggingface/safetensors#format; shards carry DCP_SHARDING_INFO in the header, where each
 * one starts in its global tensor, as PyTorch's HuggingFaceStorageReader reads it, and beside it the global
 * shape, which that reader ignores.
 *
 * Writing: the header is laid out first and padded with spaces so that data starts at a multiple of
 * `alignment`; its bytes go to the file last, so that a file cut short says "no header" (length 0) to every
 * reader. Reading trusts nothing: all limits and checks of the format are made before a value is used.
 */
#ifndef SHARDFILE_SAFETENSORS_H
#define SHARDFILE_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/dtype.h>
#include <fsdp/status.h>

#include "shard_runtime/shardfile/io.h"
#include "shard_runtime/shardfile/json.h"
#include "shard_runtime/shardfile/rows_store.h"

enum {
    SAFETENSORS_MAX_DIMS = 8,
    SAFETENSORS_MAX_HEADER_BYTES = 100000000, /* the reference reader's limit */
    SAFETENSORS_ALIGNMENT = 4096,             /* of the data in our own files: a page, a block */
};

struct safetensors_tensor {
    const char *name;
    enum fsdp_dtype dtype;  /* FSDP_DTYPE_COUNT: a type of the format that this tree has no name for */
    const char *dtype_name; /* as in the header; reading fills it, writing takes `dtype` */
    size_t n_dims;
    uint64_t shape[SAFETENSORS_MAX_DIMS]; /* of what is in this file */
    uint64_t begin, end;                  /* bytes, from the start of the data */
    bool has_offsets;                     /* a shard: it starts at offsets[] of the global tensor */
    uint64_t offsets[SAFETENSORS_MAX_DIMS];
    bool has_global_shape;
    uint64_t global_shape[SAFETENSORS_MAX_DIMS];
    const void *data;               /* writing: (end - begin) bytes, borrowed until the write returns */
    const struct rows_store *store; /* writing, in place of data: tensor `in_store` of it; or NULL */
    size_t in_store;
};

struct safetensors_metadata {
    const char *key, *value;
};

/* --- writing --- */

/**
 * Lay `tensors` out in the order given (begin and end are filled) and build the 8 + N first bytes in `out`
 * (zero-initialised, json_text_free() it). With offsets on any tensor all must have them, and
 * DCP_SHARDING_INFO and DCP_VERSION are written; `format` is always "pt"; `metadata` follows them.
 *   alignment  power of two that 8 + N is padded to: 8 as the reference writer, 4096 for our own files
 *   size_bytes NULL, or receives the size of the whole file
 * FSDP_ERR_ARG: sizes that do not fit, too many dimensions, no name.
 */
enum fsdp_status safetensors_build_header(struct safetensors_tensor *tensors, size_t n_tensors,
                                          const struct safetensors_metadata *metadata, size_t n_metadata,
                                          size_t alignment, struct json_text *out, uint64_t *size_bytes,
                                          struct fsdp_err *err);

struct safetensors_written {
    uint64_t size_bytes;
    uint64_t checksum[2]; /* XXH3-128 of the whole file, computed from memory: low, high */
};

/**
 * Write and sync `path`, replacing a file of that name that an earlier attempt left. Large files go around
 * the page cache where the file system takes O_DIRECT. Memory: the header and one buffer of 4 MiB. On failure
 * the file is removed.
 */
enum fsdp_status safetensors_write(struct fsdp_io *io, const char *path, struct safetensors_tensor *tensors,
                                   size_t n_tensors, const struct safetensors_metadata *metadata,
                                   size_t n_metadata, size_t alignment, struct safetensors_written *written,
                                   struct fsdp_err *err);

/* --- reading --- */

struct safetensors_header {
    struct safetensors_tensor *tensors; /* in order of their data */
    size_t n_tensors;
    struct safetensors_metadata *metadata; /* by key; without DCP_SHARDING_INFO, which is in the tensors */
    size_t n_metadata;
    uint64_t data_start; /* 8 + N */
    uint64_t size_bytes; /* of the file */
    char *text;          /* names and values point into it */
};

/**
 * Parse a header's N bytes of JSON; the file has `size_bytes` in all. Takes over `text` (malloc'ed), also on
 * failure. FSDP_ERR_FORMAT says what is wrong and where.
 */
enum fsdp_status safetensors_parse(struct safetensors_header *out, char *text, size_t length,
                                   uint64_t size_bytes, struct fsdp_err *err);

/**
 * Open `path`, which must be no symbolic link, read and check its header. *fd: NULL to close the file again, or receives it (the caller's).
 */
enum fsdp_status safetensors_open(struct fsdp_io *io, const char *path, struct safetensors_header *out,
                                  int *fd, struct fsdp_err *err);

/** Read and check the header of the file that is open as `fd`; `path` is for messages. */
enum fsdp_status safetensors_read(struct fsdp_io *io, int fd, const char *path, uint64_t size_bytes,
                                  struct safetensors_header *out, struct fsdp_err *err);

/** The tensor called `name`, or NULL. */
const struct safetensors_tensor *safetensors_find(const struct safetensors_header *header, const char *name);
/** The metadata value of `key`, or NULL. */
const char *safetensors_metadata_get(const struct safetensors_header *header, const char *key);

void safetensors_free(struct safetensors_header *header);

#endif
