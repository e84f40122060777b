/*
 * Checksums of the parts of a checkpoint's file. The manifest has one checksum for the whole file, which
 * shows that it is damaged. These checksums show where. A part, or chunk, is the header, or at most 64 KiB of
 * one tensor.
 *
 * They are in a separate file in the same directory: sums-00001 belongs to
 * shard-00001-model-00001-of-00001.safetensors. That file is not synced, and may be missing: older programs
 * wrote none, and to load tensors it is not needed. All numbers are little-endian:
 *
 *   bytes               contents
 *   16                  "fsdp-chunk-sums\n"
 *   8, 8                size of the checkpoint's file; number of chunks
 *   16 for each chunk   where it ends in the file; XXH3-64 of its bytes
 *   8                   XXH3-64 of all bytes before these
 */
#ifndef SHARDFILE_CHUNK_SUMS_H
#define SHARDFILE_CHUNK_SUMS_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "shard_runtime/shardfile/io.h"

enum { CHUNK_SUMS_BYTES = 65536 };

/** One chunk. It begins where the chunk before it ends. */
struct chunk_sum {
    uint64_t end, sum;
};

/** The chunks of one file, and those of their sums that were computed. */
struct chunk_sums;

/** Creates *out for a file without any bytes. FSDP_ERR_NOMEM: *out is NULL. */
enum fsdp_status chunk_sums_create(struct chunk_sums **out, struct fsdp_err *err);
/** NULL is a no-op. */
void chunk_sums_destroy(struct chunk_sums *sums);

/**
 * Appends `size_bytes` bytes to the described file, which are the header or one tensor, and divides them into
 * chunks. FSDP_ERR_NOMEM: there is no memory for their sums.
 */
enum fsdp_status chunk_sums_add(struct chunk_sums *sums, uint64_t size_bytes, struct fsdp_err *err);

/**
 * Returns where the last chunk ends that begins in [begin, end) of the file, or `end` if that is larger. The
 * result is at most CHUNK_SUMS_BYTES - 1 bytes after `end`.
 */
uint64_t chunk_sums_reach(const struct chunk_sums *sums, uint64_t begin, uint64_t end);

/**
 * Computes the sums of the chunks that begin in [begin, end) of the file. `bytes` are the bytes of the file
 * from `begin` to chunk_sums_reach(). Several threads may call it at the same time, for different parts of
 * the file.
 */
void chunk_sums_take(struct chunk_sums *sums, uint64_t begin, uint64_t end, const void *bytes);

/** Writes into `out` the path of the file with the sums of the file `path`. FSDP_ERR_ARG: it is too long. */
enum fsdp_status chunk_sums_path(char out[IO_PATH_BYTES], const char *path, struct fsdp_err *err);

/**
 * Writes the file with the sums of the file `path`. All sums must be computed. Replaces a file that an
 * earlier attempt left.
 */
enum fsdp_status chunk_sums_write(struct chunk_sums *sums, struct fsdp_io *io, const char *path,
                                  struct fsdp_err *err);

/**
 * Reads the sums of the file `path`, which has `size_bytes`. The caller frees *list. No chunk is empty, and
 * the last one ends at the end of the file.
 *   FSDP_ERR_NOT_FOUND  there is no file with its sums
 *   FSDP_ERR_FORMAT     the sums are damaged, or belong to another file
 */
enum fsdp_status chunk_sums_read(struct fsdp_io *io, const char *path, uint64_t size_bytes,
                                 struct chunk_sum **list, size_t *n, struct fsdp_err *err);

#endif
