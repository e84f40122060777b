/*
 * The checksum of a file (XXH3-128 of all its bytes), computed while the file is read from its start to its
 * end. So a program can load the same bytes that it verifies, and reads each of them once.
 */
#ifndef SHARDFILE_FILE_SUM_H
#define SHARDFILE_FILE_SUM_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "shard_runtime/shardfile/io.h"
#include "shard_runtime/shardfile/manifest.h"

struct file_sum;

/** Creates *out for any number of files, one after another. FSDP_ERR_NOMEM: *out is NULL. */
enum fsdp_status file_sum_create(struct file_sum **out, struct fsdp_err *err);
/** NULL is a no-op. */
void file_sum_destroy(struct file_sum *sum);

/** Starts the checksum of a new file. */
void file_sum_begin(struct file_sum *sum);

/**
 * Adds `size_bytes` bytes to the checksum, which were read from the file at `offset`. The caller must pass
 * every byte of the file, in ascending order. Bytes that were added before are ignored.
 */
void file_sum_take(struct file_sum *sum, const void *bytes, size_t size_bytes, uint64_t offset);

/** Reads the bytes of the file before `until` that were not added yet, and adds them. */
enum fsdp_status file_sum_read(struct file_sum *sum, struct fsdp_io *io, int fd, uint64_t until,
                               const char *path, struct fsdp_err *err);

/**
 * Compares the checksum and the number of bytes with the manifest's entry of the file. `path` is used in
 * messages only. FSDP_ERR_FORMAT: they differ.
 */
enum fsdp_status file_sum_check(const struct file_sum *sum, const struct manifest_file *listed,
                                const char *path, struct fsdp_err *err);

#endif
