/*
 * Checksums of the parts of a checkpoint's file. The manifest has one checksum for the whole file, which
 * finds damage. These say where it is: a chunk is the header, or at most 64 KiB of one tensor.
 *
 * They are in a file of their own beside it: sums-00001 for shard-00001-model-00001-of-00001.safetensors. It
 * is not synced, and a checkpoint without it is as good: older programs wrote none, and no reader of tensors
 * opens it. All numbers are little-endian:
 *
 *   bytes               what
 *   16                  "fsdp-chunk-sums\n"
 *   8, 8                bytes of the file; number of chunks
 *   16 for each chunk   where it ends in the file; XXH3-64 of its bytes
 *   8                   XXH3-64 of all bytes before
 */
#ifndef SHARDFILE_CHUNK_SUMS_H
#define SHARDFILE_CHUNK_SUMS_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "shard_runtime/shardfile/io.h"

enum { CHUNK_SUMS_BYTES = 65536 };

/** A chunk begins where the one before it ends. */
struct chunk_sum {
    uint64_t end, sum;
};

/** The chunks of a file, and their sums as far as they are computed. */
struct chunk_sums;

/** Creates *out for a file without any bytes. FSDP_ERR_NOMEM: *out is NULL. */
enum fsdp_status chunk_sums_create(struct chunk_sums **out, struct fsdp_err *err);
/** NULL is a no-op. */
void chunk_sums_destroy(struct chunk_sums *sums);

/**
 * The file goes on with `size_bytes` bytes of the header, or of one tensor: the chunks of these follow.
 * FSDP_ERR_NOMEM: there is no memory for their sums.
 */
enum fsdp_status chunk_sums_add(struct chunk_sums *sums, uint64_t size_bytes, struct fsdp_err *err);

/**
 * Returns where the last chunk ends that begins in [begin, end) of the file; `end` if none reaches beyond it.
 * That is at most CHUNK_SUMS_BYTES - 1 bytes beyond.
 */
uint64_t chunk_sums_reach(const struct chunk_sums *sums, uint64_t begin, uint64_t end);

/**
 * Computes the sums of the chunks that begin in [begin, end) of the file. `bytes` are the file's from `begin`
 * to chunk_sums_reach(). Several threads may call it at the same time, each with another part of the file.
 */
void chunk_sums_take(struct chunk_sums *sums, uint64_t begin, uint64_t end, const void *bytes);

/** Writes the path of the sums of the file `path` into `out`. FSDP_ERR_ARG: it is too long. */
enum fsdp_status chunk_sums_path(char out[IO_PATH_BYTES], const char *path, struct fsdp_err *err);

/** Writes the sums, all of which were computed, beside the file `path`. Replaces what an earlier attempt
 * left. */
enum fsdp_status chunk_sums_write(struct chunk_sums *sums, struct fsdp_io *io, const char *path,
                                  struct fsdp_err *err);

/**
 * Reads the sums beside the file `path`, which has `size_bytes`. The caller frees *list. The chunks are not
 * empty, and the last one ends where the file ends.
 *   FSDP_ERR_NOT_FOUND  there are none
 *   FSDP_ERR_FORMAT     they are damaged, or of another file
 */
enum fsdp_status chunk_sums_read(struct fsdp_io *io, const char *path, uint64_t size_bytes,
                                 struct chunk_sum **list, size_t *n, struct fsdp_err *err);

#endif
