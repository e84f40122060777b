/*
 * Is a checkpoint whole? Structure: the manifest's own checksum, every file there with its size, every header
 * sound and of this step, world and rank, the rows of all files covering every tensor exactly once, and no
 * tensor file beside those listed. Checksums: every byte of every file as well.
 *
 * Nothing is written. Memory: the headers and one buffer of 4 MiB. Calls block on the disk; any thread.
 */
#ifndef SHARDFILE_VERIFY_H
#define SHARDFILE_VERIFY_H

#include <stdint.h>

#include <fsdp/status.h>

#include "shard_runtime/shardfile/io.h"
#include "shard_runtime/shardfile/manifest.h"

enum verify_depth { VERIFY_STRUCTURE, VERIFY_CHECKSUMS };

/** Where lines for a person go: key=value pairs without a newline. A NULL `line` drops them. */
struct verify_log {
    void (*line)(void *context, const char *words);
    void *context;
};

void verify_log_line(const struct verify_log *log, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/**
 * Verify one step directory. `manifest`: NULL, or receives the manifest (manifest_free() it) on success.
 *   FSDP_ERR_NOT_FOUND  no such directory, manifest or file
 *   FSDP_ERR_FORMAT     damaged: the message names the file
 *   FSDP_ERR_IO, FSDP_ERR_NOMEM, FSDP_ERR_UNSUPPORTED (a newer format)
 */
enum fsdp_status verify_step(struct fsdp_io *io, const char *step_directory, enum verify_depth depth,
                             struct manifest *manifest, struct fsdp_err *err);

/**
 * Verify the checkpoint of `step` in `directory` (RUN/checkpoints). Its name and what it holds must be of one
 * step: a renamed directory is damage, too. Fails as verify_step() does.
 */
enum fsdp_status verify_named_step(struct fsdp_io *io, const char *directory, int64_t step,
                                   enum verify_depth depth, struct fsdp_err *err);

/**
 * One of `n_parts` shares of verify_named_step() with every checksum: the structure of the whole, and the checksums
 * of every n_parts-th file, from file `part` on. The checkpoint verifies when all shares do. Fails as verify_step() does.
 */
enum fsdp_status verify_named_part(struct fsdp_io *io, const char *directory, int64_t step, size_t part,
                                   size_t n_parts, struct fsdp_err *err);

/**
 * The newest checkpoint in `directory` (RUN/checkpoints) that verifies; each one passed over is a line in
 * `log`. *step is -1 when there is no checkpoint at all (a missing directory included): a fresh run. With
 * checkpoints of which none verifies the call fails with the first one's reason, FSDP_ERR_FORMAT, rather than
 * begin anew.
 */
enum fsdp_status verify_newest(struct fsdp_io *io, const char *directory, enum verify_depth depth,
                               int64_t *step, const struct verify_log *log, struct fsdp_err *err);

/** The steps that have a directory under their final name, newest first, to be freed; verified or not. */
enum fsdp_status verify_list_steps(struct fsdp_io *io, const char *directory, int64_t **steps,
                                   size_t *n_steps, struct fsdp_err *err);

#endif
