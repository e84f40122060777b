/*
 * Reads and writes one safetensors file: 8 bytes of header length (little-endian), a JSON header, and the
 * tensors' data without gaps. The format is described at https://github.com/huggingface/safetensors#format.
 *
 * A file of shards has DCP_SHARDING_INFO in its header. It gives the start of each shard in its global
 * tensor, as PyTorch's HuggingFaceStorageReader expects it. We add the global shape, which that reader
 * ignores.
 *
 * Writing: the function first builds the header, padded with spaces so that the data starts at a multiple of
 * `alignment`. It writes the header's bytes to the file last. So every reader sees a header length of 0 in a
 * file that was cut short. Reading trusts nothing: it checks all limits of the format before it uses a value.
 */
#ifndef SHARDFILE_SAFETENSORS_H
#define SHARDFILE_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/dtype.h>
#include <fsdp/status.h>

#include "shard_runtime/core/json.h"
#include "shard_runtime/shardfile/io.h"
#include "shard_runtime/shardfile/rows_store.h"

enum {
    SAFETENSORS_MAX_DIMS = 8,
    SAFETENSORS_MAX_HEADER_BYTES = 100000000, /* limit of the reference reader */
    /* alignment of the data in our own files: a page, a disk block */
    SAFETENSORS_ALIGNMENT = 4096,
};

struct safetensors_tensor {
    const char *name;
    enum fsdp_dtype dtype;  /* FSDP_DTYPE_COUNT: a type of the format that this library does not support */
    const char *dtype_name; /* name in the header; set by reading, ignored by writing */
    size_t n_dims;
    uint64_t shape[SAFETENSORS_MAX_DIMS]; /* shape of the part in this file */
    uint64_t begin, end;                  /* byte range, from the start of the data */
    /* true for a shard, which starts at offsets[] of the global tensor */
    bool has_offsets;
    uint64_t offsets[SAFETENSORS_MAX_DIMS];
    bool has_global_shape;
    uint64_t global_shape[SAFETENSORS_MAX_DIMS];
    const void *data;               /* writing: (end - begin) bytes, borrowed until the write returns */
    const struct rows_store *store; /* writing, instead of data: tensor `in_store` of this store; or NULL */
    size_t in_store;
};

struct safetensors_metadata {
    const char *key, *value;
};

/* Writing */

/**
 * Places `tensors` in the given order, setting `begin` and `end` of each, and builds the file's first 8 + N
 * bytes in `out`. `out` must be zero-initialised; the caller releases it with json_text_free(). If one tensor
 * has offsets, all must have them; then the header gets DCP_SHARDING_INFO and DCP_VERSION. The metadata
 * always contains `format` = "pt", then the entries of `metadata`.
 *   alignment   power of two to which 8 + N is padded: 8 as in the reference writer, 4096 for our own files
 *   size_bytes  NULL, or receives the size of the whole file
 *   FSDP_ERR_ARG  a size does not fit 64 bits, or a tensor has too many dimensions, no name, or one that is
 *                 not UTF-8
 *   FSDP_ERR_NOMEM
 */
enum fsdp_status safetensors_build_header(struct safetensors_tensor *tensors, size_t n_tensors,
                                          const struct safetensors_metadata *metadata, size_t n_metadata,
                                          size_t alignment, struct json_text *out, uint64_t *size_bytes,
                                          struct fsdp_err *err);

/* The size and checksum of the file that safetensors_write() wrote. */
struct safetensors_written {
    uint64_t size_bytes;
    uint64_t checksum[2]; /* XXH3-128 of the whole file, computed from memory: low half, high half */
};

/**
 * Writes and syncs the file `path`. Replaces a file of that name that an earlier attempt left. Large files
 * bypass the page cache if the file system supports O_DIRECT, and are written by several threads. The
 * function allocates the header and the buffers of piece_writer.h. After a failure it removes the file.
 *   with_sums  for a file of a checkpoint: also write a second file with the sums of its chunks
 *              (chunk_sums.h)
 */
enum fsdp_status safetensors_write(struct fsdp_io *io, const char *path, struct safetensors_tensor *tensors,
                                   size_t n_tensors, const struct safetensors_metadata *metadata,
                                   size_t n_metadata, size_t alignment, bool with_sums,
                                   struct safetensors_written *written, struct fsdp_err *err);

/**
 * Writes and syncs the file `path` like safetensors_write(), with the sums of its chunks. The bytes of the
 * file are copied from another open file, `fd`: the `size_bytes` bytes at `offset`. *n_written is incremented
 * by the bytes that were written, without the header; NULL: the caller does not want it.
 *   FSDP_ERR_FORMAT  `fd` has fewer bytes, or they are not a safetensors file
 */
enum fsdp_status safetensors_copy(struct fsdp_io *io, const char *path, int fd, uint64_t offset,
                                  uint64_t size_bytes, _Atomic uint64_t *n_written,
                                  struct safetensors_written *written, struct fsdp_err *err);

/* Reading */

struct safetensors_header {
    struct safetensors_tensor *tensors; /* sorted by position of their data */
    size_t n_tensors;
    /* sorted by key; without DCP_SHARDING_INFO, whose values are in `tensors` */
    struct safetensors_metadata *metadata;
    size_t n_metadata;
    uint64_t data_start; /* offset of the data in the file: 8 + N */
    uint64_t size_bytes; /* size of the whole file */
    char *text;          /* memory that names and values point into */
};

/**
 * Parses a header's `length` bytes of JSON. `size_bytes` is the size of the whole file. Takes ownership of
 * `text` (allocated by malloc), even on failure. The message of FSDP_ERR_FORMAT names the problem and its
 * position.
 */
enum fsdp_status safetensors_parse(struct safetensors_header *out, char *text, size_t length,
                                   uint64_t size_bytes, struct fsdp_err *err);

/**
 * Opens the file `path`, which must not be a symbolic link, then reads and checks its header. If `fd` is NULL
 * the file is closed again; otherwise *fd receives the descriptor, which the caller closes.
 */
enum fsdp_status safetensors_open(struct fsdp_io *io, const char *path, struct safetensors_header *out,
                                  int *fd, struct fsdp_err *err);

/** Reads and checks the header of the file that is open as `fd`. `path` is used in messages only. */
enum fsdp_status safetensors_read(struct fsdp_io *io, int fd, const char *path, uint64_t size_bytes,
                                  struct safetensors_header *out, struct fsdp_err *err);

/** Returns the metadata value of `key`, or NULL. */
const char *safetensors_metadata_get(const struct safetensors_header *header, const char *key);

/** Frees what parsing allocated and sets *header to zero. */
void safetensors_free(struct safetensors_header *header);

#endif
