/*
 * Verifies that a checkpoint is complete and undamaged, at one of three depths.
 *
 * VERIFY_SIZES opens no file but the manifest. It checks:
 *   - the manifest's own checksum
 *   - that every listed file exists with its size
 *   - that the directory contains no other tensor file
 *
 * VERIFY_STRUCTURE checks all of that, and reads the headers:
 *   - that every file header is valid and belongs to this step, generation, world size and rank
 *   - that the boxes in all files cover every tensor exactly once
 *
 * VERIFY_CHECKSUMS checks all of that, and the checksum of every file. Ranks that load a checkpoint do the
 * same while they read it (checkpoint/load.h).
 *
 * The functions write nothing. They need memory for the headers and one buffer of 1 MiB. They block on the
 * disk; any thread may call them.
 */
#ifndef SHARDFILE_VERIFY_H
#define SHARDFILE_VERIFY_H

#include <stdint.h>

#include <fsdp/status.h>

#include "shard_runtime/shardfile/io.h"
#include "shard_runtime/shardfile/manifest.h"

enum verify_depth { VERIFY_SIZES, VERIFY_STRUCTURE, VERIFY_CHECKSUMS };

/**
 * A receiver of log lines for people. `line` gets key=value pairs without a newline. A NULL `line` drops
 * them.
 */
struct verify_log {
    void (*line)(void *context, const char *words);
    void *context;
};

/** Formats one line and passes it to log->line. `log` may be NULL. */
void verify_log_line(const struct verify_log *log, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/**
 * Verifies one step directory. `manifest` is NULL, or receives the manifest on success; the caller releases
 * it with manifest_free().
 *   FSDP_ERR_NOT_FOUND  the directory, the manifest or a listed file does not exist
 *   FSDP_ERR_FORMAT     the checkpoint is damaged; the message names the file
 *   FSDP_ERR_IO, FSDP_ERR_NOMEM, FSDP_ERR_UNSUPPORTED (a newer format)
 */
enum fsdp_status verify_step(struct fsdp_io *io, const char *step_directory, enum verify_depth depth,
                             struct manifest *manifest, struct fsdp_err *err);

/**
 * Verifies the checkpoint of `step` in `directory` (RUN/checkpoints). The step in its name and in its
 * manifest must be the same: a renamed directory counts as damaged. Errors are those of verify_step().
 */
enum fsdp_status verify_named_step(struct fsdp_io *io, const char *directory, int64_t step,
                                   enum verify_depth depth, struct fsdp_err *err);

/**
 * Finds the newest checkpoint in `directory` (RUN/checkpoints) that verifies. Writes a line to `log` for each
 * newer one that does not. *step is -1 if there are no checkpoints at all, or no directory: the run starts
 * from the beginning. If checkpoints exist but none verifies, the call fails with FSDP_ERR_FORMAT and the
 * reason of the newest one. It does not let the run start again from the beginning.
 */
enum fsdp_status verify_newest(struct fsdp_io *io, const char *directory, enum verify_depth depth,
                               int64_t *step, const struct verify_log *log, struct fsdp_err *err);

/**
 * Lists the steps that have a directory under their final name, newest first, without verifying them. The
 * caller frees *steps. A missing `directory` gives an empty list.
 */
enum fsdp_status verify_list_steps(struct fsdp_io *io, const char *directory, int64_t **steps,
                                   size_t *n_steps, struct fsdp_err *err);

#endif
